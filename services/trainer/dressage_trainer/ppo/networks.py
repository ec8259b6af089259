"""The actor-critic: two separate tanh networks, as SB3's MlpPolicy with Tanh, and a free log standard deviation.

Weights are a dict of arrays named as in the policy bundle ("pi.0.weight", "action.bias", "log_std", …), each with
a leading member axis when stacked. Weights are (out, in), as in torch and in the bundle.

The forward pass exists twice on purpose: in JAX inside the update, and in numpy for the rollout, where a step's few
hundred rows are done before a compiled call would have been dispatched.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]


def layer_names(tower: str, hidden_layers: int) -> list[str]:
    """Layers of a tower ("pi" or "vf") from the observation to its output."""
    head = "action" if tower == "pi" else "value"
    return [*hidden_names(tower, hidden_layers), head]


def hidden_names(tower: str, hidden_layers: int) -> list[str]:
    """Hidden layers of a tower, the first one first."""
    return [f"{tower}.{index}" for index in range(hidden_layers)]


def weight_shapes(
    *, observation_size: int, action_size: int, hidden_sizes: tuple[int, ...], log_std: bool = True
) -> dict[str, tuple[int, ...]]:
    """Shapes of one member's weights by name.

    :param action_size: outputs of the policy: action components, or the number of discrete actions.
    :param log_std: whether the policy has a standard deviation; not for discrete actions.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for tower, size_out in (("pi", action_size), ("vf", 1)):
        sizes = [observation_size, *hidden_sizes, size_out]
        names = layer_names(tower, len(hidden_sizes))
        for name, fan_in, fan_out in zip(names, sizes[:-1], sizes[1:], strict=True):
            shapes[f"{name}.weight"] = (fan_out, fan_in)
            shapes[f"{name}.bias"] = (fan_out,)
    return {**shapes, "log_std": (action_size,)} if log_std else shapes


def initial_weights(
    *,
    observation_size: int,
    action_size: int,
    hidden_sizes: tuple[int, ...],
    initial_log_std: float | None = 0.0,
    rng: np.random.Generator,
    dtype: Any = np.float32,
) -> Arrays:
    """Draw orthogonal weights of gain sqrt(2) (hidden), 0.01 (action), 1 (value); zero biases.

    :param action_size: outputs of the policy: action components, or the number of discrete actions.
    :param initial_log_std: None for discrete actions, whose policy has no deviation.
    """
    shapes = weight_shapes(
        observation_size=observation_size,
        action_size=action_size,
        hidden_sizes=hidden_sizes,
        log_std=initial_log_std is not None,
    )
    gains = {"action.weight": 0.01, "value.weight": 1.0}
    weights: Arrays = {}
    for name, shape in shapes.items():
        if name == "log_std":
            weights[name] = np.full(shape, initial_log_std, dtype)
        elif name.endswith(".bias"):
            weights[name] = np.zeros(shape, dtype)
        else:
            weights[name] = (gains.get(name, np.sqrt(2.0)) * _orthogonal(shape, rng)).astype(dtype)
    return weights


def _orthogonal(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Draw a matrix with orthonormal rows or columns, uniformly distributed (Saxe et al., 2013)."""
    rows, columns = shape
    normal = rng.standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(normal)
    q = q * np.sign(np.diagonal(r))
    matrix: np.ndarray = q if rows >= columns else q.T
    return matrix


def stack(members: list[Arrays]) -> Arrays:
    """Stack equal-shaped members' weights along a new leading axis."""
    return {name: np.stack([member[name] for member in members]) for name in members[0]}


class TowerInference:
    """One tower of stacked members in numpy; keeps transposed copies of the weights that were loaded last.

    :param heads: output layers, whose outputs are concatenated; None: the tower's one of `layer_names`.
    :param relu: whether hidden units are rectified, instead of tanh.
    """

    def __init__(
        self, tower: str, hidden_layers: int, *, heads: tuple[str, ...] | None = None, relu: bool = False
    ) -> None:
        self._names = layer_names(tower, hidden_layers)
        self._heads, self._relu = heads or (self._names[-1],), relu
        self._layers: list[tuple[np.ndarray, np.ndarray]] = []

    def load(self, weights: Arrays) -> None:
        """Take the members' present weights, each with a leading member axis."""
        layers = [(weights[f"{name}.weight"], weights[f"{name}.bias"]) for name in self._names[:-1]]
        heads = [np.concatenate([weights[f"{n}.{part}"] for n in self._heads], 1) for part in ("weight", "bias")]
        self._layers = [
            (np.ascontiguousarray(weight.swapaxes(-1, -2)), bias[..., None, :])
            for weight, bias in [*layers, (heads[0], heads[1])]
        ]

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        """(M, rows, observation) normalised observations to (M, rows, outputs)."""
        x = observations
        last = len(self._layers) - 1
        for index, (weight, bias) in enumerate(self._layers):
            x = np.matmul(x, weight)
            x += bias
            if index < last:
                self._activate(x)
        return x

    def _activate(self, x: np.ndarray) -> None:
        if self._relu:
            np.maximum(x, 0.0, out=x)
        else:
            np.tanh(x, out=x)

    def rows_of(self, members: np.ndarray, observations: np.ndarray) -> np.ndarray:
        """(rows, observation) normalised observations to (rows, outputs), each row by its own member's weights.

        :param members: (rows,) index of each row's member.
        """
        outputs = np.empty((len(observations), self._layers[-1][0].shape[-1]), observations.dtype)
        last = len(self._layers) - 1
        for member in np.unique(members):
            x = observations[members == member]
            for index, (weight, bias) in enumerate(self._layers):
                x = x @ weight[member] + bias[member]
                if index < last:
                    self._activate(x)
            outputs[members == member] = x
        return outputs


def forward(weights: dict[str, Any], observations: Any, *, tower: str, hidden_layers: int) -> Any:
    """One member's tower in JAX: (rows, observation) to (rows, outputs)."""
    import jax.numpy as jnp

    *hidden, head = layer_names(tower, hidden_layers)
    x = observations
    for name in hidden:
        x = jnp.tanh(dense(weights, x, name))
    return dense(weights, x, head)


def dense(weights: dict[str, Any], x: Any, name: str) -> Any:
    """One member's dense layer in JAX: (rows, in) to (rows, out)."""
    return linear()(x, weights[f"{name}.weight"]) + weights[f"{name}.bias"]


@functools.cache
def linear() -> Any:
    """`x @ weight.T` in JAX with the products written as XLA's kernels take them: a weight is never transposed, and of
    a gradient the small factor is transposed in memory, since a product over the leading axis has slow kernels."""
    import jax

    barrier: Any = jax.lax.optimization_barrier

    def product(a: Any, b: Any, *, over: int) -> Any:
        return jax.lax.dot_general(a, b, (((1,), (over,)), ((), ())))

    @jax.custom_vjp
    def apply(x: Any, weight: Any) -> Any:
        return product(x, weight, over=1)

    def backward(residuals: tuple[Any, Any], g: Any) -> tuple[Any, Any]:
        x, weight = residuals
        return product(g, weight, over=0), product(barrier(g.T), x, over=0)

    apply.defvjp(lambda x, weight: (apply(x, weight), (x, weight)), backward)
    return apply
