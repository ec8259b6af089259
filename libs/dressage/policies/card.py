"""`card.json` of a policy bundle: the description of the weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from dressage.errors import InvalidArgument

FORMAT = "dressage.policy/1"
KINDS = ("mlp", "linear", "table", "random_features", "projected_mlp")
"""Kinds of policy; `dressage.policies.kinds` has a module for each."""
_MAY_OVERFLOW = ("return_mean", "return_var")
"""Statistics that may be infinite or undefined: the square of a return may exceed double precision."""

HIDDEN_LAYERS = ("mlp", "projected_mlp")
"""Kinds with hidden layers of chosen sizes."""
OPTIONAL_BIAS = ("linear", "random_features")
"""Kinds whose output layer may have no bias."""


@dataclass(frozen=True)
class PolicyCard:
    """Describes a policy: environment, normalisation of the input, bounds of the output, provenance."""

    environment: str
    """Environment id, such as ``HalfCheetah-v5``."""
    action_low: tuple[float, ...]
    """Lower bound of each action component; empty for discrete actions."""
    action_high: tuple[float, ...]
    kind: str = "mlp"
    """One of `KINDS`."""
    observation_size: int = 0
    """Components of an observation; 0 for a table."""
    observation_count: int | None = None
    """Table: number of discrete observations. None for the other kinds."""
    hidden_sizes: tuple[int, ...] = ()
    """MLP and projected MLP: units of each hidden layer. Empty for the other kinds."""
    latent_sizes: tuple[int, ...] = ()
    """Projected MLP: latents of each layer. Empty for the other kinds."""
    features: int = 0
    """Random features: their number. 0 for the other kinds."""
    bias: bool = True
    """Linear and random features: whether the output layer has a bias."""
    actor_only: bool = False
    """MLP: the tensors that only training uses (value network, standard deviations) are absent."""
    action_kind: Literal["box", "discrete"] = "box"
    num_actions: int | None = None
    """Number of discrete actions; None for a box."""
    squash: bool = False
    """Whether a box action is squashed by tanh and scaled to its bounds (SAC); otherwise it is clipped (PPO)."""
    activation: Literal["tanh", "relu"] = "tanh"
    """Activation of the hidden layers or of the random features."""
    normalize_observation: bool = True
    epsilon: float = 1e-8
    """Added to the variance before the square root."""
    clip: float = 10.0
    """Bound of normalised observations."""
    environment_options: dict[str, Any] = field(default_factory=dict)
    """Options that differ from those of the stock environment."""
    statistics: dict[str, float] = field(default_factory=dict)
    """Sample counts and return statistics (obs_count, return_mean, return_var, return_count, discount), for export."""
    provenance: dict[str, Any] = field(default_factory=dict)
    """Intent, reward hash, seed, environment steps, hyperparameters, versions."""

    def __post_init__(self) -> None:
        low, high = self.action_low, self.action_high
        _check("environment", self.environment, isinstance(self.environment, str) and self.environment != "")
        _check("kind", self.kind, self.kind in KINDS)
        self._check_network()
        _check("action.kind", self.action_kind, self.action_kind in ("box", "discrete"))
        if self.action_kind == "discrete":
            _check("action.num_actions", self.num_actions, is_count(self.num_actions) and self.num_actions != 1)
            _check("action.low, action.high", (low, high), not low and not high and not self.squash)
        else:
            bounds = len(low) == len(high) > 0 and all(
                is_number(a) and is_number(b) and a < b for a, b in zip(low, high, strict=True)
            )
            _check("action.low, action.high", (low, high), bounds)
            _check("action.num_actions", self.num_actions, self.num_actions is None)
            _check("action.squash", self.squash, isinstance(self.squash, bool))
        _check("normalization.observation", self.normalize_observation, isinstance(self.normalize_observation, bool))
        _check("normalization.epsilon", self.epsilon, is_number(self.epsilon) and self.epsilon > 0)
        _check("normalization.clip", self.clip, is_number(self.clip) and self.clip > 0)
        for name, value in self.statistics.items():
            if not is_number(value) and not (name in _MAY_OVERFLOW and isinstance(value, float)):
                field_ = f"card.json normalization.statistics {name}"
                raise InvalidArgument(field=field_, value=value, expected="a finite number")

    def _check_network(self) -> None:
        """Check the entries that depend on the kind."""
        table, size, count = self.kind == "table", self.observation_size, self.observation_count
        _check("observation_size", size, size == 0 if table else is_count(size))
        _check("observation_count", count, is_count(count) if table else count is None)
        _check("network.activation", self.activation, self.activation in ("tanh", "relu"))
        hidden = len(self.hidden_sizes) > 0 if self.kind in HIDDEN_LAYERS else len(self.hidden_sizes) == 0
        _check("network.hidden_sizes", self.hidden_sizes, hidden and all(map(is_count, self.hidden_sizes)))
        layers = len(self.hidden_sizes) + 1 if self.kind == "projected_mlp" else 0
        latents = len(self.latent_sizes) == layers and all(map(is_count, self.latent_sizes))
        _check("network.latent_sizes", self.latent_sizes, latents)
        features = is_count(self.features) if self.kind == "random_features" else self.features == 0
        _check("network.features", self.features, features)
        _check("network.bias", self.bias, isinstance(self.bias, bool) and (self.bias or self.kind in OPTIONAL_BIAS))
        _check("network.actor_only", self.actor_only, isinstance(self.actor_only, bool))
        if self.actor_only and self.kind != "mlp":
            raise InvalidArgument(field="card.json network.actor_only", value=True, expected=f"false for {self.kind}")
        if table and (self.normalize_observation or self.squash):
            name = "normalization.observation" if self.normalize_observation else "action.squash"
            raise InvalidArgument(field=f"card.json {name}", value=True, expected="false for a table")

    @property
    def action_size(self) -> int:
        """Number of action components; 1 for discrete actions."""
        return len(self.action_low) or 1

    @property
    def outputs(self) -> int:
        """Number of outputs of the policy network: means or logits."""
        return self.num_actions or len(self.action_low)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object of ``card.json``."""
        return {
            "format": FORMAT,
            "environment": {"id": self.environment, "options": self.environment_options},
            "kind": self.kind,
            **self._observation(),
            "action": self._action(),
            "network": self._network(),
            "normalization": {
                "observation": self.normalize_observation,
                "epsilon": self.epsilon,
                "clip": self.clip,
                "statistics": self.statistics,
            },
            "provenance": self.provenance,
        }

    def _observation(self) -> dict[str, Any]:
        if self.kind == "table":
            return {"observation_count": self.observation_count}
        return {"observation_size": self.observation_size}

    def _network(self) -> dict[str, Any]:
        """Return the entries of the kind."""
        if self.kind == "mlp":
            sizes = list(self.hidden_sizes)
            return {"hidden_sizes": sizes, "activation": self.activation, "actor_only": self.actor_only}
        if self.kind == "random_features":
            return {"features": self.features, "activation": self.activation, "bias": self.bias}
        if self.kind == "projected_mlp":
            latent = list(self.latent_sizes)
            return {"hidden_sizes": list(self.hidden_sizes), "latent_sizes": latent, "activation": self.activation}
        return {"bias": self.bias} if self.kind == "linear" else {}

    def _action(self) -> dict[str, Any]:
        if self.action_kind == "discrete":
            return {"kind": "discrete", "num_actions": self.num_actions}
        bounds = {"low": list(self.action_low), "high": list(self.action_high)}
        return {"kind": "box", **bounds, "squash": self.squash}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> PolicyCard:
        """Return the card of a `to_dict` object.

        :raises InvalidArgument: for a missing or invalid entry, or another format.
        """
        seen = values.get("format") if isinstance(values, Mapping) else None
        if seen != FORMAT:
            raise InvalidArgument(field="card.json format", value=seen, expected=FORMAT)
        try:
            normalization, action, network = values["normalization"], values["action"], values["network"]
            policy, kind = values["kind"], action["kind"]
            return cls(
                kind=policy,
                environment=values["environment"]["id"],
                environment_options=dict(values["environment"].get("options", {})),
                observation_size=0 if policy == "table" else values["observation_size"],
                observation_count=values["observation_count"] if policy == "table" else None,
                action_low=tuple(map(float, action["low"])) if kind == "box" else (),
                action_high=tuple(map(float, action["high"])) if kind == "box" else (),
                hidden_sizes=tuple(network["hidden_sizes"]) if policy in HIDDEN_LAYERS else (),
                latent_sizes=tuple(network["latent_sizes"]) if policy == "projected_mlp" else (),
                features=network["features"] if policy == "random_features" else 0,
                bias=network["bias"] if policy in OPTIONAL_BIAS else True,
                actor_only=network["actor_only"] if policy == "mlp" else False,
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


def is_count(value: object) -> bool:
    """Return whether the value is an integer of at least 1."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def is_number(value: object) -> bool:
    """Return whether the value is a finite number in double precision; an integer of JSON may exceed it."""
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False


def _check(name: str, value: object, ok: bool) -> None:
    expected = {
        "environment": "an environment id",
        "kind": f"one of {', '.join(KINDS)}",
        "observation_size": "a positive integer; none for a table",
        "observation_count": "a positive integer for a table, none for other kinds",
        "network.hidden_sizes": "one or more positive integers for an mlp or a projected_mlp, none for other kinds",
        "network.latent_sizes": "a positive integer for each layer of a projected_mlp, none for other kinds",
        "network.features": "a positive integer for random_features, none for other kinds",
        "network.bias": "true or false; true for an mlp, a projected_mlp and a table",
        "network.actor_only": "true or false",
        "action.kind": "box or discrete",
        "action.num_actions": "at least 2 for discrete actions, none for a box",
        "action.squash": "true or false",
        "action.low, action.high": "finite bounds, low < high, of equal number; none for discrete actions",
        "network.activation": "tanh or relu",
        "normalization.observation": "true or false",
    }.get(name, "a positive number" if name.startswith("normalization") else "positive integers")
    if not ok:
        raise InvalidArgument(field=f"card.json {name}", value=value, expected=expected)
