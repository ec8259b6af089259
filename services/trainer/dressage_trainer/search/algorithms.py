"""Algorithms that propose parameter vectors: draw candidates, save and restore the state.

The candidates must not depend on how many are drawn at a time: then a search has the same result on any number of cores.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from dressage.errors import InvalidArgument
from dressage.policies.kinds import PolicySpec, kind
from numpy.typing import NDArray

ALGORITHMS = ("random",)

Array = NDArray[Any]


class Algorithm(Protocol):
    """A source of candidates."""

    def ask(self, count: int) -> Array:
        """Return the next candidates, (count, n) float64, each number exact in single precision, as policies store it."""

    def state(self) -> dict[str, Any]:
        """Return what the next candidates depend on, as JSON values."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state.

        :raises InvalidArgument: if it is not one of this algorithm.
        """


class RandomSearch:
    """Independent normal draws; uniform ones if each number is one of a few choices (a table of discrete actions).

    :param seed: equal seeds give equal candidates.
    :param scale: standard deviation of the draws.
    """

    def __init__(self, spec: PolicySpec, *, seed: int, scale: float) -> None:
        chosen = kind(spec.kind)
        self._size, self._choices = chosen.size(spec), chosen.choices(spec)
        self._scale = scale
        self._rng = np.random.Generator(np.random.PCG64(seed))

    def ask(self, count: int) -> Array:
        shape = (count, self._size)
        if self._choices:
            return self._rng.integers(self._choices, size=shape).astype(np.float64)
        return (self._rng.standard_normal(shape) * self._scale).astype(np.float32).astype(np.float64)

    def state(self) -> dict[str, Any]:
        return dict(self._rng.bit_generator.state)

    def restore(self, state: Mapping[str, Any]) -> None:
        try:
            self._rng.bit_generator.state = dict(state)
        except (TypeError, ValueError, KeyError, OverflowError) as error:
            raise InvalidArgument(f"the state of the random numbers is damaged: {error}", field="state") from error


def algorithm(name: str, spec: PolicySpec, *, seed: int, scale: float) -> Algorithm:
    """Return the algorithm of that name.

    :raises InvalidArgument: for an unknown one.
    """
    if name not in ALGORITHMS:
        raise InvalidArgument(field="algorithm", value=name, expected=f"one of {', '.join(ALGORITHMS)}")
    return RandomSearch(spec, seed=seed, scale=scale)
