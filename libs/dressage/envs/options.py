"""Options of an environment: checked, and completed from its card."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dressage.envs.cards import EnvironmentCard, load_card
from dressage.errors import InvalidArgument

_MAX_STEPS = 1_000_000
_MAX_NOISE = 10.0


@dataclass(frozen=True)
class EnvOptions:
    """Deviations from the stock environment; None keeps its default. The card lists those that an environment has.

    :param max_episode_steps: time limit in steps, 1 to 1,000,000.
    :param terminate_when_unhealthy: False continues an episode where the stock one would end.
    :param reset_noise_scale: size of the noise on the first state, 0 to 10.
    :raises InvalidArgument: for a value out of range or of the wrong type.
    """

    max_episode_steps: int | None = None
    terminate_when_unhealthy: bool | None = None
    reset_noise_scale: float | None = None

    def __post_init__(self) -> None:
        steps, noise, ends = self.max_episode_steps, self.reset_noise_scale, self.terminate_when_unhealthy
        if steps is not None and not (_is_int(steps) and 1 <= steps <= _MAX_STEPS):
            _refuse("max_episode_steps", steps, f"an integer from 1 to {_MAX_STEPS}")
        if ends is not None and not isinstance(ends, bool):
            _refuse("terminate_when_unhealthy", ends, "true or false")
        number = isinstance(noise, int | float) and not isinstance(noise, bool)
        if noise is not None and not (number and math.isfinite(noise) and 0 <= noise <= _MAX_NOISE):
            _refuse("reset_noise_scale", noise, f"a number from 0 to {_MAX_NOISE:g}")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> EnvOptions:
        """Build options by name.

        :raises InvalidArgument: for a name that is no option, or a bad value.
        """
        names = tuple(cls.__dataclass_fields__)
        for name, value in values.items():
            if name not in names:
                _refuse(str(name)[:60], value, f"no such option; the options are {', '.join(names)}")
        return cls(**dict(values))

    def overrides(self) -> dict[str, int | float | bool]:
        """Return the options that are not None, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def check(self, env_id: str) -> EnvironmentCard:
        """Return the card of the environment, after checking that it has every option that is given.

        :raises NotFound: for an unknown environment.
        :raises InvalidArgument: naming the option that this environment does not have.
        """
        card = load_card(env_id)
        for name, value in self.overrides().items():
            if name not in card.options:
                _refuse(name, value, f"an option of {env_id}, which has {', '.join(card.options)}")
        return card


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _refuse(name: str, value: object, expected: str) -> None:
    raise InvalidArgument(field=f"options.{name}", value=value, expected=expected)
