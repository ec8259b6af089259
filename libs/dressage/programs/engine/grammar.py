"""Probabilities and limits of random programs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dressage.programs.engine import trees
from dressage.programs.syntax import KAREL, MINIGRID, Language

STATEMENTS = 6
"""Productions of a statement, in the order of `Grammar.statements`."""


@dataclass(frozen=True)
class Grammar:
    """Weights of the productions, as integers of a common scale, and the limits of drawn programs."""

    language: Language
    statements: tuple[int, int, int, int, int, int]
    """Weights of sequence, WHILE, IF, IFELSE, REPEAT, action."""
    actions: tuple[int, ...]
    tests: tuple[int, ...]
    """Weights of the tests in the order of `trees.tests_of`."""
    negation: tuple[int, int]
    """Weights of a plain test and of ``not``."""
    counts: int = 20
    """REPEAT draws its count from 0 to ``counts`` - 1."""
    max_height: int = 4
    """Nested control statements, the program itself counted as one."""
    max_statements: int = 6
    """Statements of a block."""
    max_tokens: int = 45
    """Tokens of the whole text."""

    def tables(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return what the compiled sampler reads: weights of statements, actions and tests, and the scalars.

        The scalars are the two weights of `negation`, counts, height, statements, tokens, then the tokens of each test.
        """
        tests = trees.tests_of(self.language)
        scalars = (*self.negation, self.counts, self.max_height, self.max_statements, self.max_tokens)
        lengths = [4 if test.argument else 1 for test in tests]
        return (
            np.array(self.statements, np.int64),
            np.array(self.actions, np.int64),
            np.array(self.tests, np.int64),
            np.array((*scalars, *lengths), np.int64),
        )


KAREL_GRAMMAR = Grammar(
    language=KAREL,
    statements=(50, 15, 8, 4, 3, 20),
    actions=(50, 15, 15, 10, 10),
    tests=(50, 15, 15, 10, 10),
    negation=(9, 1),
)
MINIGRID_GRAMMAR = Grammar(
    language=MINIGRID,
    statements=(50, 15, 8, 4, 3, 20),
    actions=(15, 15, 50, 8, 8, 4),
    tests=(2, 2, 2, 2, 2, 2, 2, 2),
    negation=(1, 1),
)
