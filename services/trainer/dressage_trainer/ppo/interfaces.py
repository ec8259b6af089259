"""The interfaces of what PPO trains on: a batched environment and a batched reward.

They are structural types, so that PPO imports neither a simulator nor the code that runs generated rewards.
`dressage.envs.BatchEnv` and the learner's reward adapter satisfy them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

Arrays = dict[str, np.ndarray]


class Step(Protocol):
    """One step of N environments (see dressage.envs.batch.BatchStep)."""

    observation: np.ndarray
    """(N, D) after the automatic reset of ended episodes."""
    final_observation: np.ndarray
    """(N, D) before it."""
    reward: np.ndarray
    """(N,) the environment's own reward."""
    terminated: np.ndarray
    truncated: np.ndarray
    state: Any
    next_state: Any


class Environment(Protocol):
    """N environments that step together; the rows of a member are contiguous.

    One with discrete actions also has ``num_actions``, an ``action_size`` of 1, and takes (N,) integers.
    """

    num_envs: int
    observation_size: int
    action_size: int
    action_low: np.ndarray
    action_high: np.ndarray

    def reset(self, seeds: Sequence[int]) -> np.ndarray:
        """Reset every environment; (N, D) observations."""

    def step(self, actions: np.ndarray) -> Step:
        """Step all environments with (N, A) actions."""

    def snapshot(self) -> Arrays:
        """Copy everything that the next steps depend on."""

    def restore(self, arrays: Arrays) -> None:
        """The inverse of `snapshot`, to the bit."""


class RewardOutput(Protocol):
    """(N,) totals, and the terms that they are the sums of."""

    @property
    def total(self) -> np.ndarray:
        """(N,) sums of the terms."""

    @property
    def terms(self) -> Mapping[str, np.ndarray]:
        """(N,) each, by name."""

    @property
    def raised(self) -> Mapping[int, str]:
        """The exception by row, for rows that are NaN because the reward's arithmetic raised."""


class Reward(Protocol):
    """The reward that members are trained on, for N rows at once."""

    def __call__(self, state: Any, action: np.ndarray, next_state: Any) -> RewardOutput:
        """Rewards of one step; ``action`` is the environment's input, clipped to its bounds."""

    def reset(self, mask: np.ndarray | None = None) -> None:
        """Forget the episode memory of the marked rows (None: of all)."""

    def snapshot(self) -> Arrays:
        """The episode memory."""

    def restore(self, arrays: Arrays) -> None:
        """The inverse of `snapshot`."""
