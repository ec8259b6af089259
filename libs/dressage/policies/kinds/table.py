"""One action for each discrete observation.

Tensor: ``table``, (observations,) int64 with the index of an action, or (observations, A) float32 for continuous actions,
which are clipped to the bounds. Order of the vector: row by row. For discrete actions each of its entries is an integer from 0
to the number of actions - 1; other numbers are refused instead of being rounded, so that a bad proposal is noticed.

An observation is an integer from 0, or its one-hot row, the form in which `dressage.envs` flattens discrete observations.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dressage.errors import InvalidArgument
from dressage.policies.card import PolicyCard
from dressage.policies.kinds.base import Actor, Array, Kind, Weights, add_action, bounds
from dressage.policies.kinds.spec import PolicySpec
from dressage.policies.onnx_graph import Graph


class Table(Kind):
    """A tabular policy; see the module."""

    name = "table"

    def entries(self, spec: PolicySpec) -> dict[str, Any]:
        return {"normalize_observation": False}

    def choices(self, spec: PolicySpec) -> int:
        return spec.action_count

    def initial(self, spec: PolicySpec, *, seed: int) -> dict[str, Array]:
        """Return uniformly random actions."""
        rng, count = np.random.default_rng(seed), spec.observation_count
        card = self.card(spec, environment="any")
        if spec.action_count:
            return self.to_store({"table": rng.integers(spec.action_count, size=count)}, card)
        return self.to_store({"table": rng.uniform(*bounds(card), (count, spec.action_size))}, card)

    def tensors(self, card: PolicyCard) -> dict[str, tuple[int, ...]]:
        count = card.observation_count or 0
        return {"table": (count,) if card.action_kind == "discrete" else (count, card.action_size)}

    def dtype(self, name: str, card: PolicyCard) -> type[np.generic]:
        return np.int64 if card.action_kind == "discrete" else np.float32

    def check_values(self, name: str, array: Array, card: PolicyCard) -> None:
        if card.num_actions is None:
            super().check_values(name, array, card)
            return
        # The comparison is written so that NaN fails.
        good = (array >= 0) & (array < card.num_actions) & (array == np.floor(array))
        if not good.all():
            row = int(np.flatnonzero(~good)[0])
            expected = f"an integer from 0 to {card.num_actions - 1}"
            raise InvalidArgument(field=f"tensor {name}, entry {row}", value=array[row].item(), expected=expected)

    def actor(self, weights: Weights, card: PolicyCard) -> Actor:
        return _TableActor(weights["table"], card)

    def add_to_graph(self, graph: Graph, weights: Weights, card: PolicyCard) -> None:
        """Add the nodes. Unlike `act`, the graph takes integers only, and runtimes count negative ones from the end."""
        inputs = [
            graph.constant("table", weights["table"], self.dtype("table", card)),
            graph.input("observation", graph.types.INT64, ["N"]),
        ]
        if card.action_kind == "discrete":
            graph.output(graph.node("Gather", inputs, "action", axis=0), graph.types.INT64, ["N"])
        else:
            add_action(graph, card, graph.node("Gather", inputs, "chosen", axis=0))


class _TableActor:
    """The kind's `Actor`: a class, not a closure, so that a policy can be pickled."""

    def __init__(self, table: Array, card: PolicyCard) -> None:
        self._actions = table if card.action_kind == "discrete" else np.clip(table, *bounds(card))

    def __call__(self, observation: ArrayLike) -> Array:
        # Not by indexing, which returns a view of the table for a single observation.
        return np.asarray(np.take(self._actions, _numbers(observation, len(self._actions)), axis=0))


def _numbers(observation: ArrayLike, count: int) -> Array:
    """Return observations as integers: () or (N,).

    :param observation: an integer, (N,) integers, or one-hot: (count,) floating, or (N, count).
    """
    x = np.asarray(observation)
    if x.dtype.kind in "iu" and x.ndim <= 1:
        if not ((x >= 0) & (x < count)).all():
            raise InvalidArgument(field="observation", value=x.tolist(), expected=f"integers from 0 to {count - 1}")
        return x
    if x.dtype.kind in "fiu" and x.ndim in (1, 2) and x.shape[-1] == count:
        hot = x == 1
        if (hot | (x == 0)).all() and (hot.sum(axis=-1) == 1).all():
            return np.asarray(hot.argmax(axis=-1))
    expected = f"integers from 0 to {count - 1}, or one-hot rows of length {count}: a table needs discrete observations"
    raise InvalidArgument(field="observation", value=f"{x.dtype} of shape {x.shape}", expected=expected)
