"""Steps many episodes together by compiled rules, for policies that are not compiled."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dressage.envs.options import EnvOptions
from dressage.envs.rules import Rules
from dressage.episodes.compiled import draws_of_all
from dressage.episodes.compiling import kernel
from dressage.episodes.table import compiled_rules

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


@functools.cache
def lockstep_kernels(rules: Rules) -> tuple[Any, Any]:
    """Return ``start(draws, states, observations)`` for all rows and ``step(draws, states, rows, lengths, choices,
    boxes, observations, rewards, ends)`` for some, both by an environment's rules."""
    begin, observe, advance = rules.start, rules.observe, rules.step
    at_start, per_step = rules.draws_at_start, rules.draws_per_step

    @kernel(f"start_{rules.name}")
    def start(draws: Any, states: Any, observations: Any) -> None:
        for row in range(len(states)):
            begin(states[row], draws[row])
            observe(states[row], observations[row])

    @kernel(f"step_{rules.name}")
    def step(
        draws: Any,
        states: Any,
        rows: Any,
        lengths: Any,
        choices: Any,
        boxes: Any,
        observations: Any,
        rewards: Any,
        ends: Any,
    ) -> None:
        for index in range(len(rows)):
            row = rows[index]
            first = at_start + per_step * lengths[index]
            rewards[index], ends[index] = advance(states[row], choices[index], boxes[index], draws[row], first)
            observe(states[row], observations[row])

    return start, step
