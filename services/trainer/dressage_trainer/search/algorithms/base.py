"""What all algorithms share: their interface, the space of a policy's parameters, and generations of candidates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from dressage.policies.kinds import PolicySpec, kind
from numpy.typing import NDArray

Array = NDArray[Any]


class Algorithm(Protocol):
    """A source of candidates."""

    def ask(self, count: int) -> Array:
        """Return the next candidates, (n, size) float64, each number exact in single precision, as policies store it.

        :param count: n at most. An algorithm whose next candidates depend on scores returns fewer, at least one.
        """

    def tell(self, scores: Sequence[float]) -> None:
        """Take the scores of the candidates that `ask` returned last, in their order."""

    def state(self) -> dict[str, Any]:
        """Return what the next candidates depend on, as JSON values. Candidates without a score are asked for again."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state.

        :raises InvalidArgument: if it is not one of this algorithm.
        """


@dataclass(frozen=True)
class Space:
    """The parameters of a policy.

    :param size: their number.
    :param choices: values of each, integers from 0; 0 for real numbers.
    :param limit: largest absolute value of a real one; 0: none.
    """

    size: int
    choices: int
    limit: float = 0.0

    @classmethod
    def of(cls, spec: PolicySpec, *, limit: float = 0.0) -> Space:
        """Return the space of a policy with this spec."""
        chosen = kind(spec.kind)
        return cls(chosen.size(spec), chosen.choices(spec), limit)

    def draw(self, rng: np.random.Generator, count: int, scale: float) -> Array:
        """Return independent candidates, (count, size): normal, or uniform choices.

        :param scale: standard deviation of real numbers.
        """
        shape = (count, self.size)
        if self.choices:
            return rng.integers(self.choices, size=shape).astype(np.float64)
        return self.to_policy_precision(rng.standard_normal(shape) * scale)

    def to_policy_precision(self, values: Array) -> Array:
        """Return real numbers as policies store them: within the limit, in single precision."""
        single = np.asarray(values).astype(np.float32)
        if self.limit:
            most = np.float32(self.limit)
            if float(most) > self.limit:
                most = np.nextafter(most, np.float32(0))
            single = np.clip(single, -most, most)
        return single.astype(np.float64)


class Generational(ABC):
    """An algorithm that draws a generation at once and learns from it once all its scores are known.

    `ask` hands a generation out in parts, so candidates do not depend on the size of a block.
    """

    def __init__(self) -> None:
        self._generation: Array = np.zeros((0, 0))
        self._position = 0
        self._scores: list[float] = []

    @abstractmethod
    def _draw(self) -> Array:
        """Return the candidates of the next generation."""

    @abstractmethod
    def _learn(self, scores: list[float]) -> None:
        """Take the scores of the whole generation."""

    def ask(self, count: int) -> Array:
        if self._position == len(self._generation):
            self._begin([])
        candidates = self._generation[self._position : self._position + count]
        self._position += len(candidates)
        return candidates

    def tell(self, scores: Sequence[float]) -> None:
        self._scores.extend(map(float, scores))
        if len(self._scores) == len(self._generation):
            self._learn(self._scores)

    def _begin(self, scores: list[float]) -> None:
        """Draw a generation of which the first scores are known."""
        self._generation, self._scores, self._position = self._draw(), scores, len(scores)
        if len(scores) > len(self._generation):
            raise ValueError(f"{len(scores)} scores of a generation of {len(self._generation)}")
