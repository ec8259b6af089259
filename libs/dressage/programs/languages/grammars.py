"""Checks a grammar: its weights are within their limits, and random programs end.

The probability that a draw stays within the tokens is computed exactly, by convolution over the numbers of tokens, so that no
grammar is tried that hardly ever returns a program.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from dressage.errors import InvalidArgument
from dressage.programs.engine import trees
from dressage.programs.engine.grammar import STATEMENTS, Grammar

MAX_WEIGHT = 1_000_000
_LIMITS = {"counts": (1, 20), "max_height": (1, 8), "max_statements": (1, 12), "max_tokens": (5, 60)}
_LEAST_ACCEPTED = 1e-3
_WHILE, _IF, _IFELSE, _REPEAT = 5, 5, 8, 4
"""Tokens of the statements themselves, as in `dressage.programs.engine.sampling.node_tokens`."""
_NOT = 3
_PROGRAM = 4
"""Tokens around the statements of a program."""

Distribution = NDArray[np.float64]


def check_grammar(grammar: Grammar, field: str = "productions") -> None:
    """Check that random programs of a grammar can be drawn.

    :param field: how errors name the grammar.
    :raises InvalidArgument: naming the part of the grammar that is wrong.
    """
    tests = len(trees.tests_of(grammar.language))
    groups = {
        "statements": (grammar.statements, STATEMENTS),
        "actions": (grammar.actions, len(grammar.language.actions)),
        "tests": (grammar.tests, tests),
        "negation": (grammar.negation, 2),
    }
    for name, (weights, count) in groups.items():
        whole = all(isinstance(w, int) and not isinstance(w, bool) and 0 <= w <= MAX_WEIGHT for w in weights)
        if len(weights) != count or not whole:
            expected = f"{count} probabilities, none negative"
            raise InvalidArgument(field=f"{field}.{name}", value=weights, expected=expected)
        if name != "negation" and weights and not any(weights):
            raise InvalidArgument(field=f"{field}.{name}", problem="all are 0", expected="a positive probability")
    for name, (low, high) in _LIMITS.items():
        value = getattr(grammar, name)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise InvalidArgument(field=f"{field}.{name}", value=value, expected=f"a whole number, {low} to {high}")
    if not grammar.statements[STATEMENTS - 1]:
        raise InvalidArgument(
            field=f"{field}.statements",
            problem="random programs cannot end, because the probability of action is 0",
            expected="a positive probability of action",
        )
    if (any(grammar.statements[1:4]) and not tests) or not any(grammar.negation):
        expected = "tests, or the probability 0 of WHILE, IF and IFELSE"
        raise InvalidArgument(field=f"{field}.statements", problem="conditions cannot be drawn", expected=expected)
    accepted = acceptance(grammar)
    if accepted < _LEAST_ACCEPTED:
        raise InvalidArgument(
            field=f"{field}.statements",
            problem=f"random programs hardly ever end within max_tokens {grammar.max_tokens}",
            value=f"{accepted:.2g} of all draws",
            expected=f"at least {_LEAST_ACCEPTED:g}",
            remedy="Raise max_tokens or the probability of action, or lower that of sequence and WHILE.",
        )


def acceptance(grammar: Grammar) -> float:
    """Return the probability that a drawn program is within the limit of tokens."""
    most = grammar.max_tokens - _PROGRAM
    lengths = np.zeros(most + 1)
    for weight, test in zip(grammar.tests, trees.tests_of(grammar.language), strict=True):
        tokens = 4 if test.argument else 1
        if tokens <= most:
            lengths[tokens] += weight
    plain = lengths / max(1, sum(grammar.tests))
    negated = grammar.negation[1] / sum(grammar.negation)
    condition = (1 - negated) * plain + negated * _shift(plain, _NOT)
    action = np.zeros(most + 1)
    action[1] = 1.0

    @functools.cache
    def statement(depth: int, position: int, left: bool) -> tuple[float, ...]:
        """Distribution of the tokens of a statement in this place; what is missing from 1 exceeds the limit."""
        weights = list(grammar.statements)
        if left or position >= grammar.max_statements:
            weights[0] = 0
        if depth >= grammar.max_height:
            weights[1:5] = (0, 0, 0, 0)
        total = action * weights[5]
        if weights[0]:
            rest = np.array(statement(depth, position + 1, False))
            total = total + weights[0] * _sum(np.array(statement(depth, position, True)), rest)
        if any(weights[1:5]):
            body = np.array(statement(depth + 1, 1, False))
            total = total + weights[1] * _shift(_sum(condition, body), _WHILE)
            total = total + weights[2] * _shift(_sum(condition, body), _IF)
            total = total + weights[3] * _shift(_sum(plain, _sum(body, body)), _IFELSE)
            total = total + weights[4] * _shift(body, _REPEAT)
        return tuple((total / sum(weights)).tolist())

    return float(sum(statement(1, 1, False)))


def _sum(first: Distribution, second: Distribution) -> Distribution:
    """Return the distribution of a sum, up to the same limit."""
    return np.convolve(first, second)[: len(first)]


def _shift(distribution: Distribution, tokens: int) -> Distribution:
    return np.concatenate([np.zeros(tokens), distribution])[: len(distribution)]
