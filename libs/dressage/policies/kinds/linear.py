"""One matrix, with or without a bias: outputs W·x + b.

Tensors: ``action.weight`` (outputs, D), ``action.bias`` (outputs,). Order of the vector: the matrix row by row (all weights of
the first output, then of the second, ...), then the bias; (D + 1)·outputs numbers, D·outputs without a bias. Observations
are not normalised unless the card has statistics for it.
"""

from __future__ import annotations

from typing import Any

from dressage.policies.card import PolicyCard
from dressage.policies.kinds.network import NetworkKind
from dressage.policies.kinds.spec import PolicySpec


class Linear(NetworkKind):
    """A linear policy; see the module."""

    name = "linear"

    def entries(self, spec: PolicySpec) -> dict[str, Any]:
        return {"bias": spec.bias, "normalize_observation": False}

    def hidden_layers(self, card: PolicyCard) -> list[tuple[str, int]]:
        return []
