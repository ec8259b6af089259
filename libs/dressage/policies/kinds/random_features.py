"""A fixed random projection and a linear output on it: outputs W·tanh(P·clip(x / 3, ±5) + p) + b.

P has entries from a normal distribution with standard deviation 1/√D, p from ±0.1, both drawn with the spec's seed; they are
stored in the bundle and no part of the vector. The division by 3 and the clip are the bundle's normalisation of observations
(mean 0, variance 9, clip 5), so that they can be changed there. Sizes and distributions are those of R2PO's random features.

Tensors: ``projection.weight`` (F, D), ``projection.bias`` (F,), ``action.weight`` (outputs, F), ``action.bias`` (outputs,),
``obs_mean``, ``obs_var``. Order of the vector: ``action.weight`` row by row, then ``action.bias``; (F + 1)·outputs numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dressage.policies.card import PolicyCard
from dressage.policies.kinds.base import Weights
from dressage.policies.kinds.network import NetworkKind
from dressage.policies.kinds.spec import PolicySpec

_SPREAD = 3.0
_CLIP = 5.0
_BIAS = 0.1


class RandomFeatures(NetworkKind):
    """A policy with random features; see the module."""

    name = "random_features"

    def entries(self, spec: PolicySpec) -> dict[str, Any]:
        return {"features": spec.features, "bias": spec.bias, "clip": _CLIP}

    def hidden_layers(self, card: PolicyCard) -> list[tuple[str, int]]:
        return [("projection", card.features)]

    def is_searched(self, name: str) -> bool:
        return super().is_searched(name) and not name.startswith("projection.")

    def fixed_weights(self, spec: PolicySpec) -> Weights:
        rng, size = np.random.default_rng(spec.seed), spec.observation_size
        return {
            "projection.weight": rng.standard_normal((spec.features, size)) / np.sqrt(size),
            "projection.bias": rng.uniform(-_BIAS, _BIAS, spec.features),
            "obs_mean": np.zeros(size),
            "obs_var": np.full(size, _SPREAD**2),
        }
