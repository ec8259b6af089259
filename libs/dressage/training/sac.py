"""SAC's hyperparameters: those of `Hyperparameters` that it has, its defaults, and the rule for its minibatches.

SAC starts from its own defaults in every environment, which are Stable-Baselines3's except for 8 environments at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dressage.errors import InvalidArgument
from dressage.training.hyperparameters import Hyperparameters, minibatch_size

HYPERPARAMETERS = ("learning_rate", "num_envs", "minibatch_size", "discount", "entropy_coef", "hidden_sizes")
"""The API's hyperparameters that SAC has; the others are PPO's alone."""

USED = frozenset({*HYPERPARAMETERS, "normalize_observation"})
"""Names of all hyperparameters that SAC trains with."""

REPLAY_SIZE = 1_000_000
"""Upper bound of the replay buffer's transitions, from which minibatches are drawn."""

DEFAULTS = Hyperparameters(
    learning_rate=3e-4,
    num_envs=8,
    num_steps=128,
    minibatch_size=256,
    hidden_sizes=(256, 256),
    normalize_observation=False,
    normalize_reward=False,
)


def complete(given: Mapping[str, Any]) -> Hyperparameters:
    """Return SAC's hyperparameters: its defaults, overridden.

    :raises InvalidArgument: for a hyperparameter that SAC does not have, or an impossible value.
    """
    for name, value in given.items():
        if name not in USED:
            expected = f"no value, or the algorithm 'ppo': sac has {', '.join(HYPERPARAMETERS)}"
            raise InvalidArgument(field=name, value=value, expected=expected)
    size = minibatch_size(given, base=DEFAULTS)
    if size > REPLAY_SIZE:
        expected = f"at most {REPLAY_SIZE}, the size of the replay buffer"
        raise InvalidArgument(field="minibatch_size", value=size, expected=expected)
    whole = Hyperparameters.from_dict({**given, "minibatch_size": 1}, base=DEFAULTS)
    return replace(whole, minibatch_size=size)
