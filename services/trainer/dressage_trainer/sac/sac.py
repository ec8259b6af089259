"""Soft actor-critic (Haarnoja et al., 2018) of many members at once, from step to log.

The page reads top to bottom in Stable-Baselines3's order and follows its arithmetic: `SAC.collect` (a step of all
environments into the replay buffer) → `train` (gradient steps: temperature, critics, actor, targets) → `SAC.log`.

Members are trainings of equal shape, each with its own seed and coefficients, stacked as in `dressage_trainer.ppo.ppo`: no
arithmetic crosses the leading member axis (M). The steps are numpy; the gradient steps are compiled by JAX.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from dressage.training.sac import SacHyperparameters

from dressage_trainer.ppo import members as group
from dressage_trainer.ppo.interfaces import Arrays, Environment, Reward
from dressage_trainer.ppo.members import MemberSpec
from dressage_trainer.ppo.networks import stack
from dressage_trainer.ppo.ppo import Metrics, finite_row, streams_and_env
from dressage_trainer.ppo.train_state import Adam, adam_step, initial_adam
from dressage_trainer.sac.networks import ActorInference, act, initial_weights, values
from dressage_trainer.sac.replay import ReplayBuffer, Transitions

Weights = dict[str, Any]

_EPSILON = 1e-8
_SUMMED = ("policy_loss", "value_loss", "entropy_coefficient", "entropy_coefficient_loss", "value_mean")


class Coefficients(NamedTuple):
    """Hyperparameters that members of a group may differ in, each of shape (M,)."""

    learning_rate: Any
    discount: Any
    target_rate: Any
    entropy_coef: Any
    tune_entropy: Any
    """True where the coefficient is tuned, and ``entropy_coef`` unused."""


class Network(NamedTuple):
    """Weights and their Adam."""

    weights: Weights
    adam: Adam


class SacState(NamedTuple):
    """What gradient steps change; all arrays have the member axis first."""

    actor: Network
    critics: Network
    targets: Weights
    temperature: Network
    """``log``: the logarithm of the entropy coefficient."""
    active: Any
    """(M,) False for members that were stopped."""
    sums: dict[str, Any]
    """(M,) sums of the diagnostics over gradient steps."""


class Minibatches(NamedTuple):
    """Minibatches with the axes (G, M, B), normalised, and what the actions on them are drawn with."""

    transitions: Transitions
    noise: Any
    """(G, M, B, A) standard normal."""
    next_noise: Any
    """(G, M, B, A) standard normal, for the actions on the next observations."""


def train(state: SacState, minibatches: Minibatches, c: Coefficients, first: Any, last: Any, **shapes: Any) -> SacState:
    """Gradient steps ``first`` to ``last`` (excluded) of all members, one minibatch each."""
    step: Any = jax.vmap(functools.partial(gradient_step, **shapes))

    def body(index: Any, state: SacState) -> SacState:
        end: SacState = step(state, jax.tree.map(lambda x: x[index], minibatches), c)
        return end

    end: SacState = jax.lax.fori_loop(first, last, body, state)
    return end


def gradient_step(state: SacState, minibatch: Minibatches, c: Coefficients, *, hidden_layers: int) -> SacState:
    """One member's step on a minibatch, unless it was stopped or a loss is not finite."""
    batch, size = minibatch.transitions, minibatch.noise.shape[-1]
    actor, critics, log_temperature = state.actor.weights, state.critics.weights, state.temperature.weights["log"]
    temperature = jnp.where(c.tune_entropy, jnp.exp(log_temperature), c.entropy_coef)

    next_actions, next_log_prob = act(actor, batch.next_observations, minibatch.next_noise, hidden_layers=hidden_layers)
    next_values = values(state.targets, batch.next_observations, next_actions, hidden_layers=hidden_layers)
    next_value = jnp.minimum(*next_values) - temperature * next_log_prob
    target = batch.rewards + (1.0 - batch.terminations) * c.discount * next_value

    def critic_loss(critics: Weights) -> Any:
        current = values(critics, batch.observations, batch.actions, hidden_layers=hidden_layers)
        return 0.5 * sum(jnp.square(value - target).mean() for value in current)

    value_loss, critic_gradient = jax.value_and_grad(critic_loss)(critics)
    active = state.active & jnp.isfinite(value_loss)
    rates: Any = dict(learning_rate=c.learning_rate, epsilon=_EPSILON)
    critics, critics_adam = adam_step(critics, state.critics.adam, critic_gradient, active=active, **rates)

    def actor_loss(actor: Weights) -> tuple[Any, tuple[Any, Any]]:
        actions, log_prob = act(actor, batch.observations, minibatch.noise, hidden_layers=hidden_layers)
        value = jnp.minimum(*values(critics, batch.observations, actions, hidden_layers=hidden_layers))
        return (temperature * log_prob - value).mean(), (log_prob, value.mean())

    (policy_loss, (log_prob, value_mean)), actor_gradient = jax.value_and_grad(actor_loss, has_aux=True)(actor)
    active = active & jnp.isfinite(policy_loss)
    actor, actor_adam = adam_step(actor, state.actor.adam, actor_gradient, active=active, **rates)

    # SB3's objective of the temperature, log α · (log π - A): its target entropy is -A, for A action components.
    excess = (log_prob - size).mean()
    tuned, tuned_adam = adam_step(
        {"log": log_temperature}, state.temperature.adam, {"log": -excess}, active=active & c.tune_entropy, **rates
    )
    targets = {
        name: jnp.where(active, (1.0 - c.target_rate) * old + c.target_rate * critics[name], old)
        for name, old in state.targets.items()
    }
    diagnostics = (policy_loss, value_loss, temperature, -log_temperature * excess, value_mean)
    sums = {n: state.sums[n] + jnp.where(active, v, 0.0) for n, v in zip(_SUMMED, diagnostics, strict=True)}
    return SacState(
        Network(actor, actor_adam), Network(critics, critics_adam), targets, Network(tuned, tuned_adam), active, sums
    )


def update_function(members: Sequence[MemberSpec]) -> Any:
    """Compile ``(state, minibatches, coefficients, first, last) -> state``; the state passed in is used up."""
    hidden_layers = len(members[0].hyperparameters.hidden_sizes)

    # A named function: what is compiled, and kept from run to run, has its name.
    def sac_update(state: SacState, minibatches: Minibatches, c: Coefficients, first: Any, last: Any) -> SacState:
        return train(state, minibatches, c, first, last, hidden_layers=hidden_layers)

    return jax.jit(sac_update, donate_argnums=0)


Optimise = Callable[[SacState, Minibatches, Coefficients], SacState]
"""Runs the gradient steps of G minibatches; numpy arrays in, numpy or JAX arrays out."""


def optimise_together(update: Any, *, dtype: Any = np.float32) -> Optimise:
    """Run updates plainly: one compiled call for all members."""

    def optimise(state: SacState, minibatches: Minibatches, c: Coefficients) -> SacState:
        with jax.enable_x64(dtype == np.float64):
            end: SacState = update(state, minibatches, c, np.int32(0), np.int32(len(minibatches.noise)))
        copied: SacState = jax.tree.map(np.array, end)
        return copied

    return optimise


class SAC:
    """SAC of a group of members, which stands at a boundary between two reports between two calls of `iterate`.

    :param members: of equal shape, with `SacHyperparameters`.
    :param environment: M * num_envs rows; those of member m are [m * num_envs, (m + 1) * num_envs).
    :param steps: environment steps of the training of each member, for the size of the replay buffer.
    :param optimise: runs the updates; None: `optimise_together`.
    :param dtype: float32; float64 for equality tests.
    :param clock: seconds, monotonic; for the speeds in the log.
    """

    def __init__(
        self,
        members: Sequence[MemberSpec],
        *,
        environment: Environment,
        reward: Reward,
        steps: int,
        optimise: Optimise | None = None,
        dtype: Any = np.float32,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.members, self.updates, self.gradient_steps = list(members), 0, 0
        self._settings = settings = settings_of(members)
        group.shared_settings(members, num_envs=environment.num_envs)
        streams, self.env = streams_and_env(members, environment, reward, dtype=dtype)
        self.noise_generators, self.batch_generators = [s.noise for s in streams], [s.order for s in streams]
        self.state = first_state(members, [s.weights for s in streams], environment, dtype=dtype)
        self.replay = ReplayBuffer(
            members=len(members),
            size=settings.buffer_size(steps),
            num_envs=settings.num_envs,
            observation_size=environment.observation_size,
            action_size=environment.action_size,
            dtype=dtype,
        )
        self.last_observation: np.ndarray | None = None
        self._policy = ActorInference(len(settings.hidden_sizes))
        self._policy.load(self.state.actor.weights)
        self._low, self._high = environment.action_low, environment.action_high
        self._optimise = optimise or optimise_together(update_function(members), dtype=dtype)
        self._dtype, self._clock = dtype, clock

    def start(self) -> np.ndarray:
        """Reset the environments unless they have been; the (M, n, D) observations to act on next."""
        if self.last_observation is None:
            self.last_observation = self.env.reset()
        return self.last_observation

    def iterate(self) -> list[Metrics]:
        """Steps of about one report, with the gradient steps after each; the log, a row for each member."""
        began, settings = self._clock(), self._settings
        updating, done = 0.0, 0
        self.state = self.state._replace(sums={name: np.zeros_like(s) for name, s in self.state.sums.items()})
        for _ in range(settings.report_steps // settings.num_envs):
            self.collect()
            if self.env.steps > settings.warmup_steps:
                collected = self._clock()
                self.optimise(settings.gradient_steps)
                updating += self._clock() - collected
                done += settings.gradient_steps
        self.updates += 1
        newly_stopped = ~self.state.active & ~self.env.faults.mask()
        self.env.faults.check_gradients(newly_stopped, update=self.updates, step=self.env.steps)
        return self.log(gradient_steps=done, seconds=self._clock() - began, update_seconds=updating)

    def collect(self) -> None:
        """A step of all environments, into the replay buffer."""
        self.start()
        observation = self.env.raw_observation
        assert observation is not None and self.last_observation is not None
        actions = self._actions(self.last_observation)
        # From [-1, 1] to the bounds.
        scaled = self._low + 0.5 * (actions + 1.0) * (self._high - self._low)
        step = self.env.step(scaled.reshape(-1, actions.shape[-1]))
        next_observation, terminations = np.array(self.env.raw_observation), step.done.copy()
        # What the environment showed at a time limit, before its reset: its value is bootstrapped.
        next_observation.reshape(-1, next_observation.shape[-1])[step.timeouts] = step.raw_final_observation
        terminations.reshape(-1)[step.timeouts] = False
        self.replay.add(Transitions(observation, actions, next_observation, step.reward, terminations))
        self.last_observation = step.observation

    def _actions(self, observation: np.ndarray) -> np.ndarray:
        """(M, n, A) within [-1, 1]: uniform while warming up, then the policy's."""
        shape = (self._settings.num_envs, len(self._low))
        if self.env.steps < self._settings.warmup_steps:
            return np.stack([g.uniform(-1.0, 1.0, shape) for g in self.noise_generators]).astype(self._dtype)
        noise = np.stack([g.standard_normal(shape, dtype=self._dtype) for g in self.noise_generators])
        return self._policy.sample(observation, noise)

    def optimise(self, gradient_steps: int) -> None:
        """Gradient steps on minibatches from the replay buffer, observations normalised as they would be now."""
        shape = gradient_steps, self._settings.minibatch_size
        sampled = self.replay.sample(self.batch_generators, shape)
        noise = np.stack(
            [g.standard_normal((2, *shape, len(self._low)), dtype=self._dtype) for g in self.batch_generators], axis=2
        )
        transitions = sampled._replace(
            observations=self._normalise(sampled.observations),
            next_observations=self._normalise(sampled.next_observations),
        )
        state = self.state._replace(active=self.state.active & ~self.env.faults.mask())
        c = coefficients_of(self.members, dtype=self._dtype)
        self.put_state(self._optimise(state, Minibatches(transitions, noise[0], noise[1]), c))
        self.gradient_steps += gradient_steps

    def put_state(self, state: SacState) -> None:
        """Continue with this state."""
        self.state = state
        self._policy.load(state.actor.weights)

    def _normalise(self, observations: np.ndarray) -> np.ndarray:
        """Normalise (G, M, B, D)."""
        if not self._settings.normalize_observation:
            return observations
        return np.stack([self.env.observations.normalize(batch) for batch in observations])

    def log(self, *, gradient_steps: int, seconds: float, update_seconds: float) -> list[Metrics]:
        """A row of metrics for each member: speeds, episodes since training began, diagnostics of the gradient steps."""
        steps = self._settings.report_steps * len(self.members)
        speeds: Metrics = {
            "update": float(self.updates),
            "step": float(self.env.steps),
            "gradient_steps": float(self.gradient_steps),
            "collect_steps_per_second": steps / max(seconds - update_seconds, 1e-9),
            "gradient_steps_per_second": gradient_steps * len(self.members) / max(update_seconds, 1e-9),
            "steps_per_second": steps / max(seconds, 1e-9),
        }
        rows = []
        for index, episodes in enumerate(self.env.episodes.take()):
            means: Metrics = {n: float(s[index]) / gradient_steps for n, s in self.state.sums.items() if gradient_steps}
            rows.append(finite_row({**speeds, **episodes, **means}))
        return rows


def settings_of(members: Sequence[MemberSpec]) -> SacHyperparameters:
    """Return the first member's hyperparameters, which stand for the group in all that fixes shapes."""
    settings = members[0].hyperparameters
    assert isinstance(settings, SacHyperparameters)
    return settings


def coefficients_of(members: Sequence[MemberSpec], *, dtype: Any) -> Coefficients:
    """Stack the members' coefficients."""

    def column(name: str) -> np.ndarray:
        return np.array([getattr(member.hyperparameters, name) for member in members])

    numbers = {name: column(name).astype(dtype) for name in Coefficients._fields if name != "tune_entropy"}
    return Coefficients(**numbers, tune_entropy=column("tune_entropy"))


def first_state(
    members: Sequence[MemberSpec], generators: Sequence[np.random.Generator], environment: Environment, *, dtype: Any
) -> SacState:
    """Draw the members' weights before training, stacked; the targets equal the critics."""
    drawn = [
        initial_weights(
            observation_size=environment.observation_size,
            action_size=environment.action_size,
            hidden_sizes=member.hyperparameters.hidden_sizes,
            rng=generator,
            dtype=dtype,
        )
        for member, generator in zip(members, generators, strict=True)
    ]
    count = len(members)
    actor, critics = (stack([pair[part] for pair in drawn]) for part in (0, 1))
    temperature: Arrays = {"log": np.zeros(count, dtype)}
    return SacState(
        actor=Network(actor, initial_adam(actor, count)),
        critics=Network(critics, initial_adam(critics, count)),
        targets={name: value.copy() for name, value in critics.items()},
        temperature=Network(temperature, initial_adam(temperature, count)),
        active=np.ones(count, bool),
        sums={name: np.zeros(count, dtype) for name in _SUMMED},
    )
