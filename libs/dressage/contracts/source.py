"""Static checks of generated sources: an allow-list over the syntax tree. Lint, not security: see `dressage.sandbox`.

Two kinds of reward are told apart by what they define: ``reward`` at module level (vectorised), or Prompt2Policy's
forms (per step): a class with ``compute``, ``_make_reward`` or a bare ``reward_fn``. Every violation names the rule, the
line and the remedy, ready for a repair prompt; all of them are reported at once.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from dressage.contracts import namespace
from dressage.contracts.execute import ALLOWED_BUILTINS, CLASS_BUILTINS, EXCEPTIONS
from dressage.contracts.faults import Violation, shorten
from dressage.envs.cards import EnvironmentCard

Style = Literal["vectorised", "per_step"]

MAX_SOURCE_BYTES = 64 * 1024
MAX_TERMS = 32
REWARD_PARAMETERS = ("state", "action", "next_state", "memory", "np")
JUDGE_PARAMETERS = ("trajectory", "np")
TRAJECTORY_NAMES = frozenset(
    {"action", "reward", "time", "num_steps", "terminated", "truncated", "environment", "time_step"}
)
_MAX_VIOLATIONS = 50

_EXPRESSIONS: tuple[type[ast.AST], ...] = (
    ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.IfExp, ast.Dict, ast.Set, ast.Compare, ast.Call, ast.Constant,
    ast.Attribute, ast.Subscript, ast.Starred, ast.Name, ast.List, ast.Tuple, ast.Slice, ast.JoinedStr,
    ast.FormattedValue, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.NamedExpr,
    ast.comprehension, ast.arguments, ast.arg, ast.keyword, ast.expr_context, ast.boolop, ast.operator, ast.unaryop,
    ast.cmpop,
)  # fmt: skip
_STATEMENTS: tuple[type[ast.AST], ...] = (
    ast.Module, ast.FunctionDef, ast.Return, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.For, ast.While, ast.If,
    ast.Expr, ast.Pass, ast.Break, ast.Continue, ast.Import, ast.ImportFrom,
)  # fmt: skip
_ORDINARY: tuple[type[ast.AST], ...] = (
    ast.Try,
    ast.ExceptHandler,
    ast.Raise,
    ast.Assert,
    ast.With,
    ast.withitem,
)
_ALLOWED: dict[str, tuple[type[ast.AST], ...]] = {
    "vectorised": _EXPRESSIONS + _STATEMENTS,
    "per_step": (*_EXPRESSIONS, *_STATEMENTS, *_ORDINARY, ast.ClassDef, ast.Nonlocal),
    "judge": _EXPRESSIONS + _STATEMENTS + _ORDINARY,
}
_REMEDIES: dict[type[ast.AST], str] = {
    ast.ClassDef: "write plain functions",
    ast.Global: "keep state in memory (vectorised rewards) or on self",
    ast.Nonlocal: "keep state in memory",
    ast.Try: "guard against bad values with np.where and np.maximum instead",
    ast.With: "nothing here needs a context",
    ast.Delete: "let names go out of scope",
    ast.Raise: "return finite values for every state instead",
    ast.Assert: "return finite values for every state instead",
}
_IN_PLACE = frozenset({"sort", "fill", "put", "resize", "partition", "itemset", "setfield", "byteswap"})
_FORBIDDEN_ATTRIBUTES = frozenset(
    """tofile dump dumps setflags ctypes format format_map mro gi_frame gi_code cr_frame f_globals f_locals f_builtins
    f_back tb_frame tb_next func_globals func_code co_code""".split()
)
_FORBIDDEN_NAMES = frozenset(
    """exec eval compile open getattr setattr delattr hasattr globals locals vars dir input breakpoint memoryview
    bytearray id help exit quit type print iter next hash object super""".split()
)


@dataclass
class _Lint:
    kind: str
    allowed_names: frozenset[str]
    array_names: frozenset[str]
    fields: dict[str, frozenset[str]]
    """Variable name to the attributes it has, for those whose attributes are known."""
    owner: str
    found: list[Violation] = field(default_factory=list)

    def report(self, rule: str, node: ast.AST | int, message: str) -> None:
        line = node if isinstance(node, int) else getattr(node, "lineno", 0)
        violation = Violation(rule, line, message)
        if violation not in self.found:
            self.found.append(violation)

    def walk(self, tree: ast.Module) -> None:
        bound = _bound_names(tree)
        for node in ast.walk(tree):
            if not isinstance(node, _ALLOWED[self.kind]):
                self._not_allowed(node)
            match node:
                case ast.Import() | ast.ImportFrom():
                    self._import(node)
                case ast.Attribute():
                    self._attribute(node)
                case ast.Name(ctx=ast.Load()):
                    self._name(node, bound)
                case ast.Name(id=name) | ast.arg(arg=name) if _dunder(name):
                    self.report("dunder", node, f"names such as {name} are not allowed; choose another.")
                case ast.Subscript(ctx=ast.Store() | ast.Del()) if self.kind == "vectorised":
                    self.report("in-place", node, _NO_WRITING)
                case ast.Call():
                    self._call(node)

    def _not_allowed(self, node: ast.AST) -> None:
        name = _WORDS.get(type(node).__name__, type(node).__name__)
        remedy = next((text for kind, text in _REMEDIES.items() if isinstance(node, kind)), "leave it out")
        self.report("statement", node, f"{name} is not allowed in a {self.owner}; {remedy}.")

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        if isinstance(node, ast.ImportFrom):
            names = [alias.name for alias in node.names]
            tolerated = node.module == "__future__" and names == ["annotations"]
            tolerated |= (
                self.kind == "per_step" and names == ["RewardFunction"] and node.names[0].asname is None
            )
            if not tolerated:
                self._refuse_import(node, node.module or ".")
            return
        for alias in node.names:
            plain_math = alias.name == "math" and alias.asname is None
            numpy_as_np = self.kind == "per_step" and alias.name == "numpy" and alias.asname == "np"
            if not (plain_math or numpy_as_np):
                self._refuse_import(node, alias.name)

    def _refuse_import(self, node: ast.AST, module: str) -> None:
        if module in ("numpy", "jax.numpy", "torch"):
            remedy = "np is given as an argument; remove the import"
        else:
            remedy = "only `import math` is; use the arguments and np instead"
        self.report("import", node, f"importing {module} is not allowed: {remedy}.")

    def _attribute(self, node: ast.Attribute) -> None:
        name = node.attr
        if _dunder(name) and not _is_super_init(node):
            self.report("dunder", node, f"the attribute {name} is not allowed; use ordinary attributes.")
        elif name in _FORBIDDEN_ATTRIBUTES:
            self.report("forbidden-attribute", node, f"the attribute {name} is not allowed; leave it out.")
        elif self.kind == "vectorised" and name.startswith("_"):
            self.report("dunder", node, f"the attribute {name} is private; use the fields of the card.")
        if not isinstance(node.value, ast.Name):
            self._submodule(node)
            return
        variable = node.value.id
        if variable == "np" and name not in self.array_names:
            self.report("np-function", node, namespace.missing_name(name, self.array_names))
        elif variable in self.fields and name not in self.fields[variable]:
            self._unknown_field(node, variable)

    def _submodule(self, node: ast.Attribute) -> None:
        match node.value:
            case ast.Attribute(value=ast.Name(id="np"), attr=module) if module in namespace.SUBMODULES:
                if node.attr not in namespace.SUBMODULES[module]:
                    text = namespace.missing_name(
                        node.attr, namespace.SUBMODULES[module], prefix=f"np.{module}"
                    )
                    self.report("np-function", node, text)

    def _unknown_field(self, node: ast.Attribute, variable: str) -> None:
        known = self.fields[variable]
        if variable == "memory":
            declared = ", ".join(sorted(known)) or "none"
            message = f"memory.{node.attr} is not declared in MEMORY (declared: {declared}); add it with its initial value."
            self.report("memory-field", node, message)
            return
        near = difflib.get_close_matches(node.attr, known, n=4, cutoff=0.5) or sorted(known)[:8]
        message = (
            f"{variable} has no field {node.attr}; near matches: {', '.join(near)}. Use a field of the card."
        )
        self.report("unknown-field", node, message)

    def _name(self, node: ast.Name, bound: frozenset[str]) -> None:
        name = node.id
        if name in bound or name in self.allowed_names:
            return
        if _dunder(name):
            self.report("dunder", node, f"names such as {name} are not allowed; leave it out.")
        elif name in _FORBIDDEN_NAMES:
            self.report("forbidden-name", node, f"{name} is not allowed in a {self.owner}; leave it out.")
        else:
            near = difflib.get_close_matches(name, bound | self.allowed_names, n=3, cutoff=0.6)
            hint = f"; near matches: {', '.join(near)}" if near else ""
            self.report(
                "unknown-name", node, f"the name {name} is not defined{hint}. Define it or use an argument."
            )

    def _call(self, node: ast.Call) -> None:
        if self.kind != "vectorised":
            return
        for keyword in node.keywords:
            if keyword.arg == "out":
                self.report("in-place", node, _NO_WRITING)
        match node.func:
            case ast.Attribute(value=ast.Name(id="np")):
                return
            case ast.Attribute(attr=name) if name in _IN_PLACE:
                self.report("in-place", node, f".{name}() changes an array in place; {_NO_WRITING}")


_NO_WRITING = "arrays may not be written into, so that the reward runs on every backend; use np.where."
_WORDS = {
    "ClassDef": "a class", "Global": "global", "Nonlocal": "nonlocal", "Try": "try", "With": "with", "Raise": "raise",
    "Assert": "assert", "Delete": "del", "AsyncFunctionDef": "async", "Await": "await", "Yield": "yield",
    "YieldFrom": "yield from", "Match": "match", "TypeAlias": "type",
}  # fmt: skip


def _dunder(name: str) -> bool:
    return name.startswith("__")


def _is_super_init(node: ast.Attribute) -> bool:
    match node:
        case ast.Attribute(value=ast.Call(func=ast.Name(id="super"), args=[]), attr="__init__"):
            return True
    return False


def _bound_names(tree: ast.Module) -> frozenset[str]:
    """Return every name bound anywhere; scopes are not told apart, since a mistake there shows when the code runs."""

    def names() -> Iterator[str]:
        for node in ast.walk(tree):
            match node:
                case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                    yield name
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                    yield name
                case ast.ExceptHandler(name=str(name)):
                    yield name
                case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                    yield from (alias.asname or alias.name for alias in aliases)

    return frozenset(names())


def parse(source: str, *, owner: str) -> ast.Module | Violation:
    """Parse a generated source.

    :param owner: "reward" or "judge", for the messages.
    :returns: its tree, or the violation that keeps it from being parsed.
    """
    if not isinstance(source, str) or not source.strip():
        return Violation("syntax", 0, f"the {owner} is empty; write the module that the contract describes.")
    if len(source.encode("utf-8", "replace")) > MAX_SOURCE_BYTES:
        return Violation("size", 0, f"the {owner} is larger than {MAX_SOURCE_BYTES // 1024} KiB; shorten it.")
    try:
        return ast.parse(source)
    except SyntaxError as error:
        return Violation("syntax", error.lineno or 0, f"Python cannot parse this: {shorten(error.msg, 200)}.")
    except (ValueError, RecursionError, MemoryError) as error:
        return Violation(
            "syntax", 0, f"Python cannot parse this: {shorten(str(error), 200) or 'it is nested too deeply'}."
        )


def reward_style(tree: ast.Module) -> Style | None:
    """Return which form of reward the module defines, None for neither."""
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    if "reward" in functions:
        return "vectorised"
    if functions & {"reward_fn", "_make_reward"} or reward_class(tree) is not None:
        return "per_step"
    return None


def reward_class(tree: ast.Module) -> ast.ClassDef | None:
    """Return the last class at module level that has a ``compute`` method."""
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    for node in reversed(classes):
        if any(isinstance(item, ast.FunctionDef) and item.name == "compute" for item in node.body):
            return node
    return None


def literal(tree: ast.Module, name: str) -> tuple[Any, int] | None:
    """Return (value, line) of a literal that the module assigns to ``name`` at its top level; None: there is none.

    A value that is not a literal comes back as the `ast` expression.
    """
    for node in reversed(tree.body):
        match node:
            case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                pass
            case ast.AnnAssign(target=ast.Name(id=target), value=ast.expr() as value) if target == name:
                pass
            case _:
                continue
        try:
            return ast.literal_eval(value), node.lineno
        except (ValueError, TypeError, RecursionError):
            return value, node.lineno
    return None


def lint_reward(source: str, card: EnvironmentCard) -> list[Violation]:
    """Check a reward's source without running it.

    :param card: whose fields ``state`` and ``next_state`` have.
    :returns: violations in order of their lines, at most 50; empty when there is none.
    """
    tree = parse(source, owner="reward")
    if isinstance(tree, Violation):
        return [tree]
    style = reward_style(tree)
    if style is None:
        message = (
            "no reward is defined; define reward(state, action, next_state, memory, np) at module level, or a class "
            "with compute(self, obs, action, next_obs, info)."
        )
        return [Violation("no-reward", 0, message)]
    fields = frozenset(card.field_names)
    if style == "per_step":
        names = ALLOWED_BUILTINS | CLASS_BUILTINS | EXCEPTIONS | {"np", "math", "RewardFunction", "print"}
        lint = _Lint("per_step", names, namespace.JUDGE_NAMES, {}, "reward")
        lint.walk(tree)
        _check_per_step(tree, lint)
    else:
        memory = _check_declarations(tree)
        known = {"state": fields, "next_state": fields, "memory": memory.fields["memory"]}
        lint = _Lint("vectorised", ALLOWED_BUILTINS | {"np", "math"}, namespace.REWARD_NAMES, known, "reward")
        lint.found += memory.found
        lint.walk(tree)
        _check_signature(tree, "reward", REWARD_PARAMETERS, lint)
    return _ordered(lint.found)


def lint_judge(source: str, card: EnvironmentCard) -> list[Violation]:
    """Check a judge's source without running it; as `lint_reward`."""
    tree = parse(source, owner="judge")
    if isinstance(tree, Violation):
        return [tree]
    fields = {"trajectory": frozenset(card.field_names) | TRAJECTORY_NAMES}
    lint = _Lint(
        "judge", ALLOWED_BUILTINS | EXCEPTIONS | {"np", "math"}, namespace.JUDGE_NAMES, fields, "judge"
    )
    lint.walk(tree)
    _check_signature(tree, "judge", JUDGE_PARAMETERS, lint)
    return _ordered(lint.found)


def _ordered(found: list[Violation]) -> list[Violation]:
    return sorted(found, key=lambda violation: (violation.line, violation.rule))[:_MAX_VIOLATIONS]


def _check_signature(tree: ast.Module, name: str, expected: tuple[str, ...], lint: _Lint) -> None:
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    wanted = f"define it as {name}({', '.join(expected)})"
    if not functions:
        lint.report("signature", 0, f"there is no function {name} at module level; {wanted}.")
        return
    arguments = functions[-1].args
    names = tuple(argument.arg for argument in arguments.posonlyargs + arguments.args)
    if names != expected or arguments.vararg or arguments.kwarg or arguments.kwonlyargs:
        lint.report("signature", functions[-1], f"{name} takes ({', '.join(names)}); {wanted}.")
    if functions[-1].decorator_list:
        lint.report("signature", functions[-1], f"{name} may not be decorated; remove the decorator.")


def _check_declarations(tree: ast.Module) -> _Lint:
    """Check LATEX, TERMS and MEMORY; the result carries the violations and memory's names."""
    lint = _Lint("vectorised", frozenset(), frozenset(), {"memory": frozenset()}, "reward")
    latex = literal(tree, "LATEX")
    if latex is None or not isinstance(latex[0], str) or not latex[0].strip():
        lint.report(
            "latex",
            latex[1] if latex else 0,
            'LATEX is missing; write LATEX = r"…", the reward as a formula.',
        )
    terms = literal(tree, "TERMS")
    if terms is None or not _is_terms(terms[0]):
        message = f'TERMS must be a literal {{"term": "meaning, unit"}} of 1 to {MAX_TERMS} terms; write what reward returns.'
        lint.report("terms", terms[1] if terms else 0, message)
    memory = literal(tree, "MEMORY")
    if memory is not None and not _is_memory(memory[0]):
        message = 'MEMORY must be a literal {"name": number} with names that are identifiers; vectors are not possible.'
        lint.report("memory", memory[1], message)
    elif memory is not None:
        lint.fields["memory"] = frozenset(memory[0])
    return lint


def _is_terms(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and 1 <= len(value) <= MAX_TERMS
        and all(isinstance(k, str) and 0 < len(k) <= 64 and isinstance(v, str) for k, v in value.items())
    )


def _is_memory(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and len(value) <= MAX_TERMS
        and all(isinstance(k, str) and k.isidentifier() and not k.startswith("_") for k in value)
        and all(isinstance(v, (int, float)) and abs(v) < float("inf") for v in value.values())
    )


def _check_per_step(tree: ast.Module, lint: _Lint) -> None:
    found = reward_class(tree)
    if found is not None:
        compute = next(i for i in found.body if isinstance(i, ast.FunctionDef) and i.name == "compute")
        _check_count(compute, 5, "compute(self, obs, action, next_obs, info)", lint)
        return
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "reward_fn":
            _check_count(node, 4, "reward_fn(obs, action, next_obs, info)", lint)


def _check_count(function: ast.FunctionDef, count: int, wanted: str, lint: _Lint) -> None:
    arguments = function.args
    if len(arguments.posonlyargs) + len(arguments.args) != count or arguments.vararg or arguments.kwonlyargs:
        lint.report("signature", function, f"{function.name} has other parameters; define it as {wanted}.")


def term_line(tree: ast.Module, term: str) -> int:
    """Return the line where ``term`` is computed: its key in a dict, or its subscript; 0 if it is not found."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in ast.walk(function):
            match node:
                case ast.Dict(keys=keys):
                    for key in keys:
                        if isinstance(key, ast.Constant) and key.value == term:
                            return key.lineno
                case ast.Subscript(slice=ast.Constant(value=key), ctx=ast.Store()) if key == term:
                    return node.lineno
    return 0
