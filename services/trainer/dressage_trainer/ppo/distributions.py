"""Action distributions: a diagonal Gaussian for boxes, a categorical distribution for discrete actions.

A rollout samples in numpy, from noise that is drawn at its start from each member's own generator, so that members never
move each other's streams. The update evaluates the sampled actions again in JAX (`log_prob_and_entropy`).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from dressage.errors import InvalidArgument

from dressage_trainer.ppo.interfaces import Arrays, Environment

LOG_TWO_PI = float(np.log(2.0 * np.pi))


@dataclass(frozen=True)
class ActionSpace:
    """The actions of an environment.

    :param size: components of a box action; 1 for discrete actions.
    :param num_actions: number of discrete actions, 0 .. num_actions - 1; None for a box.
    """

    size: int
    num_actions: int | None = None

    @property
    def discrete(self) -> bool:
        """Whether actions are discrete."""
        return self.num_actions is not None

    @property
    def outputs(self) -> int:
        """Outputs of the policy network: means, or logits."""
        return self.size if self.num_actions is None else self.num_actions


def action_space_of(environment: Environment) -> ActionSpace:
    """Return the action space of an environment.

    :raises InvalidArgument: for discrete actions with several components, or fewer than two actions.
    """
    count = getattr(environment, "num_actions", 0)  # 0 for a box
    if not count:
        return ActionSpace(environment.action_size)
    if environment.action_size != 1 or count < 2:
        got = f"{count} actions in {environment.action_size} components"
        raise InvalidArgument(field="environment.num_actions", value=got, expected="at least 2 in one component")
    return ActionSpace(1, int(count))


class Distribution(Protocol):
    """Samples the actions of a rollout of M members, T steps and n environments."""

    def start(self, weights: Arrays, generators: list[np.random.Generator], shape: tuple[int, int]) -> None:
        """Take the members' weights and draw the noise of (T, n) steps."""

    def sample(self, index: int, output: np.ndarray) -> np.ndarray:
        """Sample the (M, n, A) actions of step ``index`` from the network's (M, n, outputs), which may be overwritten."""

    def for_environment(self, action: np.ndarray) -> np.ndarray:
        """Convert (M, n, A) actions to the environment's input: (M * n, A), or (M * n,) integers."""

    def log_probs(self) -> np.ndarray:
        """Return the (M, T, n) log probabilities of the rollout's actions."""


class DiagGaussian:
    """A diagonal Gaussian; as in SB3, the environment gets the sample clipped to the action's bounds."""

    def __init__(self, environment: Environment, dtype: Any) -> None:
        self._low, self._high, self._dtype = environment.action_low, environment.action_high, dtype
        self._size = environment.action_size
        self._noise = self._scaled = self._log_std = np.zeros(0)

    def start(self, weights: Arrays, generators: list[np.random.Generator], shape: tuple[int, int]) -> None:
        self._log_std = weights["log_std"][:, None, None, :]
        self._noise = np.stack([g.standard_normal((*shape, self._size), dtype=self._dtype) for g in generators])
        self._scaled = self._noise * np.exp(self._log_std)

    def sample(self, index: int, output: np.ndarray) -> np.ndarray:
        output += self._scaled[:, index]
        return output

    def for_environment(self, action: np.ndarray) -> np.ndarray:
        clipped: np.ndarray = np.clip(action.reshape(-1, self._size), self._low, self._high)
        return clipped

    def log_probs(self) -> np.ndarray:
        total: np.ndarray = -0.5 * np.square(self._noise).sum(-1) - (self._log_std + 0.5 * LOG_TWO_PI).sum(-1)
        return total


class Categorical:
    """Discrete actions, sampled by inverting the cumulative distribution at one uniform number each."""

    def __init__(self, dtype: Any) -> None:
        self._dtype = dtype
        self._uniform = np.zeros(0)
        self._log_probs = np.zeros(0)

    def start(self, weights: Arrays, generators: list[np.random.Generator], shape: tuple[int, int]) -> None:
        self._uniform = np.stack([g.random((*shape, 1)) for g in generators])
        self._log_probs = np.empty((len(generators), *shape), self._dtype)

    def sample(self, index: int, output: np.ndarray) -> np.ndarray:
        log_p = log_softmax(output)
        below = np.cumsum(np.exp(log_p.astype(np.float64)), axis=-1)[..., :-1] <= self._uniform[:, index]
        action: np.ndarray = below.sum(axis=-1, keepdims=True)
        self._log_probs[:, index] = np.take_along_axis(log_p, action, axis=-1)[..., 0]
        sampled: np.ndarray = action.astype(self._dtype)
        return sampled

    def for_environment(self, action: np.ndarray) -> np.ndarray:
        return action.reshape(-1).astype(np.int64)

    def log_probs(self) -> np.ndarray:
        return self._log_probs


def make_distribution(environment: Environment, dtype: Any) -> Distribution:
    """Return the distribution over an environment's action space."""
    return Categorical(dtype) if action_space_of(environment).discrete else DiagGaussian(environment, dtype)


def draw_noise(generators: list[np.random.Generator], shape: tuple[int, int], space: ActionSpace, dtype: Any) -> Any:
    """Draw what sampling on a device needs, by JAX, from a key of each member's own generator.

    :param shape: (T, n).
    :returns: (T, M, n, A) normal numbers, or for discrete actions (T, M, n, 1) uniform ones.
    """
    words = np.stack([generator.integers(2**32, size=2, dtype=np.uint32) for generator in generators])
    noise = _noise_function()
    return noise(words, shape=shape, size=space.size, discrete=space.discrete, dtype=np.dtype(dtype))


@functools.cache
def _noise_function() -> Any:
    import jax

    def noise(words: Any, *, shape: tuple[int, int], size: int, discrete: bool, dtype: Any) -> Any:
        draw = jax.random.uniform if discrete else jax.random.normal
        members = jax.vmap(lambda key: draw(key, (*shape, size), dtype))(jax.random.wrap_key_data(words))
        return members.swapaxes(0, 1)

    return jax.jit(noise, static_argnames=("shape", "size", "discrete", "dtype"))


def sample_in_jax(weights: dict[str, Any], output: Any, noise: Any, *, discrete: bool) -> tuple[Any, Any]:
    """Sample one member's actions as `Distribution` does, in JAX.

    :param output: (n, outputs) of the policy network.
    :param noise: (n, A), see `draw_noise`.
    :returns: (n, A) actions, not clipped, and (n,) their log probabilities.
    """
    import jax
    import jax.numpy as jnp

    if not discrete:
        log_std = weights["log_std"]
        log_prob = -0.5 * jnp.square(noise).sum(-1) - (log_std + 0.5 * LOG_TWO_PI).sum(-1)
        return output + noise * jnp.exp(log_std), log_prob
    log_p = jax.nn.log_softmax(output)
    below = jnp.cumsum(jnp.exp(log_p), axis=-1)[..., :-1] <= noise
    action = below.sum(axis=-1, keepdims=True)
    return action.astype(output.dtype), jnp.take_along_axis(log_p, action, axis=-1)[..., 0]


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Logarithms of the probabilities over the last axis."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    result: np.ndarray = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return result


def log_prob_and_entropy(weights: dict[str, Any], output: Any, actions: Any, *, discrete: bool) -> tuple[Any, Any]:
    """Evaluate one member's sampled actions, in JAX.

    :param output: (rows, outputs) of the policy network.
    :param actions: (rows, A).
    :returns: (rows,) log probabilities and the policy's mean entropy.
    """
    import jax
    import jax.numpy as jnp

    if not discrete:
        log_std = weights["log_std"]
        z = (actions - output) * jnp.exp(-log_std)
        log_prob = (-0.5 * z * z - log_std - 0.5 * LOG_TWO_PI).sum(-1)
        return log_prob, (log_std + 0.5 * (1.0 + LOG_TWO_PI)).sum()
    log_p = jax.nn.log_softmax(output)
    # A comparison and a sum: the gradient of an indexed read would be a scatter, which is slow.
    chosen = jnp.arange(output.shape[-1]) == actions
    return jnp.where(chosen, log_p, 0.0).sum(-1), -(jnp.exp(log_p) * log_p).sum(-1).mean()
