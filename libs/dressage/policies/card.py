"""`card.json` of a policy bundle: what the weights alone do not say."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dressage.errors import InvalidArgument

FORMAT = "dressage.policy/1"


@dataclass(frozen=True)
class PolicyCard:
    """Describes a policy: where it acts, how its input is normalised, how its output is bounded, where it came from."""

    environment: str
    """Environment id, such as ``HalfCheetah-v5``."""
    observation_size: int
    action_low: tuple[float, ...]
    """Lower bound of each action component; actions are clipped to the bounds."""
    action_high: tuple[float, ...]
    hidden_sizes: tuple[int, ...]
    """Units of each tanh layer."""
    normalize_observation: bool = True
    epsilon: float = 1e-8
    """Added to the variance before its root is taken."""
    clip: float = 10.0
    """Bound of normalised observations."""
    environment_options: dict[str, Any] = field(default_factory=dict)
    """Options that differ from the stock environment's."""
    statistics: dict[str, float] = field(default_factory=dict)
    """Sample counts and return statistics (obs_count, return_mean, return_var, return_count, discount), for export."""
    provenance: dict[str, Any] = field(default_factory=dict)
    """Intent, reward hash, seed, environment steps, hyperparameters, versions."""

    def __post_init__(self) -> None:
        low, high = self.action_low, self.action_high
        _check("environment", self.environment, isinstance(self.environment, str) and self.environment != "")
        _check("observation_size", self.observation_size, _is_count(self.observation_size))
        bounds = len(low) == len(high) > 0 and all(
            _is_number(a) and _is_number(b) and a < b for a, b in zip(low, high, strict=True)
        )
        _check("action.low, action.high", (low, high), bounds)
        _check("hidden_sizes", self.hidden_sizes, len(self.hidden_sizes) > 0 and all(map(_is_count, self.hidden_sizes)))
        _check("normalization.observation", self.normalize_observation, isinstance(self.normalize_observation, bool))
        _check("normalization.epsilon", self.epsilon, _is_number(self.epsilon) and self.epsilon > 0)
        _check("normalization.clip", self.clip, _is_number(self.clip) and self.clip > 0)

    @property
    def action_size(self) -> int:
        """Number of action components."""
        return len(self.action_low)

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of ``card.json``."""
        return {
            "format": FORMAT,
            "environment": {"id": self.environment, "options": self.environment_options},
            "observation_size": self.observation_size,
            "action": {"low": list(self.action_low), "high": list(self.action_high)},
            "network": {"hidden_sizes": list(self.hidden_sizes), "activation": "tanh"},
            "normalization": {
                "observation": self.normalize_observation,
                "epsilon": self.epsilon,
                "clip": self.clip,
                "statistics": self.statistics,
            },
            "provenance": self.provenance,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> PolicyCard:
        """The inverse of `to_dict`.

        :raises InvalidArgument: for a missing or impossible entry, or another format.
        """
        seen = values.get("format") if isinstance(values, Mapping) else None
        if seen != FORMAT:
            raise InvalidArgument(field="card.json format", value=seen, expected=FORMAT)
        try:
            normalization = values["normalization"]
            return cls(
                environment=values["environment"]["id"],
                environment_options=dict(values["environment"].get("options", {})),
                observation_size=values["observation_size"],
                action_low=tuple(map(float, values["action"]["low"])),
                action_high=tuple(map(float, values["action"]["high"])),
                hidden_sizes=tuple(values["network"]["hidden_sizes"]),
                normalize_observation=normalization["observation"],
                epsilon=normalization["epsilon"],
                clip=normalization["clip"],
                statistics=dict(normalization.get("statistics", {})),
                provenance=dict(values.get("provenance", {})),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidArgument(
                f"card.json: an entry is missing or malformed ({error!r})", field="card.json"
            ) from error


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _check(name: str, value: object, ok: bool) -> None:
    expected = {
        "environment": "an environment id",
        "action.low, action.high": "finite bounds, low < high, of equal number",
        "normalization.observation": "true or false",
    }.get(name, "a positive number" if name.startswith("normalization") else "positive integers")
    if not ok:
        raise InvalidArgument(field=f"card.json {name}", value=value, expected=expected)
