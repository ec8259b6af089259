"""The base of all kinds of policy: tensors, parameters as a flat vector, actions, nodes of an ONNX graph.

A kind has no state: weights and a card determine a policy. Two descriptions lead to one: a `PolicyCard` describes a stored
policy, a `PolicySpec` one that a search method still has to find numbers for. ``card(spec)`` connects them.

The vector holds the parameters that a search may change, in float64, in the order of ``shapes(spec)``, each tensor row by
row; tensors that stay fixed (statistics, a random projection) are not part of it. Weights are stored in single precision, so
``vector(spec, weights(spec, v))`` is ``v`` rounded to single precision.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dressage.errors import InvalidArgument
from dressage.policies.card import PolicyCard
from dressage.policies.kinds.spec import PolicySpec
from dressage.policies.onnx_graph import Graph

Array = NDArray[Any]
Weights = Mapping[str, Array]
Actor = Callable[[ArrayLike], Array]
"""Maps one observation to an action, () or (A,), or a batch of N to actions, (N,) or (N, A)."""

_ANY = "any"


class Kind(ABC):
    """One kind of policy."""

    name: ClassVar[str]

    # For search methods, from a spec.

    def card(
        self,
        spec: PolicySpec,
        *,
        environment: str,
        environment_options: Mapping[str, Any] | None = None,
        provenance: Mapping[str, Any] | None = None,
    ) -> PolicyCard:
        """Return the card of a policy with this spec.

        :param environment: environment id, such as ``CartPole-v1``.
        :param environment_options: options that differ from those of the stock environment.
        :param provenance: origin of the policy, as plain JSON data.
        :raises InvalidArgument: for a spec of another kind.
        """
        if spec.kind != self.name:
            raise InvalidArgument(field="kind", value=spec.kind, expected=f"the spec of a policy of kind {self.name}")
        return PolicyCard(
            environment=environment,
            kind=self.name,
            observation_size=spec.observation_size,
            observation_count=spec.observation_count or None,
            action_kind="discrete" if spec.action_count else "box",
            num_actions=spec.action_count or None,
            action_low=spec.action_low,
            action_high=spec.action_high,
            environment_options=dict(environment_options or {}),
            provenance=dict(provenance or {}),
            **self.entries(spec),
        )

    @abstractmethod
    def entries(self, spec: PolicySpec) -> dict[str, Any]:
        """Return the entries of the card that depend on the kind."""

    def shapes(self, spec: PolicySpec) -> dict[str, tuple[int, ...]]:
        """Return name and shape of every tensor of a bundle with this spec, in the order of the vector."""
        # Shapes do not depend on the environment.
        return self.tensors(self.card(spec, environment=_ANY))

    def size(self, spec: PolicySpec) -> int:
        """Return the length of the vector."""
        return sum(math.prod(shape) for name, shape in self.shapes(spec).items() if self.is_searched(name))

    def choices(self, spec: PolicySpec) -> int:
        """Return the number of values of each entry of the vector, integers from 0; 0 for real numbers."""
        return 0

    def weights(self, spec: PolicySpec, vector: ArrayLike) -> dict[str, Array]:
        """Return the tensors with the entries of ``vector``.

        :param vector: (size,), finite in single precision.
        :raises InvalidArgument: for another length, or values that are invalid for the kind.
        """
        card, size = self.card(spec, environment=_ANY), self.size(spec)
        try:
            values = np.asarray(vector, np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidArgument(field="vector", value=vector, expected=f"{size} numbers") from error
        if values.shape != (size,):
            raise InvalidArgument(field="vector", value=f"shape {values.shape}", expected=f"shape ({size},)")
        tensors, start = dict(self.fixed_weights(spec)), 0
        for name, shape in self.tensors(card).items():
            if self.is_searched(name):
                end = start + math.prod(shape)
                tensors[name] = values[start:end].reshape(shape)
                start = end
        self.validate(tensors, card)
        return self.to_store(tensors, card)

    def vector(self, spec: PolicySpec, weights: Weights) -> Array:
        """Return the vector of the tensors, (size,) float64; the inverse of `weights`.

        :raises InvalidArgument: if a tensor is missing or does not match the spec.
        """
        self.validate(weights, self.card(spec, environment=_ANY))
        searched = [np.ravel(weights[name]) for name in self.shapes(spec) if self.is_searched(name)]
        return np.concatenate(searched).astype(np.float64)

    @abstractmethod
    def initial(self, spec: PolicySpec, *, seed: int) -> dict[str, Array]:
        """Return random weights for the start of a search. Equal seeds give equal weights."""

    def fixed_weights(self, spec: PolicySpec) -> Weights:
        """Return the tensors that are not part of the vector."""
        return {}

    def is_searched(self, name: str) -> bool:
        """Return whether the entries of a tensor are part of the vector."""
        return True

    # For bundles, from a card.

    @abstractmethod
    def tensors(self, card: PolicyCard) -> dict[str, tuple[int, ...]]:
        """Return name and shape of every tensor of a bundle, in the order of the vector."""

    @abstractmethod
    def dtype(self, name: str, card: PolicyCard) -> type[np.generic]:
        """Return the type in which a tensor is stored."""

    def validate(self, weights: Weights, card: PolicyCard) -> None:
        """Check that the tensors match the card.

        :raises InvalidArgument: if a tensor is missing, has another shape, or is not finite in its stored type.
        """
        for name, shape in self.tensors(card).items():
            if name not in weights:
                raise InvalidArgument(field=f"tensor {name}", problem="missing", expected=f"an array of shape {shape}")
            array = np.asarray(weights[name])
            if array.shape != shape:
                raise InvalidArgument(field=f"tensor {name}", value=array.shape, expected=f"shape {shape}")
            if array.dtype.kind not in "fiu":
                raise InvalidArgument(field=f"tensor {name}", value=str(array.dtype), expected="numbers")
            self.check_values(name, array, card)

    def check_values(self, name: str, array: Array, card: PolicyCard) -> None:
        """Check the entries of one tensor.

        :raises InvalidArgument: naming the tensor.
        """
        with np.errstate(over="ignore"):
            finite = np.isfinite(array.astype(self.dtype(name, card), copy=False)).all()
        if not finite:
            raise InvalidArgument(field=f"tensor {name}", problem="has NaN or infinities", expected="finite values")

    def to_store(self, weights: Weights, card: PolicyCard) -> dict[str, Array]:
        """Return copies of the tensors of the bundle in their stored types."""
        return {name: np.array(weights[name], self.dtype(name, card), order="C") for name in self.tensors(card)}

    @abstractmethod
    def actor(self, weights: Weights, card: PolicyCard) -> Actor:
        """Return a function that acts; values that do not depend on the observation are computed once.

        :param weights: tensors as `to_store` returns them.
        """

    def act(self, weights: Weights, card: PolicyCard, observations: ArrayLike) -> Array:
        """Return the deterministic actions. For more than one call, use `actor`.

        :param observations: (N, D) or (D,); for a table (N,) integers or one integer.
        :returns: (N, A) float32, or (N,) int64 for discrete actions; without N for a single observation.
        :raises InvalidArgument: for observations of another shape or type.
        """
        return self.actor(weights, card)(observations)

    @abstractmethod
    def add_to_graph(self, graph: Graph, weights: Weights, card: PolicyCard) -> None:
        """Add the nodes from the input ``observation`` to the output ``action``."""


def bounds(card: PolicyCard) -> tuple[Array, Array]:
    """Return the bounds of continuous actions, (A,) float32 each."""
    return np.asarray(card.action_low, np.float32), np.asarray(card.action_high, np.float32)


def add_action(graph: Graph, card: PolicyCard, output: str) -> None:
    """Add the nodes from a policy's outputs [N, A], continuous actions, to the output ``action`` within the bounds."""
    low, high = bounds(card)
    if card.squash:
        output = graph.node("Tanh", [output], "squashed")
        output = graph.node(
            "Mul", [output, graph.constant("half_range", (high - low) / 2, np.float32)], "scaled_action"
        )
        output = graph.node("Add", [output, graph.constant("middle", (high + low) / 2, np.float32)], "shifted_action")
    output = graph.node("Max", [output, graph.constant("action_low", low, np.float32)], "action_bounded_below")
    graph.node("Min", [output, graph.constant("action_high", high, np.float32)], "action")
    graph.output("action", graph.types.FLOAT, ["N", card.action_size])
