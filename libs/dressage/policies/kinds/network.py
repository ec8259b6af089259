"""The common base of kinds with dense layers: MLP, linear policy, random features and projected MLP.

Observations may be normalised first, in double precision, as in training: a component with a small spread around a large
mean would lose its digits in single precision. Hidden layers are followed by the card's activation. The outputs become
actions within the bounds, or the index of the largest one (the first of equal ones) where actions are discrete.
"""

from __future__ import annotations

from abc import abstractmethod
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from dressage.errors import InvalidArgument
from dressage.policies.card import PolicyCard
from dressage.policies.kinds.base import Actor, Array, Kind, Weights, add_action, bounds
from dressage.policies.kinds.spec import PolicySpec
from dressage.policies.onnx_graph import Graph

OUTPUT_LAYER = "action"


class NetworkKind(Kind):
    """A kind that maps observation vectors to actions through dense layers, ``NAME.weight`` (out, in), ``NAME.bias``."""

    @abstractmethod
    def hidden_layers(self, card: PolicyCard) -> list[tuple[str, int]]:
        """Return name and units of each hidden layer, in order. The output layer is `OUTPUT_LAYER`."""

    def tensors(self, card: PolicyCard) -> dict[str, tuple[int, ...]]:
        layers = dense_shapes([*self.hidden_layers(card), (OUTPUT_LAYER, card.outputs)], inputs=card.observation_size)
        if not card.bias:
            del layers[f"{OUTPUT_LAYER}.bias"]
        return {**(statistics_shapes(card) if card.normalize_observation else {}), **layers}

    def dense(self, weights: Weights, card: PolicyCard) -> Weights:
        """Return the layers as ``NAME.weight`` (out, in) and ``NAME.bias`` (out,), from the input to the output.

        :param weights: tensors of one policy, or of many, in further axes at the end; those of a fixed tensor may be 1.
        """
        keys = [f"{name}.{part}" for name in self._layers(card) for part in ("weight", "bias")]
        return {key: weights[key] for key in keys if key in weights}

    def dtype(self, name: str, card: PolicyCard) -> type[np.generic]:
        return np.float64 if name.startswith("obs_") else np.float32

    def is_searched(self, name: str) -> bool:
        return not name.startswith("obs_")

    def initial(self, spec: PolicySpec, *, seed: int) -> dict[str, Array]:
        """Return weights from a normal distribution with standard deviation 1/√(inputs of the layer), biases 0."""
        rng = np.random.default_rng(seed)
        tensors = dict(self.fixed_weights(spec))
        for name, shape in self.shapes(spec).items():
            if self.is_searched(name):
                bias = name.endswith(".bias")
                tensors[name] = np.zeros(shape) if bias else rng.standard_normal(shape) / np.sqrt(shape[-1])
        return self.to_store(tensors, self.card(spec, environment="any"))

    def actor(self, weights: Weights, card: PolicyCard) -> Actor:
        return _NetworkActor(self._layers(card), self.dense(weights, card), weights, card)

    def add_to_graph(self, graph: Graph, weights: Weights, card: PolicyCard) -> None:
        x = graph.input("observation", graph.types.FLOAT, ["N", card.observation_size])
        if card.normalize_observation:
            x = _add_normalization(graph, weights, card, x)
        layers = self.dense(weights, card)
        for name in self._layers(card):
            inputs = [x, graph.constant(f"{name}.weight", layers[f"{name}.weight"], np.float32)]
            if f"{name}.bias" in layers:
                inputs.append(graph.constant(f"{name}.bias", layers[f"{name}.bias"], np.float32))
            x = graph.node("Gemm", inputs, f"{name}.out", transB=1)
            if name != OUTPUT_LAYER:
                x = graph.node("Tanh" if card.activation == "tanh" else "Relu", [x], f"{name}.active")
        if card.action_kind == "discrete":
            graph.output(graph.node("ArgMax", [x], "action", axis=1, keepdims=0), graph.types.INT64, ["N"])
        else:
            add_action(graph, card, x)

    def _layers(self, card: PolicyCard) -> list[str]:
        """Return the names of all layers, in order."""
        return [*(name for name, _ in self.hidden_layers(card)), OUTPUT_LAYER]


def dense_shapes(layers: list[tuple[str, int]], *, inputs: int) -> dict[str, tuple[int, ...]]:
    """Return the tensors of dense layers, in order.

    :param layers: name and units of each layer.
    :param inputs: inputs of the first layer.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for name, units in layers:
        shapes[f"{name}.weight"] = (units, inputs)
        shapes[f"{name}.bias"] = (units,)
        inputs = units
    return shapes


def layer_sizes(card: PolicyCard) -> list[tuple[int, int]]:
    """Return outputs and inputs of each layer of a network with the card's hidden layers."""
    sizes = (card.observation_size, *card.hidden_sizes, card.outputs)
    return [(units, inputs) for inputs, units in pairwise(sizes)]


def statistics_shapes(card: PolicyCard) -> dict[str, tuple[int, ...]]:
    """Return the tensors of the statistics of observations."""
    return {"obs_mean": (card.observation_size,), "obs_var": (card.observation_size,)}


def ordered_product(x: Array, weight: Array) -> Array:
    """Return ``x @ weight``, (N, out), with each sum in the order of the inputs.

    A row does not depend on the others, and other code can compute the same bits (`dressage.episodes`).

    :param x: (N, in).
    :param weight: (in, out).
    """
    product: Array = np.add.accumulate(x.T[:, :, None] * weight[:, None, :], axis=0)[-1]
    return product


class _NetworkActor:
    """The kind's `Actor`: a class, not a closure, so that a policy can be pickled."""

    def __init__(self, names: list[str], layers: Weights, weights: Weights, card: PolicyCard) -> None:
        self._card = card
        *self._hidden, self._output = [(layers[f"{name}.weight"].T, layers.get(f"{name}.bias")) for name in names]
        # Trained networks are large and act through BLAS, whose order of additions depends on the number of rows.
        self._product = np.matmul if card.kind == "mlp" else ordered_product
        self._low, self._high = bounds(card)
        if card.normalize_observation:
            self._mean = weights["obs_mean"]
            self._scale = 1.0 / np.sqrt(weights["obs_var"] + card.epsilon)

    def __call__(self, observation: ArrayLike) -> Array:
        card = self._card
        x, size = np.asarray(observation, np.float64), card.observation_size
        if x.ndim not in (1, 2) or x.shape[-1] != size:
            raise InvalidArgument(field="observation", value=x.shape, expected=f"shape ({size},) or (N, {size})")
        single = x.ndim == 1
        x = np.atleast_2d(x)
        if card.normalize_observation:
            x = np.clip((x - self._mean) * self._scale, -card.clip, card.clip)
        x = x.astype(np.float32)
        for weight, bias in self._hidden:
            x = self._product(x, weight)
            x = x if bias is None else x + bias
            x = np.tanh(x) if card.activation == "tanh" else np.maximum(x, np.float32(0))
        weight, bias = self._output
        x = self._product(x, weight)
        action = self._decide(x if bias is None else x + bias)
        return np.asarray(action[0]) if single else action

    def _decide(self, output: Array) -> Array:
        """Return (N, A) actions, or (N,) indices, of the (N, outputs) of the network."""
        if self._card.action_kind == "discrete":
            chosen: Array = output.argmax(axis=1)
            return chosen
        if self._card.squash:
            # Scaled as in SB3. Rounding may exceed a bound by one digit, so the result is clipped.
            output = self._low + np.float32(0.5) * (np.tanh(output) + np.float32(1)) * (self._high - self._low)
        action: Array = np.clip(output, self._low, self._high)
        return action


def _add_normalization(graph: Graph, weights: Weights, card: PolicyCard, x: str) -> str:
    """Add the nodes that normalise ``x`` and return the name of the result."""
    scale = 1.0 / np.sqrt(np.asarray(weights["obs_var"], np.float64) + card.epsilon)
    x = graph.node("Cast", [x], "observation_f64", to=graph.types.DOUBLE)
    x = graph.node("Sub", [x, graph.constant("obs_mean", weights["obs_mean"], np.float64)], "centred")
    x = graph.node("Mul", [x, graph.constant("obs_scale", scale, np.float64)], "scaled")
    x = graph.node("Max", [x, graph.constant("obs_low", -card.clip, np.float64)], "bounded_below")
    x = graph.node("Min", [x, graph.constant("obs_high", card.clip, np.float64)], "bounded")
    return graph.node("Cast", [x], "normalised", to=graph.types.FLOAT)
