"""What an update carries from one gradient step to the next: weights, Adam's state, and each member's diagnostics."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Weights = dict[str, Any]

_BETA1, _BETA2 = 0.9, 0.999
_SUMMED = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "grad_norm", "minibatches", "steps")

_barrier: Any = jax.lax.optimization_barrier


class Adam(NamedTuple):
    """Adam's state; ``step`` is (M,), the moments have the weights' shapes."""

    step: Any
    first: Weights
    second: Weights


def initial_adam(weights: Weights, members: int) -> Adam:
    """Zero moments for stacked weights, as numpy arrays: JAX would compile for each shape by itself."""
    return Adam(
        step=np.zeros(members, np.int32),
        first={name: np.zeros_like(value) for name, value in weights.items()},
        second={name: np.zeros_like(value) for name, value in weights.items()},
    )


def adam_step(
    weights: Weights, adam: Adam, gradient: Weights, *, learning_rate: Any, active: Any, epsilon: float = 1e-5
) -> tuple[Weights, Adam]:
    """Take one step of Adam (0.9, 0.999) where ``active``; elsewhere weights and state keep their values.

    :param epsilon: the divisor's addend: 1e-5 in SB3's PPO, 1e-8 in its SAC.
    """
    step = adam.step + 1
    t = step.astype(learning_rate.dtype)
    # 1 - beta^t by expm1: in float32 the plain difference loses half its digits at the first steps.
    correction1 = -jnp.expm1(t * math.log(_BETA1))
    correction2 = -jnp.expm1(t * math.log(_BETA2))
    first = {n: _BETA1 * adam.first[n] + (1.0 - _BETA1) * g for n, g in gradient.items()}
    second = {n: _BETA2 * adam.second[n] + (1.0 - _BETA2) * g * g for n, g in gradient.items()}
    new = _select(active, Adam(step, first, second), adam)
    # The weights' step reads what was stored. Without a barrier XLA computes the moments twice, from copies of the old ones.
    first, second = _barrier((new.first, new.second))
    rate = learning_rate / correction1
    root = jax.lax.rsqrt(correction2)
    stepped = {n: weights[n] - rate * first[n] / (jnp.sqrt(second[n]) * root + epsilon) for n in weights}
    return _select(active, stepped, weights), Adam(new.step, first, second)


def _select(condition: Any, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)


class TrainState(NamedTuple):
    """State of stacked members within an update."""

    weights: Weights
    adam: Adam
    active: Any
    """(M,) False once the member has stopped within this update."""
    not_finite: Any
    """(M,) True if the stop was a loss or gradient that is not finite."""
    sums: dict[str, Any]
    """(M,) sums of the diagnostics over minibatches, and the numbers of ``minibatches`` and gradient ``steps``."""


def initial_state(weights: Weights, adam: Adam) -> TrainState:
    """The state at the start of an update, as numpy arrays."""
    members, dtype = len(adam.step), next(iter(weights.values())).dtype
    return TrainState(
        weights,
        adam,
        active=np.ones(members, bool),
        not_finite=np.zeros(members, bool),
        sums={name: np.zeros(members, dtype) for name in _SUMMED},
    )


def diagnostics_of(state: TrainState) -> dict[str, Any]:
    """Per member the means of the diagnostics over its minibatches, the numbers of ``minibatches`` and gradient ``steps``,
    ``not_finite``, and for continuous actions the mean standard deviation, ``std``."""
    count = np.maximum(state.sums["minibatches"], 1.0)
    means = {n: s if n in ("minibatches", "steps") else s / count for n, s in state.sums.items()}
    log_std = state.weights.get("log_std")
    deviation = {} if log_std is None else {"std": np.exp(log_std).mean(-1)}
    return {**means, **deviation, "not_finite": state.not_finite}
