"""Many small networks act at once, each on its own observation: one column per network and observation.

All operations are element-wise and in a fixed order: a column's result does not depend on the other columns, so that a
search has the same result however its candidates are spread over batches and threads. A matrix product of BLAS does not
guarantee this. For that reason a column may differ from `Policy.act` in the last digit (see `engine.Search`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from dressage.policies.kinds import PolicySpec, kind
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class _Layer:
    """Weights (inputs, outputs, K) and biases (outputs, K) of K networks; K is 1 where all have the same."""

    weight: Array
    bias: Array | None

    def of(self, columns: Array) -> _Layer:
        """Return the layer of the networks with these indices."""
        bias = self.bias if self.bias is None or self.bias.shape[-1] == 1 else self.bias[..., columns]
        return _Layer(self.weight if self.weight.shape[-1] == 1 else self.weight[..., columns], bias)

    def __call__(self, x: Array) -> Array:
        """Map (inputs, K) to (outputs, K)."""
        out: Array = x[0] * self.weight[0]
        for row, weight in zip(x[1:], self.weight[1:], strict=True):
            out += row * weight
        return out if self.bias is None else out + self.bias


@dataclass(frozen=True)
class Stacked:
    """Networks of one shape with discrete actions, one per column."""

    layers: Sequence[_Layer]
    normalization: tuple[Array, Array, float] | None
    """Mean (D, 1), scale (D, 1) and clip of the observations, in double precision."""
    tanh: bool

    @classmethod
    def of(cls, spec: PolicySpec, parameters: Array) -> Stacked:
        """Return the networks with these numbers.

        :param spec: of a network with discrete actions.
        :param parameters: (K, n), in the order of the kind's vector.
        """
        chosen = kind(spec.kind)
        card = chosen.card(spec, environment="any")
        fixed = chosen.fixed(spec)
        numbers, start = np.ascontiguousarray(parameters.T, np.float32), 0
        tensors: dict[str, Array] = {}
        for name, shape in chosen.tensors(card).items():
            if chosen.is_searched(name):
                end = start + prod(shape)
                tensors[name] = numbers[start:end].reshape(*shape, -1)
                start = end
            else:
                tensors[name] = np.asarray(fixed[name], chosen.dtype(name, card))[..., None]
        # In the order of the tensors, which is that from input to output.
        names = [name.removesuffix(".weight") for name in tensors if name.endswith(".weight")]
        layers = [_Layer(np.swapaxes(tensors[f"{n}.weight"], 0, 1), tensors.get(f"{n}.bias")) for n in names]
        normalization = None
        if card.normalize_observation:
            normalization = (tensors["obs_mean"], 1.0 / np.sqrt(tensors["obs_var"] + card.epsilon), card.clip)
        return cls(layers, normalization, card.activation == "tanh")

    def columns(self, indices: Array) -> Stacked:
        """Return the networks with these indices, which may repeat."""
        return replace(self, layers=[layer.of(indices) for layer in self.layers])

    def outputs(self, observation: Array) -> Array:
        """Return the scores of the actions, (actions, K) float32.

        :param observation: (D, K) float32.
        """
        x = observation
        if self.normalization is not None:
            mean, scale, clip = self.normalization
            x = np.clip((x.astype(np.float64) - mean) * scale, -clip, clip).astype(np.float32)
        for layer in self.layers[:-1]:
            x = np.tanh(layer(x)) if self.tanh else np.maximum(layer(x), np.float32(0))
        return self.layers[-1](x)
