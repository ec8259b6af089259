"""The squashed Gaussian actor and the twin critics, as SB3's SACPolicy: rectified units, torch's initial weights.

The actor's weights are named as in the policy bundle ("pi.0.weight", "action.bias", "log_std.weight", ...), the critics'
"q0.0.weight", "q0.value.weight", "q1....". Weights are (out, in).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dressage_trainer.ppo.distributions import LOG_TWO_PI
from dressage_trainer.ppo.networks import TowerInference, dense, hidden_names

Arrays = dict[str, np.ndarray]
Weights = dict[str, Any]

CRITICS = ("q0", "q1")
_LOG_STD = (-20.0, 2.0)
_CLOSE_TO_ONE = 1e-6
"""Keeps the logarithm of 1 - tanh^2 finite, as in SB3."""


def initial_weights(
    *, observation_size: int, action_size: int, hidden_sizes: tuple[int, ...], rng: np.random.Generator, dtype: Any
) -> tuple[Arrays, Arrays]:
    """Draw a member's actor and critics, uniformly within 1 / sqrt(inputs), as torch's linear layers are."""

    def layers(tower: str, inputs: int, heads: dict[str, int]) -> Arrays:
        weights: Arrays = {}
        hidden = zip(hidden_names(tower, len(hidden_sizes)), (inputs, *hidden_sizes), hidden_sizes, strict=False)
        ends = [(name, hidden_sizes[-1], units) for name, units in heads.items()]
        for name, fan_in, units in [*hidden, *ends]:
            bound = 1.0 / np.sqrt(fan_in)
            weights[f"{name}.weight"] = rng.uniform(-bound, bound, (units, fan_in)).astype(dtype)
            weights[f"{name}.bias"] = rng.uniform(-bound, bound, units).astype(dtype)
        return weights

    actor = layers("pi", observation_size, {"action": action_size, "log_std": action_size})
    critics = [layers(name, observation_size + action_size, {f"{name}.value": 1}) for name in CRITICS]
    return actor, {name: value for critic in critics for name, value in critic.items()}


class ActorInference:
    """The actors of stacked members in numpy."""

    def __init__(self, hidden_layers: int) -> None:
        self._tower = TowerInference("pi", hidden_layers, heads=("action", "log_std"), relu=True)

    def load(self, actor: Arrays) -> None:
        """Take the members' present weights."""
        self._tower.load(actor)

    def sample(self, observations: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """(M, n, D) normalised observations and (M, n, A) standard normal noise to (M, n, A) actions within [-1, 1]."""
        mean, log_std = np.split(self._tower(observations), 2, axis=-1)
        actions: np.ndarray = np.tanh(mean + np.exp(np.clip(log_std, *_LOG_STD)) * noise)
        return actions


def act(actor: Weights, observations: Any, noise: Any, *, hidden_layers: int) -> tuple[Any, Any]:
    """One member's actions within [-1, 1] for given noise, and their log probabilities, in JAX: (rows, A) and (rows,)."""
    x = observations
    for name in hidden_names("pi", hidden_layers):
        x = jax.nn.relu(dense(actor, x, name))
    mean, log_std = dense(actor, x, "action"), jnp.clip(dense(actor, x, "log_std"), *_LOG_STD)
    actions = jnp.tanh(mean + jnp.exp(log_std) * noise)
    gaussian = (-0.5 * noise * noise - log_std - 0.5 * LOG_TWO_PI).sum(-1)
    return actions, gaussian - jnp.log(1.0 - actions * actions + _CLOSE_TO_ONE).sum(-1)


def values(critics: Weights, observations: Any, actions: Any, *, hidden_layers: int) -> tuple[Any, ...]:
    """Both critics' values of one member's actions, in JAX: (rows,) each."""
    inputs = jnp.concatenate([observations, actions], axis=-1)
    outputs = []
    for tower in CRITICS:
        x = inputs
        for name in hidden_names(tower, hidden_layers):
            x = jax.nn.relu(dense(critics, x, name))
        outputs.append(dense(critics, x, f"{tower}.value")[:, 0])
    return tuple(outputs)
