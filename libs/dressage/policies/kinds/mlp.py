"""A network with hidden layers, for PPO, SAC and search methods.

Tensors: ``pi.0.weight``, ``pi.0.bias``, ..., ``action.weight``, ``action.bias``. A trained policy's bundle also has what only
training uses, so that training can continue from its export: ``vf.*``, ``value.*`` and ``log_std`` (PPO; discrete actions have
no ``log_std``), or ``log_std.weight`` and ``log_std.bias`` (SAC), and the observations' statistics. A card with ``actor_only``
has none of these, but for the statistics where observations are normalised.

Order of the vector: the layers from the input to the output, each with its weight (out, in) row by row, then its bias.
"""

from __future__ import annotations

from typing import Any

from dressage.policies.card import PolicyCard
from dressage.policies.kinds.network import NetworkKind, dense_shapes, statistics_shapes
from dressage.policies.kinds.spec import PolicySpec


class Mlp(NetworkKind):
    """An MLP policy; see the module."""

    name = "mlp"

    def entries(self, spec: PolicySpec) -> dict[str, Any]:
        return {
            "hidden_sizes": spec.hidden,
            "actor_only": True,
            "normalize_observation": False,
            "activation": spec.activation,
            "squash": spec.squash,
        }

    def hidden_layers(self, card: PolicyCard) -> list[tuple[str, int]]:
        return _tower("pi", card)

    def tensors(self, card: PolicyCard) -> dict[str, tuple[int, ...]]:
        actor = super().tensors(card)
        return actor if card.actor_only else {**actor, **training_shapes(card)}


def training_shapes(card: PolicyCard) -> dict[str, tuple[int, ...]]:
    """Return the tensors that acting does not use."""
    statistics = statistics_shapes(card)
    if card.squash:
        deviation = {"log_std.weight": (card.outputs, card.hidden_sizes[-1]), "log_std.bias": (card.outputs,)}
        return {**statistics, **deviation}
    critic = dense_shapes([*_tower("vf", card), ("value", 1)], inputs=card.observation_size)
    return {**statistics, **critic, **({"log_std": (card.outputs,)} if card.action_kind == "box" else {})}


def _tower(name: str, card: PolicyCard) -> list[tuple[str, int]]:
    return [(f"{name}.{index}", units) for index, units in enumerate(card.hidden_sizes)]
