"""The policies of many candidates as arrays that a kernel reads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dressage.policies import PolicyCard
from dressage.policies.kinds import PolicySpec, kind
from dressage.policies.kinds.base import Kind, bounds
from dressage.policies.kinds.network import NetworkKind

Array = NDArray[Any]


@dataclass(frozen=True)
class Networks:
    """Policies of one shape.

    :param weights: (P, n) float32. A network: for each layer the matrix (out, in) row by row, then the bias (0 where the
        layer has none). A table: the choice, or the action's components, of each observation.
    :param sizes: of the layers, the input first; empty for a table.
    :param relu: the activation of hidden layers; otherwise tanh.
    :param normalization: (2, D) mean and factor; (2, 0): observations are not normalised.
    :param clip: bound of normalised observations.
    :param bounds: (2, A) float32 bounds of continuous actions; (2, 0): discrete actions.
    """

    weights: Array
    sizes: Array
    relu: bool
    normalization: Array
    clip: float
    bounds: Array

    @classmethod
    def of(cls, spec: PolicySpec, parameters: Array) -> Networks:
        """Return the policies with these numbers.

        :param parameters: (P, n) float64, in the order of the kind's vector.
        :raises InvalidArgument: for numbers that the kind refuses.
        """
        chosen, count = kind(spec.kind), len(parameters)
        card = chosen.card(spec, environment="any")
        tensors = _stack_tensors(chosen, spec, card, parameters)
        shape = cls(
            weights=np.zeros((count, 0), np.float32),
            sizes=np.zeros(0, np.int64),
            relu=card.activation == "relu",
            normalization=np.zeros((2, 0)),
            clip=float(card.clip),
            bounds=np.array(bounds(card), np.float32).reshape(2, -1),
        )
        if not isinstance(chosen, NetworkKind):
            table = np.moveaxis(tensors["table"], -1, 0)
            table = table if card.num_actions else np.clip(table, *bounds(card))
            return replace(shape, weights=np.ascontiguousarray(table.reshape(count, -1), np.float32))
        if card.normalize_observation:
            mean, variance = tensors["obs_mean"][:, 0], tensors["obs_var"][:, 0]
            shape = replace(shape, normalization=np.stack([mean, 1.0 / np.sqrt(variance + card.epsilon)]))
        weights, sizes = _layers(chosen.dense(tensors, card), count)
        return replace(shape, weights=weights, sizes=sizes)

    @property
    def width(self) -> int:
        """Units of the widest layer."""
        return int(self.sizes.max(initial=1))


def _layers(dense: Mapping[str, Array], count: int) -> tuple[Array, Array]:
    """Return weights and sizes of dense layers, (out, in, P) or (out, in, 1), in order from input to output."""
    parts: list[Array] = []
    sizes: list[int] = []
    for name in [name.removesuffix(".weight") for name in dense if name.endswith(".weight")]:
        matrix = dense[f"{name}.weight"]
        units, inputs = matrix.shape[:2]
        sizes += [units] if sizes else [inputs, units]
        bias = dense.get(f"{name}.bias", np.zeros((units, 1), np.float32))
        for tensor in (matrix.reshape(units * inputs, -1), bias):
            parts.append(np.broadcast_to(tensor, (len(tensor), count)))
    return np.ascontiguousarray(np.concatenate(parts).T, np.float32), np.array(sizes, np.int64)


def _stack_tensors(chosen: Kind, spec: PolicySpec, card: PolicyCard, parameters: Array) -> dict[str, Array]:
    """Return the tensors of all candidates, (..., P) each, and those that are fixed, (..., 1).

    :raises InvalidArgument: for numbers that the kind refuses.
    """
    if parameters.shape[1:] != (chosen.size(spec),) or chosen.choices(spec) or not _finite(parameters):
        one = [chosen.weights(spec, vector) for vector in parameters]  # which checks them
        return {name: np.stack([weights[name] for weights in one], axis=-1) for name in chosen.tensors(card)}
    fixed, start, tensors = chosen.fixed_weights(spec), 0, {}
    columns = np.ascontiguousarray(parameters.T)
    for name, shape in chosen.tensors(card).items():
        dtype = chosen.dtype(name, card)
        if chosen.is_searched(name):
            end = start + math.prod(shape)
            tensors[name] = columns[start:end].astype(dtype).reshape(*shape, -1)
            start = end
        else:
            tensors[name] = np.asarray(fixed[name], dtype)[..., None]
    return tensors


def _finite(parameters: Array) -> bool:
    with np.errstate(over="ignore"):
        return bool(np.isfinite(parameters.astype(np.float32)).all())
