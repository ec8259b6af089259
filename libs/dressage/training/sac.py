"""SAC's hyperparameters, their rules and defaults, and the sizes that follow from them.

SAC's defaults are Stable-Baselines3's except for 8 environments at once. The presets of environments change some of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dressage.errors import InvalidArgument
from dressage.training.hyperparameters import Hyperparameters, ShapeKey, number

_SHARED = (
    "learning_rate",
    "num_envs",
    "minibatch_size",
    "discount",
    "entropy_coef",
    "observation_inputs",
    "hidden_sizes",
)
OWN = ("replay_size", "warmup_steps", "updates_per_step", "target_rate")
"""Hyperparameters that only SAC has."""

HYPERPARAMETERS = (*_SHARED, *OWN)
"""The API's hyperparameters that SAC has; the others are PPO's alone."""

USED = frozenset({*HYPERPARAMETERS, "normalize_observation"})
"""Names of all hyperparameters that SAC trains with."""

REPORT_STEPS = 1_000
"""Environment steps of a member between two reports, approximately; it learns after every step."""


@dataclass(frozen=True)
class SacHyperparameters(Hyperparameters):
    """What one member of SAC trains with: those in `USED`; of the others that it inherits, it uses none."""

    replay_size: int = number(1_000_000)
    """Upper bound of the replay buffer's transitions, from which minibatches are drawn."""
    warmup_steps: int = number(100)
    """Environment steps with uniformly random actions, before the first update."""
    updates_per_step: float = number(1.0)
    """Gradient steps for each environment step. After each step of all environments the next whole number of them is done."""
    target_rate: float = number(0.005)
    """Share of the critics' weights that their targets take over after each gradient step, tau."""
    tune_entropy: bool = True
    """Tune the entropy coefficient, instead of using the given one."""

    @property
    def shape_key(self) -> ShapeKey:
        """Members with equal keys share one compiled update, and turn by turn the same steps."""
        schedule = (self.num_envs, self.minibatch_size, self.warmup_steps, self.updates_per_step, self.replay_size)
        return (*schedule, self.observation_inputs, self.hidden_sizes, self.normalize_observation)

    def to_dict(self) -> dict[str, Any]:
        """Return those that SAC uses as JSON values; a tuned entropy coefficient is ``auto``."""
        values = {name: value for name, value in super().to_dict().items() if name in USED}
        return {**values, "entropy_coef": "auto"} if self.tune_entropy else values

    def _check_sizes(self) -> None:
        if self.minibatch_size > self.replay_size:
            expected = f"at most {self.replay_size}, the size of the replay buffer"
            raise InvalidArgument(field="minibatch_size", value=self.minibatch_size, expected=expected)

    @property
    def report_steps(self) -> int:
        """Environment steps between two reports."""
        return max(1, REPORT_STEPS // self.num_envs) * self.num_envs

    @property
    def gradient_steps(self) -> int:
        """Gradient steps after each step of all environments."""
        return max(1, round(self.updates_per_step * self.num_envs))

    def buffer_size(self, steps: int) -> int:
        """Return the size of the replay buffer: all transitions of a run, up to a limit.

        Training continues to the end of the report that reaches the last step.

        :param steps: environment steps of the run.
        """
        return min(self.replay_size, steps + self.report_steps)


DEFAULTS = SacHyperparameters(
    learning_rate=3e-4,
    num_envs=8,
    minibatch_size=256,
    hidden_sizes=(256, 256),
    normalize_observation=False,
    normalize_reward=False,
)


def complete(values: Mapping[str, Any], *, base: SacHyperparameters = DEFAULTS) -> SacHyperparameters:
    """Return SAC's hyperparameters: those of ``base``, overridden.

    :raises InvalidArgument: for a hyperparameter that SAC does not have, or an impossible value.
    """
    for name, value in values.items():
        if name not in USED:
            expected = f"no value, or the algorithm 'ppo': sac has {', '.join(HYPERPARAMETERS)}"
            raise InvalidArgument(field=name, value=value, expected=expected)
    tuned = base.tune_entropy and "entropy_coef" not in values
    return SacHyperparameters.from_dict({**values, "tune_entropy": tuned}, base=base)


def transition_bytes(observation_size: int, action_size: int) -> int:
    """Return the size of a transition in a replay buffer: two observations, an action and at most three numbers."""
    return 4 * (2 * observation_size + action_size + 3)
