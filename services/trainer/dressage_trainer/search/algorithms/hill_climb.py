"""A (1+λ) hill climb: the best candidate so far is mutated λ times; the best mutation replaces it unless it is worse.

The first generation is λ independent draws. A mutation adds normal noise to every real number; in a table of discrete
actions it gives one entry another action. A mutation of equal score replaces the incumbent, so that the climb crosses
plateaus, where most candidates of a sparse reward lie.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from dressage.errors import InvalidArgument
from dressage.policies.kinds import PolicySpec

from dressage_trainer.search.algorithms.base import Array, Generational, Space
from dressage_trainer.search.algorithms.random import restore_generator

OFFSPRING = 10
"""λ."""


class HillClimb(Generational):
    """Climbs from generation to generation.

    :param seed: equal seeds give equal candidates.
    :param scale: standard deviation of the first generation.
    :param limit: largest absolute value of a real number; 0: none.
    :param step_size: standard deviation of a mutation; 0: ``scale``.
    """

    def __init__(
        self, spec: PolicySpec, *, seed: int, scale: float, limit: float = 0.0, step_size: float = 0.0
    ) -> None:
        super().__init__()
        self._space, self._scale, self._step = Space.of(spec, limit=limit), scale, step_size or scale
        self._rng = np.random.Generator(np.random.PCG64(seed))
        self._begun: dict[str, Any] = dict(self._rng.bit_generator.state)
        self._incumbent: Array | None = None
        self._best = -np.inf

    def _draw(self) -> Array:
        self._begun = dict(self._rng.bit_generator.state)
        if self._incumbent is None:
            return self._space.draw(self._rng, OFFSPRING, self._scale)
        mutations = np.repeat(self._incumbent[None], OFFSPRING, axis=0)
        if not self._space.choices:
            return self._space.to_policy_precision(mutations + self._rng.standard_normal(mutations.shape) * self._step)
        rows, entries = np.arange(OFFSPRING), self._rng.integers(self._space.size, size=OFFSPRING)
        # Adding 1 to choices - 1, modulo the choices, gives each of the other actions with equal probability.
        shift = self._rng.integers(1, self._space.choices, size=OFFSPRING)
        mutations[rows, entries] = (mutations[rows, entries] + shift) % self._space.choices
        return mutations

    def _learn(self, scores: list[float]) -> None:
        # A score that is not a number is no improvement.
        ranked = np.nan_to_num(np.asarray(scores), nan=-np.inf)
        first = int(np.argmax(ranked))
        if ranked[first] >= self._best:
            self._incumbent, self._best = self._generation[first].copy(), float(ranked[first])

    def state(self) -> dict[str, Any]:
        whole = len(self._scores) == len(self._generation)
        return {
            # Before the draws of a generation that is not complete: they are drawn again.
            "random": dict(self._rng.bit_generator.state) if whole else self._begun,
            "incumbent": None if self._incumbent is None else self._incumbent.tolist(),
            "best": self._best,
            "scores": [] if whole else list(self._scores),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        try:
            incumbent = None if state["incumbent"] is None else np.array(state["incumbent"], np.float64)
            if incumbent is not None and incumbent.shape != (self._space.size,):
                raise ValueError(f"an incumbent of shape {incumbent.shape}")
            best, scores, generator = float(state["best"]), [float(one) for one in state["scores"]], state["random"]
            restore_generator(self._rng, generator)
            self._incumbent, self._best = incumbent, best
            self._generation, self._scores, self._position = np.zeros((0, 0)), [], 0
            if scores:
                self._begin(scores)
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidArgument(f"the state of the hill climb is damaged: {error!r}", field="state") from error
