"""Prints programs: as Python, and as indented DSL text. Both can be read back into the same program.

Each printout has the line of every statement, so that a trace can highlight the line that executes. Statements are numbered in
preorder, from 0: a statement comes before those of its blocks, and a body before its ELSE block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dressage.programs.syntax import (
    Action,
    And,
    Condition,
    Constant,
    If,
    IfElse,
    Not,
    Or,
    Program,
    Repeat,
    Statement,
    Test,
    While,
    tokens,
)  # fmt: skip

_INDENT = "    "


@dataclass(frozen=True)
class Printout:
    """A printed program.

    :param text: the lines, without an end of line after the last.
    :param lines: the line of each statement in preorder, from 1. The condition of a statement is on the same line.
    """

    text: str
    lines: tuple[int, ...]


def statements(program: Program) -> Iterator[Statement]:
    """Yield the statements of a program in preorder: the order of `Printout.lines`."""
    pending = list(reversed(program.body))
    while pending:
        statement = pending.pop()
        yield statement
        match statement:
            case Repeat(body=body) | While(body=body) | If(body=body):
                pending.extend(reversed(body))
            case IfElse(body=body, orelse=orelse):
                pending.extend(reversed((*body, *orelse)))


def to_python(program: Program) -> Printout:
    """Print a program as a Python function ``run()``; `from_python` turns it into the same program."""
    printer = _Python()
    printer.line("def run():")
    printer.block(program.body, 1)
    return Printout("\n".join(printer.texts), tuple(printer.statements))


def to_indented(program: Program) -> Printout:
    """Print a program as DSL text with one statement or closing bracket a line; `parse` turns it into the same program."""
    printer = _Dsl()
    printer.line("DEF run m(")
    printer.block(program.body, 1)
    printer.line("m)")
    return Printout("\n".join(printer.texts), tuple(printer.statements))


class _Printer:
    """Lines, and the lines of statements."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.statements: list[int] = []

    def line(self, text: str, level: int = 0) -> None:
        self.texts.append(_INDENT * level + text)

    def block(self, block: tuple[Statement, ...], level: int) -> None:
        for statement in block:
            self.statement(statement, level)

    def begin(self, text: str, level: int) -> None:
        """Print the first line of a statement."""
        self.line(text, level)
        self.statements.append(len(self.texts))

    def statement(self, statement: Statement, level: int) -> None:
        raise NotImplementedError


class _Python(_Printer):
    def statement(self, statement: Statement, level: int, keyword: str = "if") -> None:
        match statement:
            case Action(name=name):
                self.begin(f"{name}()", level)
            case Repeat(count=count, body=body):
                self.begin(f"for i in range({count}):", level)
                self.block(body, level + 1)
            case While(condition=condition, body=body):
                self.begin(f"while {_python_condition(condition)}:", level)
                self.block(body, level + 1)
            case If(condition=condition, body=body):
                self.begin(f"{keyword} {_python_condition(condition)}:", level)
                self.block(body, level + 1)
            case IfElse(condition=condition, body=body, orelse=orelse):
                self.begin(f"{keyword} {_python_condition(condition)}:", level)
                self.block(body, level + 1)
                if len(orelse) == 1 and isinstance(orelse[0], If | IfElse):
                    self.statement(orelse[0], level, "elif")
                else:
                    self.line("else:", level)
                    self.block(orelse, level + 1)


_OR, _AND, _NOT = 1, 2, 3
"""How tightly Python's operators bind."""


def _python_condition(condition: Condition, binding: int = 0) -> str:
    """Print a condition, in parentheses if its operator binds less tightly than ``binding``."""
    match condition:
        case Test(name=name, argument=argument):
            return f'{name}("{argument}")' if argument else f"{name}()"
        case Constant(value=value):
            return str(value)
        case Not(condition=inner):
            text, own = f"not {_python_condition(inner, _NOT)}", _NOT
        case And(left=left, right=right):
            # Python joins to the left: only a right operand of the same operator needs parentheses.
            text, own = f"{_python_condition(left, _AND)} and {_python_condition(right, _AND + 1)}", _AND
        case Or(left=left, right=right):
            text, own = f"{_python_condition(left, _OR)} or {_python_condition(right, _OR + 1)}", _OR
    return f"({text})" if own < binding else text


class _Dsl(_Printer):
    def statement(self, statement: Statement, level: int) -> None:
        match statement:
            case Action(name=name):
                self.begin(name, level)
            case Repeat(count=count, body=body):
                self.begin(f"REPEAT R={count} r(", level)
                self._rest(body, "r)", level)
            case While(condition=condition, body=body):
                self.begin(f"WHILE {_dsl_condition(condition)} w(", level)
                self._rest(body, "w)", level)
            case If(condition=condition, body=body):
                self.begin(f"IF {_dsl_condition(condition)} i(", level)
                self._rest(body, "i)", level)
            case IfElse(condition=condition, body=body, orelse=orelse):
                self.begin(f"IFELSE {_dsl_condition(condition)} i(", level)
                self._rest(body, "i) ELSE e(", level)
                self._rest(orelse, "e)", level)

    def _rest(self, block: tuple[Statement, ...], closer: str, level: int) -> None:
        self.block(block, level + 1)
        self.line(closer, level)


def _dsl_condition(condition: Condition) -> str:
    # The text of an IF around it, without DEF run m( IF … i( i) m).
    return " ".join(list(tokens(Program((If(condition, ()),))))[4:-3])
