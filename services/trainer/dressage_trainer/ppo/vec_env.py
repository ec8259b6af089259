"""The environments of all members as collection steps them: with the trained reward, normalised observations and episode
statistics, as SB3's VecEnv is under VecNormalize and VecMonitor.

Rewards are normalised at the rollout's end, all at once. Observations are normalised step by step, since the next action
depends on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dressage_trainer.ppo.episodes import EpisodeStatistics
from dressage_trainer.ppo.faults import Faults
from dressage_trainer.ppo.interfaces import Arrays, Environment, Reward
from dressage_trainer.ppo.normalizer import ObservationNormalizer


class VecStep(NamedTuple):
    """One step of M members x n environments."""

    observation: np.ndarray
    """(M, n, D) normalised, after the automatic reset of ended episodes."""
    reward: np.ndarray
    """(M, n) trained reward, not normalised."""
    done: np.ndarray
    """(M, n) True where the episode ended."""
    timeouts: np.ndarray
    """(rows,) numbers of the environments, 0 .. M * n - 1, whose episode was truncated."""
    final_observation: np.ndarray
    """(rows, D) normalised, of these before their reset."""
    raw_final_observation: np.ndarray
    """(rows, D) ``final_observation`` as the environment returned it."""


class VecEnv:
    """M members x n environments in one batch; the rows of member m are [m * n, (m + 1) * n).

    A member with a reward or observation that is not finite, or too large for the statistics, stops (see `Faults`).

    :param clips: bound of the normalised observations of each member, above 0.
    :param seeds: one for each row of the environment.
    :param dtype: of normalised observations.
    """

    def __init__(
        self,
        environment: Environment,
        reward: Reward,
        *,
        clips: Sequence[float],
        seeds: Sequence[int],
        normalize_observation: bool,
        dtype: Any,
    ) -> None:
        self.environment, self.reward = environment, reward
        self.members = members = len(clips)
        self.num_envs = environment.num_envs // members
        self.faults = Faults(members, self.num_envs)
        self.episodes = EpisodeStatistics(members, self.num_envs)
        self.observations = ObservationNormalizer(
            np.array(clips, np.float64), environment.observation_size, enabled=normalize_observation, dtype=dtype
        )
        self.steps = 0
        """Environment steps that each member has taken."""
        self.raw_observation: np.ndarray | None = None
        """(M, n, D) that stand now, not normalised; zeros for stopped members. None before `reset`."""
        self._seeds = list(seeds)

    def reset(self) -> np.ndarray:
        """Reset every environment; (M, n, D) normalised observations."""
        observation = self._by_member(self.environment.reset(self._seeds))
        self.reward.reset(None)
        return self._normalize(observation)

    def step(self, actions: np.ndarray) -> VecStep:
        """Step every environment with actions as the environment takes them."""
        step = self.environment.step(actions)
        output = self.reward(step.state, actions, step.next_state)
        self.steps += self.num_envs
        done = step.terminated | step.truncated
        observation, reward = self.faults.check_step(
            self._by_member(step.observation), self._by_member(output.total), output, step=self.steps
        )
        ended = bool(done.any())
        self.episodes.add(reward, output.terms, step.reward, done if ended else None)
        if ended:
            self.reward.reset(done)
        normalised = self._normalize(observation)
        timeouts = np.flatnonzero(step.truncated & ~step.terminated)
        final = raw_final = step.final_observation[timeouts]
        if len(timeouts):
            final = self.observations.normalize_rows(timeouts // self.num_envs, final)
        return VecStep(normalised, reward, self._by_member(done), timeouts, final, raw_final)

    def _normalize(self, observation: np.ndarray) -> np.ndarray:
        """Take (M, n, D) observations into the statistics and normalise them."""
        self.raw_observation = observation
        stopped = self.faults.mask() if self.faults.stops else None
        overflowed = self.observations.update(observation, skip=stopped)
        if overflowed is not None:
            observation = self.faults.check_observation_statistics(overflowed, observation, step=self.steps)
        return self.observations.normalize(observation)

    def _by_member(self, array: np.ndarray) -> np.ndarray:
        return array.reshape(self.members, self.num_envs, *array.shape[1:])

    def snapshot(self) -> Arrays:
        """Everything that the next steps depend on."""
        parts = {
            "observations": self.observations.moments.arrays(),
            "episodes": self.episodes.arrays(),
            "environment": self.environment.snapshot(),
            "reward": self.reward.snapshot(),
        }
        flat = {f"{part}/{name}": np.array(v) for part, arrays in parts.items() for name, v in arrays.items()}
        return {**flat, "steps_done": np.array(self.steps)}

    def restore(self, arrays: Arrays) -> None:
        """Restore the state, the inverse of `snapshot`."""

        def part(prefix: str) -> Arrays:
            start = f"{prefix}/"
            return {name[len(start) :]: value for name, value in arrays.items() if name.startswith(start)}

        self.observations.load(part("observations"))
        self.episodes.load(part("episodes"))
        self.environment.restore(part("environment"))
        self.reward.restore(part("reward"))
        self.steps = int(arrays["steps_done"])
