"""Random programs for property tests.

They are drawn from a seed with `random`, since Hypothesis takes seconds to draw as many nested values.
"""

from __future__ import annotations

from random import Random

from dressage.programs.syntax import (
    KAREL,
    MINIGRID,
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
)  # fmt: skip
from hypothesis import strategies as st

SEEDS = st.integers(0, 2**32)


def condition(random: Random, language: Language, depth: int) -> Condition:
    kind = random.choice(["test", "test", "constant", *(["not", "and", "or"] if depth else [])])
    if kind == "test":
        name = random.choice(list(language.tests))
        return Test(name, random.choice(language.tests[name] or ("",)))
    if kind == "constant":
        return Constant(random.random() < 0.5)
    left, right = condition(random, language, depth - 1), condition(random, language, depth - 1)
    return Not(left) if kind == "not" else And(left, right) if kind == "and" else Or(left, right)


def statement(random: Random, language: Language, depth: int, largest_count: int) -> Statement:
    kinds: list[type[Statement]] = [Action, Action, *([Repeat, While, If, IfElse] if depth else [])]
    kind = random.choice(kinds)
    if kind is Action:
        return Action(random.choice(language.actions))
    body, orelse = (block(random, language, depth - 1, largest_count) for _ in range(2))
    if kind is Repeat:
        return Repeat(random.choice([0, 1, 2, random.randint(0, largest_count)]), body)
    test = condition(random, language, 3)
    if kind is IfElse:
        return IfElse(test, body, orelse)
    return While(test, body) if kind is While else If(test, body)


def block(random: Random, language: Language, depth: int, largest_count: int) -> tuple[Statement, ...]:
    return tuple(statement(random, language, depth, largest_count) for _ in range(random.randint(1, 3)))


def program(seed: int, language: Language, *, largest_count: int = 10_000) -> Program:
    random = Random(seed)
    return Program(block(random, language, random.randint(0, 5), largest_count))


def languages_and_programs(*, largest_count: int = 10_000) -> st.SearchStrategy[tuple[Language, Program]]:
    return st.tuples(st.sampled_from([KAREL, MINIGRID]), SEEDS).map(
        lambda pair: (pair[0], program(pair[1], pair[0], largest_count=largest_count))
    )
