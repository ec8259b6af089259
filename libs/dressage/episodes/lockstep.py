"""Steps many episodes together by compiled rules, for policies that are not compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dressage.envs.options import EnvOptions
from dressage.episodes.compiled import draws_of_all
from dressage.episodes.kernels import compiled_rules, lockstep_kernels

Array = NDArray[Any]


class CompiledSimulation:
    """N episodes that step together. Each row equals an episode of the reference environment step by step.

    :param env_id: an environment that `dressage.episodes.compiled.is_exact` confirms.
    :raises InvalidArgument: for a bad option.
    """

    def __init__(self, env_id: str, options: EnvOptions) -> None:
        card, rules = options.check(env_id), compiled_rules(env_id)
        self._rules, self._limit = rules, options.max_episode_steps or card.max_episode_steps
        self._start, self._step = lockstep_kernels(rules)
        self._draws = self._states = self._observations = np.zeros((0, 0))
        self._lengths = np.zeros(0, np.int64)

    def reset(self, seeds: Sequence[int]) -> Array:
        """Start an episode in each of the first N rows; return observations (N, D) float64."""
        count = len(seeds)
        self._draws = draws_of_all(self._rules, seeds, self._limit)
        self._states = np.zeros((count, self._rules.state_size))
        self._observations = np.zeros((count, self._rules.observation_size))
        self._lengths = np.zeros(count, np.int64)
        self._start(self._draws, self._states, self._observations)
        return self._observations.copy()

    def step(self, rows: Array, actions: Array) -> tuple[Array, Array, Array, Array]:
        """Step some rows.

        :param rows: (n,) their indices.
        :param actions: (n,) int64, or (n, A) float32.
        :returns: observations (n, D), rewards (n,), ends (n,) bool, time limit included, and successes (n,), all -1.
        """
        count, box = len(rows), self._rules.action_size > 0
        choices = np.zeros(count, np.int64) if box else np.ascontiguousarray(actions, np.int64)
        boxes = np.ascontiguousarray(actions, np.float32) if box else np.zeros((count, 1), np.float32)
        rewards, ends = np.zeros(count), np.zeros(count, bool)
        rows = np.ascontiguousarray(rows, np.int64)
        self._step(
            self._draws, self._states, rows, self._lengths[rows], choices, boxes, self._observations, rewards, ends
        )
        self._lengths[rows] += 1
        ends |= self._lengths[rows] >= self._limit
        return self._observations[rows], rewards, ends, np.full(count, -1, np.int8)

    def close(self) -> None:
        """Do nothing; there are no resources."""
