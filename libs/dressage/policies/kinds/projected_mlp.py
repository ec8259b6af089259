"""A network without biases whose weights lie in a small random subspace: weights of a layer = basis · latent.

The basis has orthonormal columns: the Q of a QR decomposition of a normal matrix that is drawn with the spec's seed, one layer
after another. Bases are stored in the bundle and are no part of the vector, so that acting needs no decomposition. Hidden
layers are followed by tanh. Default sizes are those of R2PO's projected network: one hidden layer of 4 and 5 latents a layer,
10 numbers for Swimmer-v5.

Tensors, for each layer NAME of ``pi.0``, ..., ``action``: ``NAME.basis`` (outputs · inputs, latents) and ``NAME.latent``
(latents,). The weight (outputs, inputs) is their product row by row, summed in double precision in the order of the latents.
Order of the vector: the latents of the layers from the input to the output.
"""

from __future__ import annotations

from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np

from dressage.policies.card import PolicyCard
from dressage.policies.kinds.base import Array, Weights
from dressage.policies.kinds.network import NetworkKind, layer_sizes
from dressage.policies.kinds.spec import PolicySpec

_BASIS, _LATENT = ".basis", ".latent"


class ProjectedMlp(NetworkKind):
    """A projected MLP; see the module."""

    name = "projected_mlp"

    def entries(self, spec: PolicySpec) -> dict[str, Any]:
        return {"hidden_sizes": spec.hidden, "latent_sizes": spec.latent, "normalize_observation": False}

    def hidden_layers(self, card: PolicyCard) -> list[tuple[str, int]]:
        return [(f"pi.{index}", units) for index, units in enumerate(card.hidden_sizes)]

    def tensors(self, card: PolicyCard) -> dict[str, tuple[int, ...]]:
        shapes: dict[str, tuple[int, ...]] = {}
        for name, (units, inputs), count in zip(self._layers(card), layer_sizes(card), card.latent_sizes, strict=True):
            shapes[name + _BASIS] = (units * inputs, count)
            shapes[name + _LATENT] = (count,)
        return shapes

    def is_searched(self, name: str) -> bool:
        return name.endswith(_LATENT)

    def fixed_weights(self, spec: PolicySpec) -> Weights:
        return _bases(spec)

    def initial(self, spec: PolicySpec, *, seed: int) -> dict[str, Array]:
        """Return normal latents, so that the standard deviation of a layer's weights is about 1/√(inputs)."""
        rng, card = np.random.default_rng(seed), self.card(spec, environment="any")
        tensors = dict(self.fixed_weights(spec))
        for name, (units, _), count in zip(self._layers(card), layer_sizes(card), spec.latent, strict=True):
            tensors[name + _LATENT] = rng.standard_normal(count) * np.sqrt(units / count)
        return self.to_store(tensors, card)

    def dense(self, weights: Weights, card: PolicyCard) -> Weights:
        layers = {}
        for name, (units, inputs) in zip(self._layers(card), layer_sizes(card), strict=True):
            basis, latent = weights[name + _BASIS], weights[name + _LATENT]
            flat = np.zeros((units * inputs, *latent.shape[1:]))
            # One latent after another: the sum of a network must not depend on how many are expanded at once.
            for column, value in zip(np.moveaxis(basis.astype(np.float64), 1, 0), latent, strict=True):
                flat += column * value
            layers[f"{name}.weight"] = flat.reshape(units, inputs, *latent.shape[1:]).astype(np.float32)
        return layers


@lru_cache(maxsize=8)
def _bases(spec: PolicySpec) -> Weights:
    """Return the bases of all layers, which every candidate of a search shares. They are read-only."""
    kind, rng, bases = ProjectedMlp(), np.random.default_rng(spec.seed), {}
    for name, shape in kind.shapes(spec).items():
        if name.endswith(_BASIS):
            q, r = np.linalg.qr(rng.standard_normal(shape))
            # Q is unique once the diagonal of R is positive; LAPACK's own signs differ between versions.
            bases[name] = q * np.where(np.diag(r) < 0, -1.0, 1.0)
            bases[name].setflags(write=False)
    return MappingProxyType(bases)
