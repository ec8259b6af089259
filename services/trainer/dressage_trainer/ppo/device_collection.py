"""Collection on a device: one compiled scan of policy, simulation, reward and normalisation for a whole rollout.

It replaces `ppo.RolloutCollector`, step by step in the same order; advantage, loss and update are those of ``ppo.py``.
Statistics are kept in double precision by the host, with the code of the CPU page: the scan starts from a rounded copy, merges
each step's batch into it as the host does, and returns the batches' moments, which the host merges once more. So rounding does
not accumulate over a training. Everything that grows with the number of environments stays on the device, except rewards and
the ends of episodes, which are written to the log.

Members share one simulation: their environments are the rows of one `DeviceEnv`. Each member's starts come from its own key.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from dressage.envs.device import Carry, DeviceArray, DeviceEnv
from dressage.envs.state import State

from dressage_trainer.ppo.distributions import action_space_of, draw_noise, sample_in_jax
from dressage_trainer.ppo.interfaces import Arrays
from dressage_trainer.ppo.members import MemberSpec
from dressage_trainer.ppo.networks import forward
from dressage_trainer.ppo.normalizer import EPSILON, Moments, ReturnNormalizer, merge_moments
from dressage_trainer.ppo.ppo import RolloutBuffer, Weights
from dressage_trainer.ppo.vec_env import VecEnv

_FAULTS = "faults/"


class TracedReward(Protocol):
    """A reward as a pure function, see `dressage.contracts.device.DeviceReward`."""

    @property
    def terms(self) -> Sequence[str]:
        """Names of the terms, in the order of the call's result."""

    def init(self, dtype: Any = np.float32) -> dict[str, Any]:
        """Return the memory at the start of an episode."""

    def restart(self, memory: Mapping[str, Any], done: Any) -> dict[str, Any]:
        """Return the memory with that of the start where ``done`` (N,) is true."""

    def __call__(
        self, memory: Mapping[str, Any], state: State, action: Any, next_state: State
    ) -> tuple[dict[str, Any], Any]:
        """Return the memory after a step, and the terms (K, N)."""


class DeviceRows:
    """The environments of all members on a device, as `interfaces.Environment` but for `step`, which only the scan does.

    :param members: M, each with as many rows.
    """

    def __init__(self, env: DeviceEnv, members: int) -> None:
        self.env, self._members = env, members
        self.num_envs, self.observation_size = env.num_envs, env.observation_size
        self.action_size, self.num_actions = env.action_size, env.num_actions
        self.action_low, self.action_high = env.action_low, env.action_high
        self.carry: Carry = {}
        self.divergences = self.overflows = 0
        """Steps of an environment that diverged, and that overflowed the simulator's space."""
        self._init, self._observation = jax.jit(env.init), jax.jit(env.observation)

    def reset(self, seeds: Sequence[int]) -> np.ndarray:
        """Start all episodes, each member's from the seed of its first environment; (N, D) observations."""
        first = [jax.random.key(seed) for seed in seeds[:: self.num_envs // self._members]]
        self.carry = self._init(jnp.stack(first))
        return self.observation()

    def observation(self) -> np.ndarray:
        """Return the observations (N, D)."""
        return np.asarray(self._observation(self.carry))

    def step(self, actions: np.ndarray) -> Any:
        """Raise: steps are the scan's."""
        raise NotImplementedError

    def snapshot(self) -> Arrays:
        """Return everything that future steps depend on, as arrays of numpy."""
        return {
            **{name: np.array(value) for name, value in self.env.snapshot(self.carry).items()},
            f"{_FAULTS}divergences": np.array(self.divergences),
            f"{_FAULTS}overflows": np.array(self.overflows),
        }

    def restore(self, arrays: Arrays) -> None:
        """Restore a snapshot."""
        self.carry = self.env.restore({name: v for name, v in arrays.items() if not name.startswith(_FAULTS)})
        self.divergences = int(arrays[f"{_FAULTS}divergences"])
        self.overflows = int(arrays[f"{_FAULTS}overflows"])


class RewardMemory:
    """The reward's memory of all environments, as `interfaces.Reward` but for the call, which only the scan does."""

    def __init__(self, reward: TracedReward, dtype: Any = np.float32) -> None:
        self.reward, self._dtype = reward, dtype
        self.memory: dict[str, Any] = reward.init(dtype)

    def __call__(self, state: Any, action: np.ndarray, next_state: Any) -> Any:
        """Raise: calls are the scan's."""
        raise NotImplementedError

    def reset(self, mask: np.ndarray | None = None) -> None:
        """Forget the episode memory of the marked rows; None: of all."""
        self.memory = self.reward.init(self._dtype) if mask is None else self.reward.restart(self.memory, mask)

    def snapshot(self) -> Arrays:
        """Return the memory, as arrays of numpy."""
        return {name: np.array(value) for name, value in self.memory.items()}

    def restore(self, arrays: Arrays) -> None:
        """Restore a snapshot."""
        self.memory = {name: jnp.asarray(arrays[name], array.dtype) for name, array in self.memory.items()}


class _Position(NamedTuple):
    """What the scan carries from step to step."""

    carry: Carry
    memory: dict[str, DeviceArray]
    observation: DeviceArray
    """(M, n, D) normalised."""
    moments: Moments
    stopped: DeviceArray
    """(M,) True for members that cannot continue."""
    returns: DeviceArray
    """(M, n) discounted returns of the running episodes."""
    terms: DeviceArray
    """(2, K, N) sums over the steps so far of each term and of its magnitude."""


class _Row(NamedTuple):
    """What a step returns, stacked by the scan along T."""

    observation: DeviceArray
    """(M, n, D) normalised, before the step."""
    action: DeviceArray
    log_prob: DeviceArray
    reward: DeviceArray
    """(M, n) not normalised."""
    stock: DeviceArray
    done: DeviceArray
    final_value: DeviceArray
    """(M, n) value of the final observation where the episode was truncated, else 0."""
    return_mean: DeviceArray
    """(M,) of the discounted returns."""
    return_var: DeviceArray
    observation_mean: DeviceArray
    """(M, D)."""
    observation_var: DeviceArray
    unchanged: DeviceArray
    """(M,) True where the step's observations are not in the statistics."""
    bad_reward: DeviceArray
    """(M,) True where the reward was not finite."""
    bad_terms: DeviceArray
    """(K, M) True where a term was not finite."""
    bad_observation: DeviceArray
    overflowed: DeviceArray
    """(M,) True where the running variance of observations overflowed."""
    largest: DeviceArray
    """(M,) the largest |observation|."""
    diverged: DeviceArray
    """() number of rows."""
    out_of_space: DeviceArray


Noise = Callable[[list[np.random.Generator], tuple[int, int]], Any]
"""Returns (T, M, n, A) numbers from each member's generator and (T, n)."""


class DeviceCollector:
    """Collects rollouts of M members x n environments on a device; see `ppo.RolloutCollector`.

    :param env: holds `DeviceRows` and `RewardMemory`.
    :param generators: of the members' action noise.
    :param noise: None: drawn on the device.
    """

    def __init__(
        self,
        members: Sequence[MemberSpec],
        env: VecEnv,
        generators: list[np.random.Generator],
        *,
        dtype: Any = np.float32,
        noise: Noise | None = None,
    ) -> None:
        settings = members[0].hyperparameters
        self.env, self.generators, self._dtype = env, generators, dtype
        assert isinstance(env.environment, DeviceRows) and isinstance(env.reward, RewardMemory)
        self._rows, self._memory = env.environment, env.reward
        self.last_observation: np.ndarray | None = None
        self._num_steps, self._space = settings.num_steps, action_space_of(env.environment)
        discounts = np.array([member.hyperparameters.discount for member in members])
        reward_clips = np.array([member.hyperparameters.reward_clip for member in members])
        self.returns = ReturnNormalizer(env.num_envs, discounts, reward_clips, enabled=settings.normalize_reward)
        self._noise = noise or functools.partial(draw_noise, space=self._space, dtype=dtype)
        self._discounts, self._reward_clips = discounts.astype(dtype), reward_clips.astype(dtype)
        self._normalize = settings.normalize_observation, settings.normalize_reward
        self._clips = np.array([member.hyperparameters.observation_clip for member in members], dtype)[:, None, None]
        self._hidden_layers = len(settings.hidden_sizes)
        # The simulator's arrays are used up, so that the device holds them once.
        self._scan = jax.jit(self._rollout, donate_argnums=1)
        self._buffer = jax.jit(self._finish_rollout)

    def start(self) -> np.ndarray:
        """Start all episodes unless they have been; the (M, n, D) observations to act on next."""
        if self.last_observation is None:
            self.last_observation = self.env.reset()
        return self.last_observation

    def collect_rollouts(self, weights: Weights) -> RolloutBuffer:
        """Act for T steps with the given stacked weights. The result is on the device."""
        observation = self.start()
        with jax.enable_x64(self._dtype == np.float64):
            moments = tuple(np.asarray(part, self._dtype) for part in self.env.observations.moments.parts())
            begin = _Position(
                {},
                self._memory.memory,
                jnp.asarray(observation),
                (moments[0], moments[1], moments[2]),
                jnp.asarray(self.env.faults.mask()),
                jnp.asarray(self.returns.returns, self._dtype),
                jnp.zeros((2, len(self._memory.reward.terms), self._rows.num_envs), self._dtype),
            )
            noise = self._noise(self.generators, (self._num_steps, self.env.num_envs))
            end, rows = self._scan(weights, self._rows.carry, begin, noise)
            self._rows.carry, self._memory.memory = end.carry, end.memory
            self.last_observation = np.asarray(end.observation)
            logged = jax.device_get(rows._replace(observation=None, action=None, log_prob=None))
            spread = self._take(logged, end)
            overflowed = np.isin(np.arange(self.env.members), list(self.returns.overflows))
            buffer: RolloutBuffer = self._buffer(rows, spread, overflowed, self.env.faults.mask(), end.observation)
        return buffer

    def _take(self, rows: _Row, end: _Position) -> np.ndarray:
        """Take a rollout's rows into the statistics, the log and the faults; the (M, T) variance of returns after each step."""
        env, steps, n = self.env, self._num_steps, self.env.num_envs
        before = env.steps
        env.steps += steps * n
        env.observations.take_rollout(rows.observation_mean, rows.observation_var, size=n, skip=rows.unchanged)
        self._check(rows, before)
        values, magnitudes = np.asarray(end.terms)
        terms = {name: (values[k], magnitudes[k]) for k, name in enumerate(self._memory.reward.terms)}
        env.episodes.add_rollout(rows.reward, terms, rows.stock, rows.done)
        self._rows.divergences += int(rows.diverged.sum())
        self._rows.overflows += int(rows.out_of_space.sum())
        if not self._normalize[1]:
            return np.ones((env.members, steps), self._dtype)
        means, variances = (np.asarray(array, np.float64).T for array in (rows.return_mean, rows.return_var))
        spread = self.returns.take_rollout(means, variances, np.array(end.returns, np.float64))
        raw = rows.reward.swapaxes(0, 1)
        env.faults.check_return_statistics(self.returns.overflows, raw, step=env.steps)
        return spread.astype(self._dtype)

    def _check(self, rows: _Row, before: int) -> None:
        """Stop the members that the scan has stopped, each by its first fault, as `Faults.check_step` does."""
        faults, names, n = self.env.faults, self._memory.reward.terms, self.env.num_envs
        for t, m in zip(*np.nonzero(rows.bad_reward | rows.bad_observation | rows.overflowed), strict=True):
            member, step = int(m), before + (int(t) + 1) * n
            if rows.bad_reward[t, m]:
                broken = np.flatnonzero(rows.bad_terms[t, :, m])
                faults.stop_by_reward(member, names[broken[0]] if len(broken) else "total", step=step)
            elif rows.bad_observation[t, m]:
                faults.stop_by_observation(member, step=step)
            else:
                faults.stop_by_observation_statistics(member, float(rows.largest[t, m]), step=step)

    # -- compiled

    def _rollout(self, weights: Weights, carry: Carry, begin: _Position, noise: DeviceArray) -> tuple[_Position, _Row]:
        begin = begin._replace(carry=carry)
        end: tuple[_Position, _Row] = jax.lax.scan(functools.partial(self._step, weights), begin, noise)
        return end

    def _step(self, weights: Weights, at: _Position, noise: DeviceArray) -> tuple[_Position, _Row]:
        """One step of all environments; ``noise`` is (M, n, A)."""
        env, reward, stopped = self._rows.env, self._memory.reward, at.stopped
        output = self._forward("pi", weights, at.observation)
        sample = functools.partial(sample_in_jax, discrete=self._space.discrete)
        action, log_prob = jax.vmap(sample)(weights, output, noise)
        applied = self._for_environment(action)
        carry, step = env.step(at.carry, applied)
        memory, values = reward(at.memory, env.state(step.before), applied, env.state(step.after))
        values = values.astype(self._dtype)
        done = step.terminated | step.truncated
        by_term = self._by_member(values.T).transpose(2, 0, 1)  # (K, M, n)
        total, bad_terms = by_term.sum(0), ~jnp.isfinite(by_term).all(2)
        observation = self._by_member(step.observation).astype(self._dtype)
        bad_reward, bad_observation = ~jnp.isfinite(total).all(1), ~jnp.isfinite(observation).all((1, 2))
        stopped = stopped | bad_reward | bad_observation
        total = jnp.where(stopped[:, None], 0.0, total)
        observation = jnp.where(stopped[:, None, None], 0.0, observation)
        moments, mean, var, overflowed = self._with_batch(at.moments, observation, stopped)
        unchanged = stopped | overflowed
        normalised = self._normalize_observations(moments, jnp.where(overflowed[:, None, None], 0.0, observation))
        timeout = self._by_member(step.truncated & ~step.terminated)
        final = self._by_member(step.final_observation).astype(self._dtype)
        final_value = jax.lax.cond(
            timeout.any(),
            lambda: jnp.where(
                timeout, self._forward("vf", weights, self._normalize_observations(moments, final))[..., 0], 0.0
            ),
            lambda: jnp.zeros(timeout.shape, self._dtype),
        )
        returns = at.returns * self._discounts[:, None] + total
        return_mean = returns.mean(1)
        row = _Row(
            observation=at.observation,
            action=action,
            log_prob=log_prob,
            reward=total,
            stock=self._by_member(step.reward),
            done=self._by_member(done),
            final_value=final_value,
            return_mean=return_mean,
            return_var=jnp.square(returns - return_mean[:, None]).mean(1),
            observation_mean=mean,
            observation_var=var,
            unchanged=unchanged,
            bad_reward=bad_reward,
            bad_terms=bad_terms,
            bad_observation=bad_observation,
            overflowed=overflowed,
            largest=jnp.abs(observation).max((1, 2)),
            diverged=(step.diverged & ~step.overflow).sum(),
            out_of_space=step.overflow.sum(),
        )
        after = _Position(
            carry,
            reward.restart(memory, done),
            normalised,
            moments,
            unchanged,
            jnp.where(row.done, 0.0, returns),
            at.terms + jnp.stack([values, jnp.abs(values)]),
        )
        return after, row

    def _with_batch(
        self, moments: Moments, observation: DeviceArray, stopped: DeviceArray
    ) -> tuple[Moments, DeviceArray, DeviceArray, DeviceArray]:
        """Return the moments with a step's observations, the batch's own mean and variance, and whose variance overflows."""
        mean = observation.mean(1)
        var = jnp.square(observation - mean[:, None]).mean(1)
        if not self._normalize[0]:
            return moments, mean, var, jnp.zeros(stopped.shape, bool)
        new = merge_moments(moments, mean, var, observation.shape[1])
        overflowed = ~jnp.isfinite(new[1]).all(1) & ~stopped
        unchanged = stopped | overflowed

        def select(earlier: DeviceArray, later: DeviceArray) -> DeviceArray:
            result: DeviceArray = jnp.where(unchanged.reshape(-1, *[1] * (later.ndim - 1)), earlier, later)
            return result

        means, variances, counts = (select(a, b) for a, b in zip(moments, new, strict=True))
        return (means, variances, counts), mean, var, overflowed

    def _normalize_observations(self, moments: Moments, observation: DeviceArray) -> DeviceArray:
        """Normalise (M, n, D) observations, each by its own member's moments."""
        if not self._normalize[0]:
            return observation
        scale = 1.0 / jnp.sqrt(moments[1] + EPSILON)
        x: DeviceArray = (observation - moments[0][:, None]) * scale[:, None]
        return jnp.clip(x, -self._clips, self._clips)

    def _forward(self, tower: str, weights: Weights, observation: DeviceArray) -> DeviceArray:
        run = functools.partial(forward, tower=tower, hidden_layers=self._hidden_layers)
        output: DeviceArray = jax.vmap(run)(weights, observation)
        return output

    def _for_environment(self, action: DeviceArray) -> DeviceArray:
        """Convert (M, n, A) actions to the environment's input, as `distributions.Distribution` does."""
        if self._space.discrete:
            return action.reshape(-1).astype(jnp.int32)
        return jnp.clip(action.reshape(-1, self._space.size), self._rows.action_low, self._rows.action_high)

    def _by_member(self, array: DeviceArray) -> DeviceArray:
        return array.reshape(self.env.members, self.env.num_envs, *array.shape[1:])

    def _finish_rollout(
        self, rows: _Row, spread: DeviceArray, overflowed: DeviceArray, stopped: DeviceArray, last: DeviceArray
    ) -> RolloutBuffer:
        """Return the rollout with the member axis first and normalised rewards.

        :param spread: (M, T) variance of returns after each step.
        :param overflowed: (M,) members whose rewards count as 0.
        :param stopped: (M,) members whose truncated episodes have no value.
        """
        columns = (rows.observation, rows.action, rows.log_prob, rows.reward, rows.done, rows.final_value)
        observations, actions, log_probs, rewards, dones, values = (array.swapaxes(0, 1) for array in columns)
        if self._normalize[1]:
            clips = self._reward_clips[:, None, None]
            rewards = jnp.clip(rewards / jnp.sqrt(spread + EPSILON)[..., None], -clips, clips)
            rewards = jnp.where(overflowed[:, None, None], 0.0, rewards)
        # A time limit ends an episode whose state still has a value: bootstrap, as SB3 does.
        going = jnp.where(stopped, 0.0, self._discounts)[:, None, None]
        rewards = rewards + going * values
        return RolloutBuffer(observations, actions, log_probs, rewards, dones.astype(self._dtype), last)
