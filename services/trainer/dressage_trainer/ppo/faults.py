"""Members that cannot continue: detection of values that are not finite, or too large for the running statistics.

A member that has stopped keeps its rows in every array, since shapes are fixed. They are zeros, and no update uses them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dressage_trainer.ppo.interfaces import RewardOutput


@dataclass(frozen=True)
class Stop:
    """Why a member was stopped."""

    member: int
    step: int
    """The member's environment steps at that moment."""
    cause: str
    """"reward", "observation" or "gradient"."""
    term: str
    """The reward term that was not finite; "total" if only the sum was not, or the reward raised; else empty."""
    message: str


class Faults:
    """The stopped members of a group, and the checks that stop them.

    :param members: M.
    :param num_envs: n, environments of each member.
    """

    def __init__(self, members: int, num_envs: int) -> None:
        self.stops: dict[int, Stop] = {}
        self._members, self._num_envs = members, num_envs

    def mask(self) -> np.ndarray:
        """(M,) True where stopped."""
        mask = np.zeros(self._members, bool)
        mask[list(self.stops)] = True
        return mask

    def check_step(
        self, observation: np.ndarray, reward: np.ndarray, output: RewardOutput, *, step: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Stop members whose reward or observation is not finite.

        :param observation: (M, n, D) after the step.
        :param reward: (M, n), the totals of ``output``.
        :param step: environment steps of each member by now.
        :returns: observation and reward, with zeros for all stopped members.
        """
        # A sum is finite only if all its parts are (or opposite infinities, whose sum is NaN).
        if not self.stops and math.isfinite(reward.sum()) and math.isfinite(observation.sum()):
            return observation, reward
        bad_reward = ~np.isfinite(reward).all(1)
        bad_observation = ~np.isfinite(observation).all((1, 2))
        for member in np.flatnonzero(bad_reward | bad_observation):
            if bad_reward[member]:
                self._stop_by_output(int(member), output, step)
            else:
                self.stop_by_observation(int(member), step=step)
        stopped = self.mask()
        return np.where(stopped[:, None, None], 0.0, observation), np.where(stopped[:, None], 0.0, reward)

    def _stop_by_output(self, member: int, output: RewardOutput, step: int) -> None:
        rows = slice(member * self._num_envs, (member + 1) * self._num_envs)
        raised = [text for row, text in output.raised.items() if row // self._num_envs == member]
        broken = [name for name, value in output.terms.items() if not np.isfinite(value[rows]).all()]
        why = f": the reward raised {raised[0]}" if raised else ""
        self.stop_by_reward(member, broken[0] if broken and not raised else "total", step=step, why=why)

    def stop_by_reward(self, member: int, term: str, *, step: int, why: str = "") -> None:
        """Stop a member whose reward was not finite.

        :param term: the first term that was not; ``total`` if only the sum was not.
        """
        text = f"reward term {term!r} was not finite at environment step {step}{why}"
        self._stop(member, "reward", step, text, term=term)

    def stop_by_observation(self, member: int, *, step: int) -> None:
        """Stop a member with an observation that was not finite."""
        self._stop(member, "observation", step, f"observation was not finite at environment step {step}")

    def stop_by_observation_statistics(self, member: int, largest: float, *, step: int) -> None:
        """Stop a member whose running variance of observations overflowed.

        :param largest: the largest |observation| at that step.
        """
        text = f"the running variance of observations overflowed at environment step {step}"
        self._stop(member, "observation", step, f"{text}, where the largest |observation| was {largest:.3g}")

    def check_observation_statistics(self, overflowed: np.ndarray, observation: np.ndarray, *, step: int) -> np.ndarray:
        """Stop members whose running variance of observations overflowed.

        :param overflowed: (M,) True for these members.
        :param observation: (M, n, D) that the statistics were updated with.
        :returns: the observations, with zeros for these members.
        """
        for member in np.flatnonzero(overflowed):
            self.stop_by_observation_statistics(int(member), np.abs(observation[member]).max(), step=step)
        zeroed: np.ndarray = np.where(overflowed[:, None, None], 0.0, observation)
        return zeroed

    def check_return_statistics(self, overflows: Mapping[int, int], rewards: np.ndarray, *, step: int) -> None:
        """Stop members whose running variance of returns overflowed.

        :param overflows: the step within the rollout at which it did, by member.
        :param rewards: (M, T, n) of the rollout, not normalised.
        :param step: environment steps of each member at the rollout's end.
        """
        for member, index in overflows.items():
            at = step - (rewards.shape[1] - 1 - index) * self._num_envs
            largest = np.abs(rewards[member, : index + 1]).max()
            text = f"the running variance of returns overflowed at environment step {at}"
            self._stop(member, "reward", at, f"{text}; the largest |reward| of the rollout till then was {largest:.3g}")

    def check_gradients(self, not_finite: np.ndarray, *, update: int, step: int) -> None:
        """Stop members whose gradient was not finite in an update.

        :param not_finite: (M,) True for these members.
        """
        for member in np.flatnonzero(not_finite):
            text = f"the gradient was not finite in update {update} (environment step {step})"
            self._stop(int(member), "gradient", step, text)

    def _stop(self, member: int, cause: str, step: int, message: str, *, term: str = "") -> None:
        stop = Stop(member=member, step=step, cause=cause, term=term, message=message)
        # The first cause stays, since later ones follow from it.
        self.stops.setdefault(member, stop)
