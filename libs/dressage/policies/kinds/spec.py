"""The shape of a policy whose parameters a search method proposes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from typing import Any, Protocol

from dressage.errors import InvalidArgument
from dressage.policies.card import KINDS, OPTIONAL_BIAS, is_count, is_number

HIDDEN = {"mlp": (64, 64), "projected_mlp": (4,)}
"""Default hidden layers, by kind."""
LATENT = 5
"""Default latents of each layer of a projected MLP, unless the layer has fewer weights."""
FEATURES = 8
"""Default number of random features."""


class ActionBounds(Protocol):
    """One component of an action."""

    @property
    def low(self) -> float:
        """Lower bound."""

    @property
    def high(self) -> float:
        """Upper bound."""


class EnvironmentSpaces(Protocol):
    """The part of an `EnvironmentCard` that determines the shape of a policy."""

    @property
    def observation_size(self) -> int:
        """Components of a flat observation; for a discrete one, the length of its one-hot form."""

    @property
    def num_actions(self) -> int:
        """Number of discrete actions; 0 for continuous ones."""

    @property
    def action(self) -> Sequence[ActionBounds]:
        """Components of a continuous action."""


@dataclass(frozen=True)
class PolicySpec:
    """Kind, spaces and sizes of a policy.

    :param kind: ``mlp``, ``linear``, ``table``, ``random_features`` or ``projected_mlp``.
    :param observation_size: components of an observation; 0 for a table.
    :param observation_count: table: number of discrete observations; 0 for other kinds.
    :param action_size: components of a continuous action; 0 for discrete ones.
    :param action_count: number of discrete actions, at least 2; 0 for continuous ones.
    :param action_low: lower bound of each component.
    :param action_high: upper bound of each component.
    :param bias: linear and random features: whether the output layer has a bias.
    :param hidden: MLP and projected MLP: units of each hidden layer; empty for other kinds.
    :param features: random features: their number; 0 for other kinds.
    :param seed: random features and projected MLP: seed of the fixed weights.
    :param latent: projected MLP: latents of each layer, at most as many as the layer has weights; empty for other kinds.
    :param activation: MLP: ``tanh`` or ``relu``, of the hidden layers; ``tanh`` for other kinds.
    :param squash: MLP: whether continuous actions are squashed by tanh and scaled to their bounds instead of clipped.
    :raises InvalidArgument: for values that do not match the kind or each other.
    """

    kind: str
    observation_size: int = 0
    observation_count: int = 0
    action_size: int = 0
    action_count: int = 0
    action_low: tuple[float, ...] = ()
    action_high: tuple[float, ...] = ()
    bias: bool = True
    hidden: tuple[int, ...] = ()
    features: int = 0
    seed: int = 0
    latent: tuple[int, ...] = ()
    activation: str = "tanh"
    squash: bool = False

    def __post_init__(self) -> None:
        kind, low, high = self.kind, self.action_low, self.action_high
        table = kind == "table"
        _check("kind", kind, kind in KINDS, f"one of {', '.join(KINDS)}")
        for name, used in {
            "observation_size": not table,
            "observation_count": table,
            "features": kind == "random_features",
        }.items():
            value, expected = getattr(self, name), "a positive integer" if used else "0"
            _check(name, value, is_count(value) if used else _is_zero(value), f"{expected} for {kind}")
        if self.action_count:
            _check(
                "action_count", self.action_count, is_count(self.action_count) and self.action_count > 1, "at least 2"
            )
            _check("action_size", self.action_size, _is_zero(self.action_size), "0 for discrete actions")
            _check("action_low, action_high", (low, high), not low and not high, "no bounds for discrete actions")
        else:
            _check(
                "action_size", self.action_size, is_count(self.action_size), "a positive integer, or an action_count"
            )
            bounds = len(low) == len(high) == self.action_size and all(
                is_number(a) and is_number(b) and a < b for a, b in zip(low, high, strict=True)
            )
            _check("action_low, action_high", (low, high), bounds, f"{self.action_size} finite bounds each, low < high")
        _check("bias", self.bias, isinstance(self.bias, bool), "true or false")
        _check("bias", self.bias, self.bias or kind in OPTIONAL_BIAS, f"true for {kind}")
        if kind in HIDDEN:
            counts = _are_counts(self.hidden) and len(self.hidden) > 0
            _check("hidden", self.hidden, counts, f"positive integers for {kind}")
        else:
            _check("hidden", self.hidden, self.hidden == (), f"no hidden layers for {kind}")
        if kind == "projected_mlp":
            self._check_latent()
        else:
            _check("latent", self.latent, self.latent == (), f"no latents for {kind}")
        activations = ("tanh", "relu") if kind == "mlp" else ("tanh",)
        _check("activation", self.activation, self.activation in activations, f"{' or '.join(activations)} for {kind}")
        squashed = kind == "mlp" and not self.action_count
        _check("squash", self.squash, isinstance(self.squash, bool), "true or false")
        _check("squash", self.squash, squashed or not self.squash, "false but for an mlp with continuous actions")
        _check("seed", self.seed, _is_zero(self.seed) or is_count(self.seed), "an integer of at least 0")

    def _check_latent(self) -> None:
        sizes = weights_of_layers((self.observation_size, *self.hidden, self.outputs))
        fit = _are_counts(self.latent) and len(self.latent) == len(sizes)
        ok = fit and all(count <= size for count, size in zip(self.latent, sizes, strict=True))
        expected = f"{len(sizes)} positive integers, at most {', '.join(map(str, sizes))}, the weights of each layer"
        _check("latent", self.latent, ok, expected)

    @classmethod
    def of(
        cls,
        kind: str,
        card: EnvironmentSpaces,
        *,
        bias: bool = True,
        hidden: Sequence[int] = (),
        features: int = FEATURES,
        seed: int = 0,
        latent: Sequence[int] = (),
        activation: str = "tanh",
        squash: bool = False,
    ) -> PolicySpec:
        """Return the spec of a policy for an environment.

        :param kind: ``mlp``, ``linear``, ``table``, ``random_features`` or ``projected_mlp``.
        :param card: the environment's `EnvironmentCard`. For a table the environment's observations must be discrete;
            where the card does not record it, a table for other observations is refused only when it acts.
        :param hidden: of an MLP or a projected one; empty: the default of the kind; ignored for other kinds.
        :param features: of random features; ignored for other kinds.
        :param latent: of a projected MLP; empty: `LATENT` for each layer; ignored for other kinds.
        :raises InvalidArgument: for values that do not match the kind.
        """
        table, discrete = kind == "table", card.num_actions > 0
        units = (tuple(hidden) or HIDDEN[kind]) if kind in HIDDEN else ()
        if kind == "projected_mlp" and not latent and _are_counts(units):
            sizes = weights_of_layers((card.observation_size, *units, card.num_actions or len(card.action)))
            latent = [min(LATENT, size) for size in sizes]
        return cls(
            kind=kind,
            observation_size=0 if table else card.observation_size,
            observation_count=card.observation_size if table else 0,
            action_size=0 if discrete else len(card.action),
            action_count=card.num_actions,
            action_low=() if discrete else tuple(float(part.low) for part in card.action),
            action_high=() if discrete else tuple(float(part.high) for part in card.action),
            bias=bias,
            hidden=units,
            features=features if kind == "random_features" else 0,
            seed=seed,
            latent=tuple(latent) if kind == "projected_mlp" else (),
            activation=activation,
            squash=squash,
        )

    @property
    def outputs(self) -> int:
        """Number of outputs of the last layer: action components, or one score for each discrete action."""
        return self.action_count or self.action_size

    def to_dict(self) -> dict[str, Any]:
        """Return the spec as JSON values."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> PolicySpec:
        """Return the spec of a `to_dict` object; entries with defaults may be absent.

        :raises InvalidArgument: for an unknown, missing or invalid entry.
        """
        names = [field.name for field in fields(cls)]
        if not isinstance(values, Mapping) or "kind" not in values:
            raise InvalidArgument(field="policy", value=values, expected="an object with the entry kind")
        if unknown := [name for name in values if name not in names]:
            raise InvalidArgument(field="policy", value=unknown, expected=f"entries among {', '.join(names)}")
        plain: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
        }
        for name in ("action_low", "action_high", "hidden", "latent"):
            if not isinstance(plain.get(name, ()), tuple):
                raise InvalidArgument(field=name, value=plain[name], expected="a list of numbers")
        return cls(**plain)


def weights_of_layers(sizes: Sequence[int]) -> list[int]:
    """Return the number of weights between each two of these layers."""
    return [inputs * units for inputs, units in pairwise(sizes)]


def _is_zero(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value == 0


def _are_counts(values: Sequence[object]) -> bool:
    return all(map(is_count, values))


def _check(name: str, value: object, ok: bool, expected: str) -> None:
    if not ok:
        raise InvalidArgument(field=name, value=value, expected=expected)
