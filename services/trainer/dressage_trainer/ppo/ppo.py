"""Proximal policy optimisation (Schulman et al., 2017) of many members at once, from rollout to log.

The page reads top to bottom in Stable-Baselines3's order and follows its arithmetic: `collect_rollouts` →
`compute_returns_and_advantage` → `train` (epochs, minibatches, `loss`, clipped gradient, Adam) → `PPO.log`.

Members are trainings of equal shape, each with its own seed and coefficients. Their arrays are stacked along a leading
axis (M), and no arithmetic crosses it, so a member learns the same alone and in company. Collection is numpy: a step's few
hundred rows are done before a compiled call would have been dispatched; for thousands on a device there is
`device_collection`. The update is compiled by JAX; its functions are written for one member, and `train` and
`update_functions` map them over all.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from dressage_trainer.ppo import members as group
from dressage_trainer.ppo.distributions import action_space_of, log_prob_and_entropy, make_distribution
from dressage_trainer.ppo.interfaces import Arrays, Environment, Reward
from dressage_trainer.ppo.members import MemberSpec
from dressage_trainer.ppo.networks import TowerInference, forward
from dressage_trainer.ppo.normalizer import ReturnNormalizer
from dressage_trainer.ppo.train_state import Adam, TrainState, adam_step, diagnostics_of, initial_adam, initial_state
from dressage_trainer.ppo.vec_env import VecEnv

Metrics = dict[str, float | None]
Weights = dict[str, Any]


class RolloutBuffer(NamedTuple):
    """One rollout of M members, T steps and n environments."""

    observations: Any
    """(M, T, n, D) normalised, before each step."""
    actions: Any
    """(M, T, n, A) as sampled, not clipped; A is 1 for discrete actions."""
    log_probs: Any
    """(M, T, n) under the policy that sampled them."""
    rewards: Any
    """(M, T, n) normalised; that of a truncated step includes discount * V(final observation)."""
    dones: Any
    """(M, T, n) 1.0 where the episode ended with the step."""
    last_observation: Any
    """(M, n, D) normalised, after the last step."""


class Coefficients(NamedTuple):
    """Hyperparameters that the update reads, each of shape (M,): members of a group may differ in them."""

    learning_rate: Any
    clip_range: Any
    entropy_coef: Any
    value_coef: Any
    max_grad_norm: Any
    target_kl: Any
    """Infinity where there is no early stop."""
    epochs: Any
    """Integer; 0 leaves the member as it is."""
    discount: Any
    gae_lambda: Any


def coefficients_of(
    members: Sequence[MemberSpec], *, stopped: np.ndarray, rates: np.ndarray | None = None, dtype: Any
) -> Coefficients:
    """Stack the members' coefficients.

    :param stopped: (M,) True for members that train no more; they get 0 epochs.
    :param rates: (M,) learning rates; None: those of the hyperparameters.
    """

    def column(name: str) -> np.ndarray:
        return np.array([getattr(member.hyperparameters, name) for member in members], dtype)

    limits = [member.hyperparameters.target_kl for member in members]
    epochs = np.array([member.hyperparameters.epochs for member in members], np.int32)
    own = ("learning_rate", "target_kl", "epochs")
    return Coefficients(
        **{name: column(name) for name in Coefficients._fields if name not in own},
        learning_rate=column("learning_rate") if rates is None else rates.astype(dtype),
        target_kl=np.array([np.inf if limit is None else limit for limit in limits], dtype),
        epochs=np.where(stopped, 0, epochs).astype(np.int32),
    )


class Collector(Protocol):
    """What collects rollouts for `PPO`."""

    generators: list[np.random.Generator]
    """Of the members' action noise."""
    returns: ReturnNormalizer
    last_observation: np.ndarray | None
    """(M, n, D) normalised; None before `start`."""

    def start(self) -> np.ndarray:
        """Reset the environments unless they have been; the (M, n, D) observations to act on next."""

    def collect_rollouts(self, weights: Weights) -> RolloutBuffer:
        """Act for T steps with the given stacked weights."""


class RolloutCollector:
    """Collects rollouts of M members x n environments.

    :param members: of equal shape.
    :param env: their environments, with rewards and normalised observations.
    :param generators: of the members' action noise.
    """

    def __init__(
        self, members: Sequence[MemberSpec], env: VecEnv, generators: list[np.random.Generator], *, dtype: Any
    ) -> None:
        settings = members[0].hyperparameters
        self.env, self.generators = env, generators
        self.last_observation: np.ndarray | None = None
        self._num_steps, self._dtype = settings.num_steps, dtype
        self._discounts = np.array([member.hyperparameters.discount for member in members])
        clips = np.array([member.hyperparameters.reward_clip for member in members])
        self.returns = ReturnNormalizer(env.num_envs, self._discounts, clips, enabled=settings.normalize_reward)
        self._actions = make_distribution(env.environment, dtype)
        self._policy, self._value = (TowerInference(tower, len(settings.hidden_sizes)) for tower in ("pi", "vf"))

    def start(self) -> np.ndarray:
        """Reset the environments unless they have been; the (M, n, D) observations to act on next."""
        if self.last_observation is None:
            self.last_observation = self.env.reset()
        return self.last_observation

    def collect_rollouts(self, weights: Weights) -> RolloutBuffer:
        """Act for T steps with the given stacked weights."""
        observation = self.start()
        m, t, n = self.env.members, self._num_steps, self.env.num_envs
        self._policy.load(weights)
        self._value.load(weights)
        self._actions.start(weights, self.generators, (t, n))
        # One batch steps all members: collectors in lanes of their own are not faster (decision 0030).
        observations = np.empty((m, t, n, observation.shape[-1]), self._dtype)
        actions = np.empty((m, t, n, self.env.environment.action_size), self._dtype)
        raw_rewards, dones = np.empty((m, t, n)), np.zeros((m, t, n))
        timeouts: list[tuple[int, np.ndarray, np.ndarray]] = []
        for index in range(t):
            observations[:, index] = observation
            action = self._actions.sample(index, self._policy(observation))
            actions[:, index] = action
            step = self.env.step(self._actions.for_environment(action))
            observation, raw_rewards[:, index], dones[:, index] = step.observation, step.reward, step.done
            if len(step.timeouts):
                timeouts.append((index, step.timeouts, step.final_observation))
        self.last_observation = observation
        rewards = self.returns.normalize(raw_rewards, dones)
        self.env.faults.check_return_statistics(self.returns.overflows, raw_rewards, step=self.env.steps)
        # A time limit ends an episode whose state still has a value: bootstrap, as SB3 does.
        for index, rows, final in timeouts:
            going = ~self.env.faults.mask()[rows // n]
            owners, columns = rows[going] // n, rows[going] % n
            values = self._value.rows_of(owners, final[going])[:, 0]
            rewards[owners, index, columns] += self._discounts[owners] * values
        log_probs = self._actions.log_probs().astype(self._dtype, copy=False)
        rewards, dones = rewards.astype(self._dtype), dones.astype(self._dtype)
        return RolloutBuffer(observations, actions, log_probs, rewards, dones, observation)


def compute_returns_and_advantage(
    rewards: Any, values: Any, dones: Any, last_value: Any, *, discount: Any, gae_lambda: Any
) -> tuple[Any, Any]:
    """Generalised advantage estimation over (T, n) for one member: the returns (value targets) and the advantages."""

    def step(carry: tuple[Any, Any], row: tuple[Any, Any, Any]) -> tuple[tuple[Any, Any], Any]:
        advantage, next_value = carry
        reward, value, done = row
        alive = 1.0 - done
        delta = reward + discount * next_value * alive - value
        advantage = delta + discount * gae_lambda * alive * advantage
        return (advantage, value), advantage

    start = (jnp.zeros_like(last_value), last_value)
    _, advantages = jax.lax.scan(step, start, (rewards, values, dones), reverse=True)
    return advantages + values, advantages


def samples_of(
    weights: Weights, rollout: RolloutBuffer, c: Coefficients, *, hidden_layers: int
) -> tuple[Any, dict[str, Any]]:
    """One member's rollout as rows of observation, action, log probability, advantage and return, so that a minibatch is
    one gather; and the diagnostics of the value network before the update."""
    steps, num_envs, size = rollout.observations.shape
    observations = rollout.observations.reshape(steps * num_envs, size)
    values = forward(weights, observations, tower="vf", hidden_layers=hidden_layers)[:, 0]
    last_value = forward(weights, rollout.last_observation, tower="vf", hidden_layers=hidden_layers)[:, 0]
    by_step = (rollout.rewards, values.reshape(steps, num_envs), rollout.dones)
    returns, advantages = compute_returns_and_advantage(
        *by_step, last_value, discount=c.discount, gae_lambda=c.gae_lambda
    )
    columns = jnp.stack([rollout.log_probs.ravel(), advantages.ravel(), returns.ravel()], axis=1)
    actions = rollout.actions.reshape(steps * num_envs, -1)
    variance = returns.var()
    explained_variance = jnp.where(variance > 0, 1.0 - (returns.ravel() - values).var() / variance, jnp.nan)
    return jnp.concatenate([observations, actions, columns], axis=1), {
        "explained_variance": explained_variance,
        "value_mean": values.mean(),
        "return_target_mean": returns.mean(),
    }


def train(
    state: TrainState, samples: Any, orders: Any, c: Coefficients, first: Any, last: Any, **settings: Any
) -> TrainState:
    """Epochs ``first`` to ``last`` (excluded) of all members. Ends early once every member has had its epochs or has
    stopped. Each step of a stopped member is a select and never a branch, so it changes no other member's numbers.

    :param samples: (M, T * n, D + A + 3), see `samples_of`.
    :param orders: (epochs, M, T * n) integer permutations of the samples.
    """
    run_epoch: Any = jax.vmap(functools.partial(train_epoch, **settings))

    def active(epoch: Any, state: TrainState) -> Any:
        return state.active & (epoch < c.epochs)

    def body(carry: tuple[Any, TrainState]) -> tuple[Any, TrainState]:
        epoch, state = carry
        return epoch + 1, run_epoch(state._replace(active=active(epoch, state)), samples, orders[epoch], c)

    def condition(carry: tuple[Any, TrainState]) -> Any:
        epoch, state = carry
        return (epoch < last) & jnp.any(active(epoch, state))

    end: TrainState = jax.lax.while_loop(condition, body, (first, state))[1]
    return end


def train_epoch(
    state: TrainState, samples: Any, order: Any, c: Coefficients, *, minibatch_size: int, **shapes: Any
) -> TrainState:
    """One member's pass over its samples in minibatches; a last, smaller minibatch is used as SB3 uses it."""
    full = len(order) // minibatch_size
    step: Callable[[TrainState, Any], TrainState] = functools.partial(gradient_step, c=c, **shapes)
    state, _ = jax.lax.scan(
        lambda carry, index: (step(carry, samples[index]), None),
        state,
        order[: full * minibatch_size].reshape(full, minibatch_size),
    )
    if len(order) > full * minibatch_size:
        state = step(state, samples[order[full * minibatch_size :]])
    return state


def gradient_step(state: TrainState, minibatch: Any, *, c: Coefficients, **shapes: Any) -> TrainState:
    """One member's step on a minibatch, unless it has stopped before or its approximate KL is too large now."""
    (value, diagnostics), gradient = jax.value_and_grad(loss, has_aux=True)(state.weights, minibatch, c, **shapes)
    norm = jnp.sqrt(sum(jnp.vdot(g, g) for g in gradient.values()))
    finite = jnp.isfinite(norm) & jnp.isfinite(value)
    # SB3 stops at 1.5 times its `target_kl`.
    active = state.active & finite & ~(diagnostics["approx_kl"] > 1.5 * c.target_kl)
    # 1e-6 as in torch's `clip_grad_norm_`, which SB3 uses.
    scale = jnp.minimum(1.0, c.max_grad_norm / (norm + 1e-6))
    clipped = {n: g * scale for n, g in gradient.items()}
    weights, adam = adam_step(state.weights, state.adam, clipped, learning_rate=c.learning_rate, active=active)
    counted = state.active & finite
    diagnostics = {**diagnostics, "grad_norm": norm, "minibatches": 1.0}
    sums = {name: state.sums[name] + jnp.where(counted, number, 0.0) for name, number in diagnostics.items()}
    sums["steps"] = state.sums["steps"] + active
    return TrainState(weights, adam, active, state.not_finite | (state.active & ~finite), sums)


def loss(
    weights: Weights, minibatch: Any, c: Coefficients, *, hidden_layers: int, sizes: tuple[int, int], discrete: bool
) -> tuple[Any, dict[str, Any]]:
    """PPO's loss of a minibatch, and diagnostics; ``sizes`` are those of observations and actions."""
    d, a = sizes
    observations, actions = minibatch[:, :d], minibatch[:, d : d + a]
    old_log_prob, advantages, returns = (minibatch[:, d + a + i] for i in range(3))
    output = forward(weights, observations, tower="pi", hidden_layers=hidden_layers)
    values = forward(weights, observations, tower="vf", hidden_layers=hidden_layers)[:, 0]
    log_prob, entropy = log_prob_and_entropy(weights, output, actions, discrete=discrete)
    if minibatch.shape[0] > 1:
        # torch's `std` divides by n - 1.
        advantages = (advantages - advantages.mean()) / (advantages.std(ddof=1) + 1e-8)
    log_ratio = log_prob - old_log_prob
    ratio = jnp.exp(log_ratio)
    clipped = jnp.clip(ratio, 1.0 - c.clip_range, 1.0 + c.clip_range)
    policy_loss = -jnp.minimum(advantages * ratio, advantages * clipped).mean()
    value_loss = jnp.square(returns - values).mean()
    return policy_loss - c.entropy_coef * entropy + c.value_coef * value_loss, {
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": entropy,
        "approx_kl": (ratio - 1.0 - log_ratio).mean(),
        "clip_fraction": (jnp.abs(ratio - 1.0) > c.clip_range).astype(minibatch.dtype).mean(),
    }


class UpdateFunctions(NamedTuple):
    """The two compiled functions of an update. All arguments but ``orders`` (epochs, M, T * n) have the member axis first."""

    prepare: Any
    """``(weights, rollout, coefficients) -> (samples, diagnostics)``"""
    epochs: Any
    """``(state, samples, orders, coefficients, first, last) -> state``; the state passed in is used up."""


def update_functions(members: Sequence[MemberSpec], environment: Environment) -> UpdateFunctions:
    """Map the update over members; shapes fix what is compiled."""
    settings, space = members[0].hyperparameters, action_space_of(environment)
    hidden_layers, sizes = len(settings.hidden_sizes), (environment.observation_size, space.size)
    shapes: Any = dict(hidden_layers=hidden_layers, sizes=sizes, discrete=space.discrete)

    # Named functions: what is compiled, and kept from run to run, has their names.
    def update_prepare(weights: Weights, rollout: RolloutBuffer, c: Coefficients) -> Any:
        return jax.vmap(functools.partial(samples_of, hidden_layers=hidden_layers))(weights, rollout, c)

    def update_epochs(state: TrainState, samples: Any, orders: Any, c: Coefficients, first: Any, last: Any) -> Any:
        return train(state, samples, orders, c, first, last, minibatch_size=settings.minibatch_size, **shapes)

    return UpdateFunctions(jax.jit(update_prepare), jax.jit(update_epochs, donate_argnums=0))


Optimise = Callable[[Arrays, Adam, RolloutBuffer, np.ndarray, Coefficients], tuple[Arrays, Adam, Arrays]]
"""Runs an update: new weights, Adam's state and (M,) diagnostics from weights, Adam's state, rollout, minibatch orders and
coefficients. All are numpy arrays."""


def optimise_together(update: UpdateFunctions, *, dtype: Any = np.float32) -> Optimise:
    """Run updates plainly: one compiled call for all members."""

    def optimise(weights: Arrays, adam: Adam, rollout: RolloutBuffer, orders: np.ndarray, c: Coefficients) -> Any:
        # float64 for tests: in float32 a member alone and in a stack differ by rounding (decision 0001).
        with jax.enable_x64(dtype == np.float64):
            samples, before = update.prepare(weights, rollout, c)
            span = np.int32(0), np.int32(len(orders))
            state = update.epochs(initial_state(weights, adam), samples, orders, c, *span)
        state, before = jax.tree.map(np.array, (state, before))
        return state.weights, state.adam, {**before, **diagnostics_of(state)}

    return optimise


class PPO:
    """PPO of a group of members, which stands at an update boundary between two calls of `iterate`.

    :param members: of equal shape (`Hyperparameters.shape_key`).
    :param environment: M * num_envs rows; those of member m are [m * num_envs, (m + 1) * num_envs).
    :param optimise: runs the updates; None: `optimise_together`.
    :param collector: `RolloutCollector`, or another class that collects in its place.
    :param dtype: float32; float64 for equality tests.
    :param clock: seconds, monotonic; for the speeds in the log.
    """

    def __init__(
        self,
        members: Sequence[MemberSpec],
        *,
        environment: Environment,
        reward: Reward,
        optimise: Optimise | None = None,
        collector: Callable[..., Collector] | None = None,
        dtype: Any = np.float32,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        collector = collector or RolloutCollector
        self.members, self.updates = list(members), 0
        self._settings = group.shared_settings(members, num_envs=environment.num_envs)
        streams, self.env = streams_and_env(members, environment, reward, dtype=dtype)
        self.collector: Collector = collector(members, self.env, [s.noise for s in streams], dtype=dtype)
        self.order_generators = [s.order for s in streams]
        self.weights = group.first_weights(members, streams, environment, dtype=dtype)
        self.rates = group.AdaptiveRates(members)
        self.adam = initial_adam(self.weights, len(members))
        self._optimise = optimise or optimise_together(update_functions(members, environment), dtype=dtype)
        self._dtype, self._clock = dtype, clock

    def iterate(self) -> list[Metrics]:
        """One rollout and one update; the log, a row for each member."""
        began = self._clock()
        rollout = self.collector.collect_rollouts(self.weights)
        collected = self._clock()
        orders = group.minibatch_orders(self.members, self.order_generators)
        stopped = self.env.faults.mask()
        coefficients = coefficients_of(self.members, stopped=stopped, rates=self.rates.now, dtype=self._dtype)
        self.weights, self.adam, diagnostics = self._optimise(self.weights, self.adam, rollout, orders, coefficients)
        diagnostics["learning_rate"] = coefficients.learning_rate
        self.rates.adapt(diagnostics["approx_kl"], stopped=stopped)
        self.updates += 1
        self.env.faults.check_gradients(diagnostics.pop("not_finite"), update=self.updates, step=self.env.steps)
        return self.log(diagnostics, collect_seconds=collected - began, update_seconds=self._clock() - collected)

    def log(self, diagnostics: Arrays, *, collect_seconds: float, update_seconds: float) -> list[Metrics]:
        """A row of metrics for each member: speeds, episodes since training began, diagnostics of the update."""
        steps = self._settings.batch_size * len(self.members)
        speeds: Metrics = {
            "update": float(self.updates),
            "step": float(self.env.steps),
            "collect_steps_per_second": steps / max(collect_seconds, 1e-9),
            "update_steps_per_second": steps / max(update_seconds, 1e-9),
            "steps_per_second": steps / max(collect_seconds + update_seconds, 1e-9),
        }
        rows = []
        for index, episodes in enumerate(self.env.episodes.take()):
            row = {**speeds, **episodes, **{name: float(value[index]) for name, value in diagnostics.items()}}
            rows.append(finite_row(row))
        return rows


def streams_and_env(
    members: Sequence[MemberSpec], environment: Environment, reward: Reward, *, dtype: Any
) -> tuple[list[group.MemberStreams], VecEnv]:
    """Return each member's streams, and the environments that begin with their seeds."""
    settings = members[0].hyperparameters
    streams = [group.member_streams(member.seed, settings.num_envs) for member in members]
    return streams, VecEnv(
        environment,
        reward,
        clips=[member.hyperparameters.observation_clip for member in members],
        seeds=[seed for s in streams for seed in s.env_seeds],
        normalize_observation=settings.normalize_observation,
        dtype=dtype,
    )


def finite_row(row: Metrics) -> Metrics:
    """Return a row as JSON can hold it: an undefined figure is null."""
    return {name: value if value is not None and np.isfinite(value) else None for name, value in row.items()}
