"""Programs as flat arrays of nodes in preorder, which sampling, mutation and compilation work on."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dressage.errors import InvalidArgument
from dressage.programs.engine import codes
from dressage.programs.syntax import (
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
)

Nodes = NDArray[np.int32]


def tests_of(language: Language) -> tuple[Test, ...]:
    """Return all tests of a language with their arguments, in the order of their numbers."""
    return tuple(
        Test(name, argument) for name, arguments in language.tests.items() for argument in (arguments or ("",))
    )


def flatten(program: Program, language: Language) -> Nodes:
    """Return a program's nodes: int32[n], in preorder.

    :raises InvalidArgument: for an empty block, a name that the language does not have, or more nodes than fit.
    """
    actions, tests = _numbers(language.actions, tests_of(language))
    nodes: list[int] = []

    def block(statements: tuple[Statement, ...]) -> None:
        if not statements:
            raise InvalidArgument(
                field="program", problem="a block has no statement", expected="at least one statement"
            )
        for position, statement in enumerate(statements):
            if position < len(statements) - 1:
                nodes.append(codes.SEQUENCE)
            add(statement)

    def add(statement: Statement) -> None:
        match statement:
            case Action(name):
                nodes.append(_number(actions, name))
            case Repeat(count, body):
                nodes.extend((codes.REPEAT, codes.COUNT + count))
                block(body)
            case While(test, body) | If(test, body):
                nodes.append(codes.WHILE if isinstance(statement, While) else codes.IF)
                condition(test)
                block(body)
            case IfElse(test, body, orelse):
                nodes.append(codes.IFELSE)
                condition(test)
                block(body)
                block(orelse)

    def condition(test: Condition) -> None:
        match test:
            case Test():
                nodes.append(_number(tests, test))
            case Not(inner):
                nodes.append(codes.NOT)
                condition(inner)
            case And(left, right) | Or(left, right):
                nodes.append(codes.AND if isinstance(test, And) else codes.OR)
                condition(left)
                condition(right)
            case Constant(value):
                nodes.append(codes.TRUE if value else codes.FALSE)

    block(program.body)
    if len(nodes) > codes.MAX_NODES:
        raise InvalidArgument(
            field="program", problem="too large", value=len(nodes), expected=f"at most {codes.MAX_NODES} nodes"
        )
    return np.array(nodes, np.int32)


def unflatten(nodes: Nodes, language: Language) -> Program:
    """Return the program of flat nodes, the inverse of `flatten`."""
    tests = tests_of(language)
    rest = iter(nodes.tolist())

    def block(code: int) -> tuple[Statement, ...]:
        statements: list[Statement] = []
        while code == codes.SEQUENCE:
            statements.append(statement(next(rest)))
            code = next(rest)
        return (*statements, statement(code))

    def statement(code: int) -> Statement:
        if code == codes.REPEAT:
            return Repeat(next(rest) - codes.COUNT, block(next(rest)))
        if code in (codes.WHILE, codes.IF):
            kind = While if code == codes.WHILE else If
            return kind(condition(next(rest)), block(next(rest)))
        if code == codes.IFELSE:
            return IfElse(condition(next(rest)), block(next(rest)), block(next(rest)))
        return Action(language.actions[code - codes.ACTION])

    def condition(code: int) -> Condition:
        if code == codes.NOT:
            return Not(condition(next(rest)))
        if code in (codes.AND, codes.OR):
            kind = And if code == codes.AND else Or
            return kind(condition(next(rest)), condition(next(rest)))
        if code in (codes.TRUE, codes.FALSE):
            return Constant(code == codes.TRUE)
        return tests[code - codes.TEST]

    return Program(block(next(rest)))


@functools.cache
def _numbers(actions: tuple[str, ...], tests: tuple[Test, ...]) -> tuple[dict[str, int], dict[Test, int]]:
    return (
        {name: codes.ACTION + index for index, name in enumerate(actions)},
        {test: codes.TEST + index for index, test in enumerate(tests)},
    )


def _number(numbers: dict[Any, int], key: Any) -> int:
    code = numbers.get(key)
    if code is None:
        raise InvalidArgument(
            field="program", problem="not in the language", value=key, expected="a name of the language"
        )
    return code
