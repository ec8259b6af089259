"""The whole PPO update of many members, compiled.

An update takes a rollout of M stacked members and returns their new weights: values, generalised advantages, then
epochs x minibatches of gradient steps, in SB3's order and arithmetic (`PPO.train`), with each member's own
coefficients. A 64 x 64 network's gradient step is mostly overhead; stacking members shares it. The epochs are a function of
their own that can be left after any epoch and gone on with elsewhere.

How it is laid out:

* A sample is one row (observation | action | log probability, advantage, return), so that a minibatch is one gather.
* An epoch is a `scan` over minibatches, vmapped over members; epochs are a `while_loop` outside the vmap, so that it
  ends once no member goes on (early stopping by KL, or fewer epochs).
* A member that has stopped (KL, its last epoch, a non-finite gradient) keeps its weights: each step is a select, never
  a branch, and no arithmetic crosses the member axis.
* Minibatch orders are an argument. They come from each member's own generator, which keeps members independent of
  their companions and lets a test feed SB3's order.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dressage_trainer.ppo.network import LOG_TWO_PI, forward, gaussian_log_prob

_ADAM_BETA1 = 0.9
_ADAM_BETA2 = 0.999
_ADAM_EPSILON = 1e-5
_LOG_BETA1 = math.log(_ADAM_BETA1)
_LOG_BETA2 = math.log(_ADAM_BETA2)
_KL_MARGIN = 1.5
_SUMMED = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "grad_norm", "minibatches", "steps")

_barrier: Any = jax.lax.optimization_barrier

Weights = dict[str, Any]


class Coefficients(NamedTuple):
    """Per-member numbers of the update, each of shape (M,)."""

    learning_rate: Any
    clip_range: Any
    entropy: Any
    value: Any
    max_grad_norm: Any
    target_kl: Any
    """Infinity where there is no early stop."""
    epochs: Any
    """Integer; 0 leaves the member as it is."""
    discount: Any
    gae_lambda: Any


class Adam(NamedTuple):
    """Adam's state; ``step`` is (M,), the moments have the weights' shapes."""

    step: Any
    first: Weights
    second: Weights


class Rollout(NamedTuple):
    """What a rollout hands over, each with a leading member axis."""

    observations: Any
    """(M, T, n, D) normalised, before each step."""
    actions: Any
    """(M, T, n, A) as sampled, unclipped; (M, T, n, 1) numbers of numbered actions."""
    log_probs: Any
    """(M, T, n)"""
    rewards: Any
    """(M, T, n) normalised; a truncated step's includes discount * V(final observation)."""
    dones: Any
    """(M, T, n) 1.0 where the episode ended with the step."""
    last_observation: Any
    """(M, n, D) normalised, after the last step."""


def initial_adam(weights: Weights, members: int) -> Adam:
    """Zero moments for stacked weights, as numpy arrays: in JAX each shape would be compiled for by itself."""
    return Adam(
        step=np.zeros(members, np.int32),
        first={name: np.zeros_like(value) for name, value in weights.items()},
        second={name: np.zeros_like(value) for name, value in weights.items()},
    )


def advantages_and_returns(
    rewards: Any, values: Any, dones: Any, last_value: Any, *, discount: Any, gae_lambda: Any
) -> tuple[Any, Any]:
    """Generalised advantage estimation over (T, n) for one member, and the value targets."""

    def step(carry: tuple[Any, Any], row: tuple[Any, Any, Any]) -> tuple[tuple[Any, Any], Any]:
        advantage, next_value = carry
        reward, value, done = row
        alive = 1.0 - done
        delta = reward + discount * next_value * alive - value
        advantage = delta + discount * gae_lambda * alive * advantage
        return (advantage, value), advantage

    start = (jnp.zeros_like(last_value), last_value)
    _, advantages = jax.lax.scan(step, start, (rewards, values, dones), reverse=True)
    return advantages, advantages + values


def _log_prob_and_entropy(weights: Weights, output: Any, actions: Any, *, discrete: bool) -> tuple[Any, Any]:
    """Log probabilities of the sampled actions, (rows,), and the policy's mean entropy."""
    if not discrete:
        log_std = weights["log_std"]
        return gaussian_log_prob(actions, output, log_std), (log_std + 0.5 * (1.0 + LOG_TWO_PI)).sum()
    log_p = jax.nn.log_softmax(output)
    # A comparison and a sum: the gradient of an indexed read would be a scatter, which is slow.
    chosen = jnp.arange(output.shape[-1]) == actions
    return jnp.where(chosen, log_p, 0.0).sum(-1), -(jnp.exp(log_p) * log_p).sum(-1).mean()


def _loss(
    weights: Weights, rows: Any, c: Coefficients, *, hidden_layers: int, sizes: tuple[int, int], discrete: bool
) -> tuple[Any, dict[str, Any]]:
    observation_size, action_size = sizes
    observations = rows[:, :observation_size]
    actions = rows[:, observation_size : observation_size + action_size]
    old_log_prob, advantages, returns = (rows[:, observation_size + action_size + i] for i in range(3))
    output = forward(weights, observations, tower="pi", hidden_layers=hidden_layers)
    values = forward(weights, observations, tower="vf", hidden_layers=hidden_layers)[:, 0]
    log_prob, entropy = _log_prob_and_entropy(weights, output, actions, discrete=discrete)

    if rows.shape[0] > 1:
        advantages = (advantages - advantages.mean()) / (advantages.std(ddof=1) + 1e-8)
    log_ratio = log_prob - old_log_prob
    ratio = jnp.exp(log_ratio)
    clipped = jnp.clip(ratio, 1.0 - c.clip_range, 1.0 + c.clip_range)
    policy_loss = -jnp.minimum(advantages * ratio, advantages * clipped).mean()
    value_loss = jnp.square(returns - values).mean()
    total = policy_loss - c.entropy * entropy + c.value * value_loss
    seen = {
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": entropy,
        "approx_kl": (ratio - 1.0 - log_ratio).mean(),
        "clip_fraction": (jnp.abs(ratio - 1.0) > c.clip_range).astype(rows.dtype).mean(),
    }
    return total, seen


def _adam(weights: Weights, adam: Adam, gradient: Weights, learning_rate: Any, go_on: Any) -> tuple[Weights, Adam]:
    """One step where ``go_on``; all as it was elsewhere."""
    step = adam.step + 1
    t = step.astype(learning_rate.dtype)
    # 1 - beta^t by expm1: in float32 the plain difference loses half its digits at the first steps.
    correction1 = -jnp.expm1(t * _LOG_BETA1)
    correction2 = -jnp.expm1(t * _LOG_BETA2)
    first = {n: _ADAM_BETA1 * adam.first[n] + (1.0 - _ADAM_BETA1) * g for n, g in gradient.items()}
    second = {n: _ADAM_BETA2 * adam.second[n] + (1.0 - _ADAM_BETA2) * g * g for n, g in gradient.items()}
    new = _where(go_on, Adam(step, first, second), adam)
    # The weights' step reads what was stored. Without a barrier XLA computes the moments twice, from copies of the old ones.
    first, second = _barrier((new.first, new.second))
    rate = learning_rate / correction1
    root = jax.lax.rsqrt(correction2)
    stepped = {n: weights[n] - rate * first[n] / (jnp.sqrt(second[n]) * root + _ADAM_EPSILON) for n in weights}
    return _where(go_on, stepped, weights), Adam(new.step, first, second)


def _where(condition: Any, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)


class Progress(NamedTuple):
    """What a member carries from one gradient step to the next."""

    weights: Weights
    adam: Adam
    on: Any
    """False once the member has stopped within this update."""
    broken: Any
    """True where the stop was a non-finite loss or gradient."""
    sums: dict[str, Any]
    """Sums of the diagnostics over the minibatches seen, and their ``minibatches`` and gradient ``steps``."""


def begin(weights: Weights, adam: Adam) -> Progress:
    """Where the epochs of stacked members begin, as numpy arrays."""
    members, dtype = len(adam.step), next(iter(weights.values())).dtype
    return Progress(
        weights,
        adam,
        on=np.ones(members, bool),
        broken=np.zeros(members, bool),
        sums={name: np.zeros(members, dtype) for name in _SUMMED},
    )


def means(progress: Progress) -> dict[str, Any]:
    """Per member the means of the diagnostics over its minibatches, the ``minibatches`` counted, the gradient ``steps``
    taken, whether it is ``broken`` (non-finite), and the mean deviation of its actions, ``std``, where it has one."""
    count = np.maximum(progress.sums["minibatches"], 1.0)
    seen = {n: s if n in ("minibatches", "steps") else s / count for n, s in progress.sums.items()}
    log_std = progress.weights.get("log_std")
    deviation = {} if log_std is None else {"std": np.exp(log_std).mean(-1)}
    return {**seen, **deviation, "broken": progress.broken}


def _gradient_step(member: Progress, rows: Any, *, c: Coefficients, **static: Any) -> Progress:
    (loss, seen), gradient = jax.value_and_grad(_loss, has_aux=True)(member.weights, rows, c, **static)
    norm = jnp.sqrt(sum(jnp.vdot(g, g) for g in gradient.values()))
    finite = jnp.isfinite(norm) & jnp.isfinite(loss)
    go_on = member.on & finite & ~(seen["approx_kl"] > _KL_MARGIN * c.target_kl)
    scale = jnp.minimum(1.0, c.max_grad_norm / (norm + 1e-6))
    clipped = {n: g * scale for n, g in gradient.items()}
    weights, adam = _adam(member.weights, member.adam, clipped, c.learning_rate, go_on)
    counted = member.on & finite
    seen = {**seen, "grad_norm": norm, "minibatches": 1.0}
    sums = {name: member.sums[name] + jnp.where(counted, value, 0.0) for name, value in seen.items()}
    sums["steps"] = member.sums["steps"] + go_on
    return Progress(weights, adam, go_on, member.broken | (member.on & ~finite), sums)


def _epoch(
    member: Progress, samples: Any, order: Any, c: Coefficients, *, minibatch_size: int, **static: Any
) -> Progress:
    full = len(order) // minibatch_size
    step: Callable[[Progress, Any], Progress] = functools.partial(_gradient_step, c=c, **static)
    member, _ = jax.lax.scan(
        lambda carry, index: (step(carry, samples[index]), None),
        member,
        order[: full * minibatch_size].reshape(full, minibatch_size),
    )
    if len(order) > full * minibatch_size:
        member = step(member, samples[order[full * minibatch_size :]])
    return member


def _epochs(
    stack: Progress,
    samples: Any,
    orders: Any,
    c: Coefficients,
    first: Any,
    last: Any,
    *,
    minibatch_size: int,
    hidden_layers: int,
    sizes: tuple[int, int],
    discrete: bool = False,
) -> Progress:
    """Epochs ``first`` to ``last`` (excluded) x minibatches of gradient steps for M members.

    :param samples: (M, B, D + A + 3) rows of observation, action, log probability, advantage, return.
    :param orders: (epochs, M, B) integer permutations of the rows.
    :param sizes: (D, A); A is 1 for numbered actions.
    :param discrete: whether actions are numbered.
    """
    run_epoch = jax.vmap(
        functools.partial(
            _epoch, minibatch_size=minibatch_size, hidden_layers=hidden_layers, sizes=sizes, discrete=discrete
        )
    )

    def wanted(epoch: Any, stack: Progress) -> Any:
        return stack.on & (epoch < c.epochs)

    def body(carry: tuple[Any, Progress]) -> tuple[Any, Progress]:
        epoch, stack = carry
        return epoch + 1, run_epoch(stack._replace(on=wanted(epoch, stack)), samples, orders[epoch], c)

    def condition(carry: tuple[Any, Progress]) -> Any:
        epoch, stack = carry
        return (epoch < last) & jnp.any(wanted(epoch, stack))

    end: Progress = jax.lax.while_loop(condition, body, (first, stack))[1]
    return end


def _prepare(weights: Weights, rollout: Rollout, c: Coefficients, *, hidden_layers: int) -> tuple[Any, dict[str, Any]]:
    """One member's rollout as sample rows, and what can be said of it before the update."""
    steps, num_envs, size = rollout.observations.shape
    observations = rollout.observations.reshape(steps * num_envs, size)
    values = forward(weights, observations, tower="vf", hidden_layers=hidden_layers)[:, 0]
    last_value = forward(weights, rollout.last_observation, tower="vf", hidden_layers=hidden_layers)[:, 0]
    advantages, returns = advantages_and_returns(
        rollout.rewards,
        values.reshape(steps, num_envs),
        rollout.dones,
        last_value,
        discount=c.discount,
        gae_lambda=c.gae_lambda,
    )
    columns = jnp.stack([rollout.log_probs.ravel(), advantages.ravel(), returns.ravel()], axis=1)
    actions = rollout.actions.reshape(steps * num_envs, -1)
    variance = returns.var()
    explained = jnp.where(variance > 0, 1.0 - (returns.ravel() - values).var() / variance, jnp.nan)
    return jnp.concatenate([observations, actions, columns], axis=1), {
        "explained_variance": explained,
        "value_mean": values.mean(),
        "return_target_mean": returns.mean(),
    }


class Update(NamedTuple):
    """The two compiled functions of an update. All arguments but ``orders`` (epochs, M, T * n) have the member axis in
    front; shapes fix what is compiled."""

    prepare: Any
    """``(weights, rollout, coefficients) -> (samples, diagnostics)``"""
    epochs: Any
    """``(progress, samples, orders, coefficients, first, last) -> progress``; the progress given is used up."""


def build_update(*, minibatch_size: int, hidden_layers: int, sizes: tuple[int, int], discrete: bool = False) -> Update:
    """The update for networks and actions of these sizes."""

    # Named functions: what is compiled, and kept from run to run, has their names.
    def update_prepare(weights: Weights, rollout: Rollout, c: Coefficients) -> Any:
        return jax.vmap(functools.partial(_prepare, hidden_layers=hidden_layers))(weights, rollout, c)

    def update_epochs(progress: Progress, samples: Any, orders: Any, c: Coefficients, first: Any, last: Any) -> Any:
        static: Any = dict(hidden_layers=hidden_layers, sizes=sizes, discrete=discrete)
        return _epochs(progress, samples, orders, c, first, last, minibatch_size=minibatch_size, **static)

    return Update(jax.jit(update_prepare), jax.jit(update_epochs, donate_argnums=0))
