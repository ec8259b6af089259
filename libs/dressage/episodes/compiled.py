"""Plays whole seeded episodes of many candidates in compiled code."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dressage.envs import random_state
from dressage.envs.options import EnvOptions
from dressage.envs.rules import Rules, rules_of
from dressage.episodes.kernels import compiled_rules, play_kernel
from dressage.episodes.networks import Networks
from dressage.episodes.outcomes import Outcomes
from dressage.policies.kinds import PolicySpec

Array = NDArray[Any]
_MAX_DRAWS = 1 << 22
"""Random numbers of the episodes that are played at once, at most (32 MiB)."""
_MAX_ROWS = 1 << 22
_PROBES = 4096


class CompiledEpisodes:
    """The `EpisodeEngine` of environments that have rules.

    It plays one episode after another, each from its start to its end, within one thread and without the interpreter's lock.

    :param env_id: an environment that `is_exact` confirms.
    :raises InvalidArgument: for a bad option.
    """

    def __init__(self, env_id: str, spec: PolicySpec, seeds: Sequence[int], options: EnvOptions | None = None) -> None:
        options = options or EnvOptions()
        card, rules = options.check(env_id), compiled_rules(env_id)
        self._rules, self._spec, self._seeds = rules, spec, tuple(seeds)
        self._limit = options.max_episode_steps or card.max_episode_steps
        self._play = play_kernel(rules)
        self.part = max(1, _MAX_ROWS // max(1, len(seeds) * self._limit))
        self._draws: Array | None = None

    def play(self, parameters: Array) -> Outcomes:
        parameters = np.asarray(parameters, np.float64)
        networks = Networks.of(self._spec, parameters)
        shape = (len(parameters), len(self._seeds))
        returns, lengths = np.zeros(shape), np.zeros(shape, np.int64)
        for first, draws in self._parts():
            part = slice(first, first + len(draws))
            own, steps = np.zeros((shape[0], len(draws))), np.zeros((shape[0], len(draws)), np.int64)
            self._play(
                networks.weights,
                networks.sizes,
                networks.relu,
                networks.normalization,
                networks.clip,
                networks.bounds,
                draws,
                self._limit,
                own,
                steps,
            )
            returns[:, part], lengths[:, part] = own, steps
        return Outcomes(returns, lengths).check(self._rules.action_size)

    def _parts(self) -> Iterator[tuple[int, Array]]:
        """Yield the random numbers of the episodes, as many episodes at a time as memory permits."""
        if self._draws is not None:
            yield 0, self._draws
            return
        size = len(draws_of(self._rules, self._seeds[0], self._limit))
        count = max(1, _MAX_DRAWS // max(1, size))
        for first in range(0, len(self._seeds), count):
            draws = draws_of_all(self._rules, self._seeds[first : first + count], self._limit)
            if count >= len(self._seeds):
                self._draws = draws
            yield first, draws


def draws_of(rules: Rules, seed: int, limit: int) -> Array:
    """Return the random numbers of a seed's episode, (K,) float64."""
    return np.ascontiguousarray(rules.draws(random_state.generator(seed), limit), np.float64)


def draws_of_all(rules: Rules, seeds: Sequence[int], limit: int) -> Array:
    """Return `draws_of` each seed, (N, K) float64."""
    return np.stack([rules.draws(stream, limit) for stream in random_state.generators(seeds)]).astype(
        np.float64, copy=False
    )


def is_exact(env_id: str) -> bool:
    """Return whether `CompiledEpisodes` plays this environment exactly as Gymnasium does, on this machine."""
    rules = rules_of(env_id)
    return rules is not None and all(_same_function(name) for name in rules.math_functions)


@functools.cache
def _same_function(name: str) -> bool:
    """Return whether NumPy's function gives the C library's values here: on some processors NumPy has its own code."""
    angles = np.random.Generator(np.random.PCG64(0)).uniform(-0.5, 0.5, _PROBES)
    function = getattr(math, name)
    ours = [function(angle) for angle in angles.tolist()]
    return bool((getattr(np, name)(angles) == ours).all())
