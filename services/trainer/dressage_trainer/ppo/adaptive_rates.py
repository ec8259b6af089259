"""Learning rates that follow the size of the updates: a rate falls where updates change a policy by much, and rises where they
hardly change it, whatever the length of the training.

The rule is RSL-RL's (Rudin et al., 2022, "Learning to Walk in Minutes Using Massively Parallel Deep Reinforcement Learning"),
once an update instead of once a minibatch: beyond twice the desired KL divergence the rate is divided by 1.5, below half of it
multiplied by 1.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dressage_trainer.ppo.members import MemberSpec

_FACTOR = 1.5
_LOWEST, _HIGHEST = 1 / 50, 10.0


def adapted(rate: Any, kl: Any, *, desired: Any, first: Any) -> np.ndarray:
    """Return the learning rate after an update, within 1/50 and 10 times the first one.

    :param kl: mean approximate KL divergence of the update.
    :param desired: above 0.
    """
    changed = np.where(kl > 2 * desired, rate / _FACTOR, np.where(kl < desired / 2, rate * _FACTOR, rate))
    bounded: np.ndarray = np.clip(changed, _LOWEST * first, _HIGHEST * first)
    return bounded


class AdaptiveRates:
    """The learning rates of a group's members.

    :ivar now: (M,) float64.
    """

    def __init__(self, members: Sequence[MemberSpec]) -> None:
        self.now = np.array([member.hyperparameters.learning_rate for member in members])
        self._first = self.now.copy()
        self._desired = np.array([member.hyperparameters.desired_kl for member in members])

    def adapt(self, kl: np.ndarray, *, stopped: np.ndarray) -> None:
        """Adapt the rates after an update; a member without a desired divergence keeps its rate.

        :param kl: (M,) mean approximate KL divergences over the update's minibatches.
        :param stopped: (M,) True for members that train no more.
        """
        rates = adapted(self.now, kl, desired=self._desired, first=self._first)
        self.now = np.where((self._desired > 0) & ~stopped, rates, self.now)
