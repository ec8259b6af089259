"""Algorithms of Stable-Baselines3 that serve as baselines of a search, and the form of their policies.

A baseline's policy is a policy of kind ``mlp``: the same actions from the same numbers. Sizes and activations are the
library's defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Baseline:
    """One algorithm.

    :param package: module that has it.
    :param class_name: its class there.
    :param hidden: units of each hidden layer.
    :param activation: of the hidden layers.
    :param squash: whether continuous actions are squashed by tanh.
    :param discrete: whether it supports discrete actions.
    :param continuous: whether it supports continuous actions.
    """

    package: str
    class_name: str
    hidden: tuple[int, ...] = (64, 64)
    activation: str = "tanh"
    squash: bool = False
    discrete: bool = True
    continuous: bool = True


_SB3, _CONTRIB = "stable_baselines3", "sb3_contrib"

BASELINES: Mapping[str, Baseline] = MappingProxyType(
    {
        "sb3_dqn": Baseline(_SB3, "DQN", activation="relu", continuous=False),
        "sb3_a2c": Baseline(_SB3, "A2C"),
        "sb3_ppo": Baseline(_SB3, "PPO"),
        "sb3_trpo": Baseline(_CONTRIB, "TRPO"),
        "sb3_ddpg": Baseline(_SB3, "DDPG", (400, 300), "relu", squash=True, discrete=False),
        "sb3_td3": Baseline(_SB3, "TD3", (400, 300), "relu", squash=True, discrete=False),
        "sb3_sac": Baseline(_SB3, "SAC", (256, 256), "relu", squash=True, discrete=False),
    }
)
"""By the name of the search algorithm."""


def training_episodes(*, budget: int, episodes: int) -> int:
    """Return the training episodes of a baseline with the episodes of a search.

    An evaluation follows each training episode, and both count: 4,000 episodes with evaluations of 20 leave 190.

    :param budget: candidates of the search.
    :param episodes: episodes of a candidate, and of an evaluation.
    """
    return budget * episodes // (episodes + 1)
