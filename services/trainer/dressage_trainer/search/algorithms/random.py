"""Independent draws: the control of all other searches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from dressage.errors import InvalidArgument
from dressage.policies.kinds import PolicySpec

from dressage_trainer.search.algorithms.base import Array, Space


class RandomSearch:
    """Independent normal draws; uniform ones if each number is one of a few choices (a table of discrete actions).

    :param seed: equal seeds give equal candidates.
    :param scale: standard deviation of the draws.
    :param limit: largest absolute value of a real number; 0: none.
    """

    def __init__(self, spec: PolicySpec, *, seed: int, scale: float, limit: float = 0.0) -> None:
        self._space, self._scale = Space.of(spec, limit=limit), scale
        self._rng = np.random.Generator(np.random.PCG64(seed))

    def ask(self, count: int) -> Array:
        return self._space.draw(self._rng, count, self._scale)

    def tell(self, scores: Sequence[float]) -> None:
        """Nothing to learn."""

    def state(self) -> dict[str, Any]:
        return dict(self._rng.bit_generator.state)

    def restore(self, state: Mapping[str, Any]) -> None:
        restore_generator(self._rng, state)


def restore_generator(rng: np.random.Generator, state: Mapping[str, Any]) -> None:
    """Set the state of a generator of random numbers.

    :raises InvalidArgument: if it is damaged.
    """
    try:
        rng.bit_generator.state = dict(state)
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        raise InvalidArgument(f"the state of the random numbers is damaged: {error}", field="state") from error
