"""Lowers a Python function to a program. The source is parsed with `ast` and never executed.

Accepted is one function ``run()`` without parameters that consists of calls of actions, ``for … in range(n)`` or
``range(a, b)`` with constants, ``while``, ``if``, ``elif``, ``else``, ``pass``, docstrings and comments. A condition consists
of calls of tests, ``and``, ``or``, ``not``, parentheses, ``True`` and ``False``. Everything else is rejected with its line.

The DSL has no empty blocks, so bodies of ``pass`` are lowered to what has the same effect on the world: an empty ``for`` and
an ``if`` with empty branches disappear (with their perceptions), ``if A: pass; else: B`` becomes IF not A, B. A ``while`` that
does nothing is rejected: it never ends or has no effect.
"""

from __future__ import annotations

import ast
import textwrap
from typing import NoReturn

from dressage.errors import InvalidArgument
from dressage.parsing import syntax_tree
from dressage.programs.syntax import (
    MAX_CHARACTERS,
    MAX_DEPTH,
    MAX_REPEAT,
    MAX_TOKENS,
    Action,
    And,
    Condition,
    Constant,
    If,
    IfElse,
    Language,
    Not,
    Or,
    Program,
    Repeat,
    Statement,
    Test,
    While,
    measure,
)  # fmt: skip

_STATEMENTS = "a call of an action, for, while, if or pass"
_CONDITIONS = "tests with and, or, not, True or False"
_NAMES = {
    ast.AnnAssign: "an assignment",
    ast.Assert: "assert",
    ast.Assign: "an assignment",
    ast.AsyncFunctionDef: "async",
    ast.Attribute: "an attribute",
    ast.AugAssign: "an assignment",
    ast.BinOp: "arithmetic",
    ast.Break: "break",
    ast.ClassDef: "a class",
    ast.Compare: "a comparison",
    ast.Constant: "a value",
    ast.Continue: "continue",
    ast.FunctionDef: "a nested function",
    ast.Global: "global",
    ast.IfExp: "a conditional expression",
    ast.Import: "an import",
    ast.ImportFrom: "an import",
    ast.Lambda: "lambda",
    ast.Match: "match",
    ast.Name: "a variable",
    ast.NamedExpr: "an assignment",
    ast.Raise: "raise",
    ast.Return: "return",
    ast.Try: "try",
    ast.With: "with",
}


def from_python(source: str, language: Language) -> Program:
    """Lower Python source to a program.

    :param source: a module with one function ``run()``; common indentation is removed.
    :param language: the actions and tests that may be called.
    :raises InvalidArgument: for anything else; the message and ``metadata["line"]`` contain the line, from 1.
    """
    if not isinstance(source, str) or len(source) > MAX_CHARACTERS:
        size = f"{len(source)} characters" if isinstance(source, str) else type(source).__name__
        raise InvalidArgument(
            field="program", problem="too long", value=size, expected=f"Python of at most {MAX_CHARACTERS} characters"
        )
    source = textwrap.dedent(source)
    return _Lowering(source, language).module(_parse_source(source))


def _parse_source(source: str) -> ast.Module:
    try:
        return syntax_tree(source)
    except SyntaxError as error:
        line = error.lineno or 1
        lines = source.splitlines()
        raise InvalidArgument(
            field="program",
            problem=f"line {line}: Python cannot parse it: {error.msg}",
            value=lines[line - 1].strip() if line <= len(lines) else "",
            expected="one function run()",
            metadata={"line": str(line)},
        ) from None
    except (ValueError, RecursionError, MemoryError):
        # Null bytes, lone surrogates, and nesting beyond the limits of Python's parser.
        raise InvalidArgument(
            field="program",
            problem="line 1: Python cannot parse it: invalid characters, or nested too deeply",
            expected="one function run()",
            metadata={"line": "1"},
        ) from None


class _Lowering:
    """``depth`` is the nesting of brackets in the DSL text, at most `MAX_DEPTH`, which also bounds the recursion."""

    def __init__(self, source: str, language: Language) -> None:
        self._source = source
        self._language = language

    def module(self, tree: ast.Module) -> Program:
        functions = []
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                functions.append(node)
            elif not _is_docstring(node):
                self._reject(node, f"{_name(node)} outside of run()", "only the function run()")
        if not functions:
            raise InvalidArgument(
                field="program",
                problem="line 1: there is no function",
                expected="one function run()",
                metadata={"line": "1"},
            )
        if len(functions) > 1:
            self._reject(functions[1], "a second function", "only the function run()")
        function = functions[0]
        if function.name != "run":
            self._reject(function, f"the function is named {function.name[:40]}", "one function run()")
        if ast.dump(function.args) != ast.dump(_NO_ARGUMENTS) or function.decorator_list:
            self._reject(function, "run has parameters or a decorator", "def run():")
        body = self._block(function.body, 1)
        if not body:
            self._reject(function, "run() does nothing", "at least one action")
        program = Program(body)
        if (count := measure(program).tokens) > MAX_TOKENS:
            self._reject(function, f"the program has {count} tokens", f"at most {MAX_TOKENS} tokens")
        return program

    def _reject(self, node: ast.AST, problem: str, expected: str) -> NoReturn:
        line = getattr(node, "lineno", 1)
        segment = ast.get_source_segment(self._source, node) or ""
        raise InvalidArgument(
            field="program",
            problem=f"line {line}: {problem}",
            value=segment.split("\n", 1)[0],
            expected=expected,
            metadata={"line": str(line)},
        )

    def _deeper(self, node: ast.AST, depth: int) -> int:
        if depth >= MAX_DEPTH:
            self._reject(node, "nested too deeply", f"at most {MAX_DEPTH} nested brackets of the DSL")
        return depth + 1

    def _block(self, nodes: list[ast.stmt], depth: int) -> tuple[Statement, ...]:
        """Return the statements of a body; none if it does nothing."""
        return tuple(
            statement for node in nodes if not _is_docstring(node) for statement in self._statement(node, depth)
        )

    def _statement(self, node: ast.stmt, depth: int) -> tuple[Statement, ...]:
        """Return the statement, or nothing for one without an effect."""
        match node:
            case ast.Pass():
                return ()
            case ast.Expr(value=ast.Call() as call):
                return (self._action(call),)
            case ast.For():
                return self._for(node, depth)
            case ast.While(orelse=[]):
                return (self._while(node, depth),)
            case ast.If():
                return self._if(node, depth)
            case ast.While():
                self._reject(node.orelse[0], "else of a loop is not supported", "while without else")
            case ast.Expr(value=value):
                self._reject(node, f"{_name(value)} is not supported here", _STATEMENTS)
        self._reject(node, f"{_name(node)} is not supported", _STATEMENTS)

    def _action(self, call: ast.Call) -> Action:
        name = self._call_name(call, names=self._language.actions, kind="action")
        if call.args or call.keywords:
            self._reject(call, f"{name} takes no argument", f"{name}()")
        return Action(name)

    def _call_name(self, call: ast.Call, *, names: tuple[str, ...], kind: str) -> str:
        """Return the name of a called action or test."""
        expected = f"one of {', '.join(names)}"
        if not isinstance(call.func, ast.Name):
            self._reject(call, f"a call of {_name(call.func)} is not supported", expected)
        name = call.func.id
        if name in names:
            return name
        if name in self._language.actions:
            self._reject(call, "an action is not a condition", expected)
        if name in self._language.tests:
            self._reject(call, "a test is not an action", expected)
        self._reject(call, f"unknown {kind}", expected)

    def _for(self, node: ast.For, depth: int) -> tuple[Statement, ...]:
        if node.orelse:
            self._reject(node.orelse[0], "else of a loop is not supported", "for without else")
        if not isinstance(node.target, ast.Name):
            self._reject(node.target, "not a loop variable", "for i in range(n)")
        count = self._count(node.iter)
        body = self._block(node.body, self._deeper(node, depth))
        return (Repeat(count, body),) if body else ()

    def _count(self, node: ast.expr) -> int:
        match node:
            case ast.Call(func=ast.Name(id="range"), args=[_] | [_, _] as arguments, keywords=[]):
                bounds = [self._integer(argument) for argument in arguments]
            case _:
                self._reject(node, "not a range of constants", "range(n) or range(a, b)")
        count = max(0, bounds[-1] - (bounds[0] if len(bounds) == 2 else 0))
        if count > MAX_REPEAT:
            self._reject(node, "too many repetitions", f"at most {MAX_REPEAT}")
        return count

    def _integer(self, node: ast.expr) -> int:
        match node:
            case ast.Constant(value=int(value)) if not isinstance(value, bool):
                return value
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(value))) if not isinstance(value, bool):
                return -value
        self._reject(node, "not a constant", "an integer")

    def _while(self, node: ast.While, depth: int) -> While:
        deeper = self._deeper(node, depth)
        condition = self._condition(node.test, deeper)
        body = self._block(node.body, deeper)
        if not body:
            self._reject(node, "a while that does nothing", "at least one action in its body")
        return While(condition, body)

    def _if(self, node: ast.If, depth: int) -> tuple[Statement, ...]:
        deeper = self._deeper(node, depth)
        body = self._block(node.body, deeper)
        condition = self._condition(node.test, deeper if body else self._deeper(node, deeper))
        orelse = self._block(node.orelse, deeper)
        if body and orelse:
            return (IfElse(condition, body, orelse),)
        if body:
            return (If(condition, body),)
        if orelse:
            return (If(Not(condition), orelse),)
        return ()

    def _condition(self, node: ast.expr, depth: int) -> Condition:
        match node:
            case ast.Call():
                return self._test(node, depth)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return Not(self._condition(operand, self._deeper(node, depth)))
            case ast.BoolOp(op=operator, values=values):
                # `a and b and c` nests to the left, one level for each operator.
                deepest = depth + len(values) - 1
                self._deeper(node, deepest - 1)
                condition = self._condition(values[0], deepest)
                for position, value in enumerate(values[1:]):
                    right = self._condition(value, deepest - position)
                    condition = And(condition, right) if isinstance(operator, ast.And) else Or(condition, right)
                return condition
            case ast.Constant(value=bool(value)):
                return Constant(value)
            case ast.Name(id=name) if name in self._language.tests:
                self._reject(node, "a test without its call", f"{name}()")
        self._reject(node, f"{_name(node)} is not supported in a condition", _CONDITIONS)

    def _test(self, call: ast.Call, depth: int) -> Test:
        name = self._call_name(call, names=tuple(self._language.tests), kind="test")
        arguments = self._language.tests[name]
        if not arguments:
            if call.args or call.keywords:
                self._reject(call, f"{name} takes no argument", f"{name}()")
            return Test(name)
        match call:
            case ast.Call(args=[ast.Constant(value=str(argument))], keywords=[]) if argument in arguments:
                self._deeper(call, depth)
                return Test(name, argument)
        choices = ", ".join(f'"{argument}"' for argument in arguments)
        self._reject(call, f"{name} takes one argument", f"one of {choices}")


_NO_ARGUMENTS = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _name(node: ast.AST) -> str:
    """Return what a node is called in messages."""
    return _NAMES.get(type(node), type(node).__name__.lower())
