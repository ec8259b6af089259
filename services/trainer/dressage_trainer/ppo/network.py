"""The actor-critic: two tanh networks and a diagonal Gaussian, or logits, as SB3's MlpPolicy with Tanh.

Weights are a dict of arrays named as in the policy bundle ("pi.0.weight", "action.bias", "log_std", ...), each with
a leading member axis when stacked. Weights are (out, in), as in torch and in the bundle.

The forward pass exists twice on purpose: in JAX inside the update, and in numpy for the rollout, where a step's few
hundred rows are done before a compiled call would have been dispatched.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]

LOG_TWO_PI = float(np.log(2.0 * np.pi))


def layer_names(tower: str, hidden_layers: int) -> list[str]:
    """Layers of a tower ("pi" or "vf") from the observation to its output."""
    head = "action" if tower == "pi" else "value"
    return [f"{tower}.{index}" for index in range(hidden_layers)] + [head]


def initial_weights(
    *,
    observation_size: int,
    action_size: int,
    hidden_sizes: tuple[int, ...],
    initial_log_std: float | None = 0.0,
    rng: np.random.Generator,
    dtype: Any = np.float32,
) -> Arrays:
    """Orthogonal weights of gain sqrt(2) (hidden), 0.01 (action), 1 (value); zero biases.

    :param action_size: numbers that the policy puts out: action components, or how many numbered actions there are.
    :param initial_log_std: None for numbered actions, whose policy has no deviation.
    """
    weights: Arrays = {}
    for tower, size_out, head_gain in (("pi", action_size, 0.01), ("vf", 1, 1.0)):
        sizes = [observation_size, *hidden_sizes, size_out]
        names = layer_names(tower, len(hidden_sizes))
        for name, fan_in, fan_out in zip(names, sizes[:-1], sizes[1:], strict=True):
            gain = head_gain if name in ("action", "value") else np.sqrt(2.0)
            weights[f"{name}.weight"] = (gain * _orthogonal(fan_out, fan_in, rng)).astype(dtype)
            weights[f"{name}.bias"] = np.zeros(fan_out, dtype)
    if initial_log_std is not None:
        weights["log_std"] = np.full(action_size, initial_log_std, dtype)
    return weights


def _orthogonal(rows: int, columns: int, rng: np.random.Generator) -> np.ndarray:
    """A (rows, columns) matrix with orthonormal rows or columns, uniformly distributed (Saxe et al., 2013)."""
    normal = rng.standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(normal)
    q = q * np.sign(np.diagonal(r))
    matrix: np.ndarray = q if rows >= columns else q.T
    return matrix


def stack(members: list[Arrays]) -> Arrays:
    """Stack equal-shaped members' weights along a new leading axis."""
    return {name: np.stack([member[name] for member in members]) for name in members[0]}


class TowerInference:
    """One tower of stacked members in numpy; keeps transposed copies of the weights it was last given."""

    def __init__(self, tower: str, hidden_layers: int) -> None:
        self._names = layer_names(tower, hidden_layers)
        self._layers: list[tuple[np.ndarray, np.ndarray]] = []

    def load(self, weights: Arrays) -> None:
        """Take the members' present weights, each with a leading member axis."""
        self._layers = [
            (
                np.ascontiguousarray(weights[f"{name}.weight"].swapaxes(-1, -2)),
                weights[f"{name}.bias"][..., None, :],
            )
            for name in self._names
        ]

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        """(M, rows, observation) normalised observations to (M, rows, outputs)."""
        x = observations
        last = len(self._layers) - 1
        for index, (weight, bias) in enumerate(self._layers):
            x = np.matmul(x, weight)
            x += bias
            if index < last:
                np.tanh(x, out=x)
        return x

    def member(self, index: int, observations: np.ndarray) -> np.ndarray:
        """The same for the (rows, observation) rows of one member."""
        x = observations
        last = len(self._layers) - 1
        for position, (weight, bias) in enumerate(self._layers):
            x = x @ weight[index] + bias[index]
            if position < last:
                x = np.tanh(x)
        return x


def forward(weights: dict[str, Any], observations: Any, *, tower: str, hidden_layers: int) -> Any:
    """One member's tower in JAX: (rows, observation) to (rows, outputs)."""
    import jax.numpy as jnp

    x = observations
    for name in layer_names(tower, hidden_layers):
        x = linear()(x, weights[f"{name}.weight"]) + weights[f"{name}.bias"]
        if name not in ("action", "value"):
            x = jnp.tanh(x)
    return x


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

    def backward(kept: tuple[Any, Any], g: Any) -> tuple[Any, Any]:
        x, weight = kept
        return product(g, weight, over=0), product(barrier(g.T), x, over=0)

    apply.defvjp(lambda x, weight: (apply(x, weight), (x, weight)), backward)
    return apply


def gaussian_log_prob(actions: Any, mean: Any, log_std: Any) -> Any:
    """Log density of a diagonal Gaussian, summed over the action axis (array-API arrays)."""
    z = (actions - mean) * _exp(-log_std)
    return (-0.5 * z * z - log_std - 0.5 * LOG_TWO_PI).sum(-1)


def _exp(x: Any) -> Any:
    if isinstance(x, np.ndarray):
        return np.exp(x)
    import jax.numpy as jnp

    return jnp.exp(x)
