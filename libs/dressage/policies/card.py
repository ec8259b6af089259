"""`card.json` of a policy bundle: what the weights alone do not say."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from dressage.errors import InvalidArgument

FORMAT = "dressage.policy/1"
_MAY_OVERFLOW = ("return_mean", "return_var")
"""Statistics that a trainer may find infinite or undefined: the square of a return may be beyond double precision."""


@dataclass(frozen=True)
class PolicyCard:
    """Describes a policy: where it acts, how its input is normalised, how its output is bounded, where it came from."""

    environment: str
    """Environment id, such as ``HalfCheetah-v5``."""
    observation_size: int
    action_low: tuple[float, ...]
    """Lower bound of each action component; empty for numbered actions."""
    action_high: tuple[float, ...]
    hidden_sizes: tuple[int, ...]
    """Units of each hidden layer."""
    action_kind: Literal["box", "discrete"] = "box"
    num_actions: int | None = None
    """How many numbered actions there are (discrete); None for a box."""
    squash: bool = False
    """How a box action is brought into its bounds: tanh, then scaled to them (SAC), or clipped to them (PPO)."""
    activation: Literal["tanh", "relu"] = "tanh"
    """Of the hidden layers."""
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
        _check("action.kind", self.action_kind, self.action_kind in ("box", "discrete"))
        if self.action_kind == "discrete":
            _check("action.num_actions", self.num_actions, _is_count(self.num_actions) and self.num_actions != 1)
            _check("action.low, action.high", (low, high), not low and not high and not self.squash)
        else:
            bounds = len(low) == len(high) > 0 and all(
                _is_number(a) and _is_number(b) and a < b for a, b in zip(low, high, strict=True)
            )
            _check("action.low, action.high", (low, high), bounds)
            _check("action.num_actions", self.num_actions, self.num_actions is None)
            _check("action.squash", self.squash, isinstance(self.squash, bool))
        _check("network.activation", self.activation, self.activation in ("tanh", "relu"))
        _check("hidden_sizes", self.hidden_sizes, len(self.hidden_sizes) > 0 and all(map(_is_count, self.hidden_sizes)))
        _check("normalization.observation", self.normalize_observation, isinstance(self.normalize_observation, bool))
        _check("normalization.epsilon", self.epsilon, _is_number(self.epsilon) and self.epsilon > 0)
        _check("normalization.clip", self.clip, _is_number(self.clip) and self.clip > 0)
        for name, value in self.statistics.items():
            if not _is_number(value) and not (name in _MAY_OVERFLOW and isinstance(value, float)):
                field_ = f"card.json normalization.statistics {name}"
                raise InvalidArgument(field=field_, value=value, expected="a finite number")

    @property
    def action_size(self) -> int:
        """Number of action components; 1 for numbered actions."""
        return len(self.action_low) or 1

    @property
    def outputs(self) -> int:
        """Numbers that the policy network puts out: means, or logits."""
        return self.num_actions or len(self.action_low)

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of ``card.json``."""
        return {
            "format": FORMAT,
            "environment": {"id": self.environment, "options": self.environment_options},
            "observation_size": self.observation_size,
            "action": self._action(),
            "network": {"hidden_sizes": list(self.hidden_sizes), "activation": self.activation},
            "normalization": {
                "observation": self.normalize_observation,
                "epsilon": self.epsilon,
                "clip": self.clip,
                "statistics": self.statistics,
            },
            "provenance": self.provenance,
        }

    def _action(self) -> dict[str, Any]:
        if self.action_kind == "discrete":
            return {"kind": "discrete", "num_actions": self.num_actions}
        bounds = {"low": list(self.action_low), "high": list(self.action_high)}
        return {"kind": "box", **bounds, "squash": self.squash}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> PolicyCard:
        """The inverse of `to_dict`.

        :raises InvalidArgument: for a missing or impossible entry, or another format.
        """
        seen = values.get("format") if isinstance(values, Mapping) else None
        if seen != FORMAT:
            raise InvalidArgument(field="card.json format", value=seen, expected=FORMAT)
        try:
            normalization, action, network = values["normalization"], values["action"], values["network"]
            # A card without a kind is of a box: older ones know nothing else.
            kind = action.get("kind", "box")
            return cls(
                environment=values["environment"]["id"],
                environment_options=dict(values["environment"].get("options", {})),
                observation_size=values["observation_size"],
                action_low=tuple(map(float, action["low"])) if kind == "box" else (),
                action_high=tuple(map(float, action["high"])) if kind == "box" else (),
                hidden_sizes=tuple(network["hidden_sizes"]),
                action_kind=kind,
                num_actions=action.get("num_actions"),
                squash=action.get("squash", False),
                activation=network.get("activation", "tanh"),
                normalize_observation=normalization["observation"],
                epsilon=normalization["epsilon"],
                clip=normalization["clip"],
                statistics=dict(normalization.get("statistics", {})),
                provenance=dict(values.get("provenance", {})),
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise InvalidArgument(
                f"card.json: an entry is missing or malformed ({error!r})", field="card.json"
            ) from error


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_number(value: object) -> bool:
    """Whether it is finite and not beyond double precision, as a whole number of JSON may be."""
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False


def _check(name: str, value: object, ok: bool) -> None:
    expected = {
        "environment": "an environment id",
        "action.kind": "box or discrete",
        "action.num_actions": "at least 2 for numbered actions, none for a box",
        "action.squash": "true or false",
        "action.low, action.high": "finite bounds, low < high, of equal number; none for numbered actions",
        "network.activation": "tanh or relu",
        "normalization.observation": "true or false",
    }.get(name, "a positive number" if name.startswith("normalization") else "positive integers")
    if not ok:
        raise InvalidArgument(field=f"card.json {name}", value=value, expected=expected)
