"""Collection: all members act at once in one batch of M x n environments.

Inference is numpy on stacked (M, n, D) arrays: at a few hundred rows it is done before a compiled call would be
dispatched, and the simulator has the cores to itself. What can wait until the rollout's end waits: values, log
probabilities (from the noise), reward normalisation. Only observation normalisation must run step by step, since the
next action depends on it.

Members never mix: noise comes from each member's own generator, statistics have a member axis. A member whose reward
or observation stops being finite, or is too large for the statistics, is stopped: its rows go on as zeros, since shapes
are fixed, and are never learnt from.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dressage_trainer.ppo.actions import make_actor
from dressage_trainer.ppo.episodes import EpisodeStatistics
from dressage_trainer.ppo.faults import Faults, Stop
from dressage_trainer.ppo.interfaces import Arrays, Environment, Reward, Step
from dressage_trainer.ppo.network import TowerInference
from dressage_trainer.ppo.normalizer import ObservationNormalizer, ReturnNormalizer
from dressage_trainer.ppo.update import Rollout


class Collector:
    """Collects rollouts of M members x n environments and keeps the acting side's state.

    :param environment: M * n rows, those of member m at [m * n, (m + 1) * n).
    :param discounts: (M,) per member.
    :param dtype: of normalised observations and actions, as of the weights.
    """

    def __init__(
        self,
        *,
        environment: Environment,
        reward: Reward,
        members: int,
        num_steps: int,
        hidden_layers: int,
        discounts: np.ndarray,
        normalize_observation: bool,
        normalize_reward: bool,
        generators: list[np.random.Generator],
        faults: Faults,
        dtype: Any = np.float32,
    ) -> None:
        self.environment, self.reward, self.faults = environment, reward, faults
        self.members, self.num_steps = members, num_steps
        self.num_envs = environment.num_envs // members
        self.generators = generators
        self.dtype = dtype
        self.observations = ObservationNormalizer(
            members, environment.observation_size, enabled=normalize_observation, dtype=dtype
        )
        self.returns = ReturnNormalizer(self.num_envs, discounts, enabled=normalize_reward)
        self.episodes = EpisodeStatistics(members, self.num_envs)
        self.steps_done = 0
        self._discounts = discounts
        self._actor = make_actor(environment, dtype)
        self._policy = TowerInference("pi", hidden_layers)
        self._value = TowerInference("vf", hidden_layers)
        self._current = np.zeros((members, self.num_envs, environment.observation_size), dtype)

    def start(self, seeds: list[int]) -> None:
        """Reset every environment; ``seeds`` has one for each of the M * n rows."""
        observation = self._by_member(self.environment.reset(seeds))
        self.reward.reset(None)
        self._see(observation)

    def collect(self, weights: Arrays) -> Rollout:
        """Act for ``num_steps`` with the given stacked weights."""
        m, t, n = self.members, self.num_steps, self.num_envs
        self._policy.load(weights)
        self._value.load(weights)
        self._actor.begin(weights, self.generators, (t, n))
        observations = np.empty((m, t, n, self.environment.observation_size), self.dtype)
        actions = np.empty((m, t, n, self.environment.action_size), self.dtype)
        rewards = np.empty((m, t, n))
        dones = np.zeros((m, t, n))
        tails: list[tuple[int, np.ndarray, np.ndarray]] = []
        for index in range(t):
            observations[:, index] = self._current
            action = self._actor.draw(index, self._policy(self._current))
            actions[:, index] = action
            step = self._step(action, rewards[:, index], dones[:, index])
            cut = step.truncated & ~step.terminated
            if cut.any():
                rows = np.flatnonzero(cut)
                tails.append((index, rows, self._normalize_rows(rows, step.final_observation)))
        raw, rewards = rewards, self.returns.normalize(rewards, dones)
        for member, index in self.returns.overflows.items():
            self._stop_by_returns(member, index, raw[member])
        for index, rows, final in tails:
            self._bootstrap(rewards[:, index], rows, final)
        as_dtype = self.dtype
        return Rollout(
            observations,
            actions,
            self._actor.log_probs().astype(as_dtype, copy=False),
            rewards.astype(as_dtype),
            dones.astype(as_dtype),
            self._current,
        )

    def _step(self, action: np.ndarray, rewards: np.ndarray, dones: np.ndarray) -> Step:
        """Step the environments with (M, n, A) actions as drawn; fill this step's (M, n) rewards and dones."""
        env = self.environment
        clipped = self._actor.for_environment(action)
        step = env.step(clipped)
        output = self.reward(step.state, clipped, step.next_state)
        self.steps_done += self.num_envs
        done = step.terminated | step.truncated
        observation = step.observation
        total = self._by_member(output.total)
        # A sum is finite only if all its parts are (or opposite infinities, whose sum is NaN).
        if self.faults.stops or not (math.isfinite(total.sum()) and math.isfinite(observation.sum())):
            observation, total = self._handle_faults(step, output)
        rewards[:] = total
        ended = bool(done.any())
        self.episodes.add(total, output.terms, step.reward, done if ended else None)
        if ended:
            dones[:] = self._by_member(done)
            self.reward.reset(done)
        self._see(self._by_member(observation))
        return step

    def _see(self, observation: np.ndarray) -> None:
        """Take (M, n, D) observations into the statistics, and as what is acted on next."""
        skip = self.faults.mask(self.members) if self.faults.stops else None
        overflowed = self.observations.update(observation, skip=skip)
        if overflowed is not None:
            for member in np.flatnonzero(overflowed):
                largest = np.abs(observation[member]).max()
                text = f"the running variance of observations overflowed at environment step {self.steps_done}"
                text += f", where the largest |observation| was {largest:.3g}"
                self._stop(int(member), "observation", self.steps_done, text)
            observation = np.where(overflowed[:, None, None], 0.0, observation)
        self._current = self.observations.normalize(observation)

    def _stop_by_returns(self, member: int, index: int, rewards: np.ndarray) -> None:
        """Stop a member for what its (T, n) rewards had come to in step ``index`` of the rollout just done."""
        step = self.steps_done - (len(rewards) - 1 - index) * self.num_envs
        largest = np.abs(rewards[: index + 1]).max()
        text = f"the running variance of returns overflowed at environment step {step}"
        self._stop(member, "reward", step, f"{text}; the largest |reward| of the rollout till then was {largest:.3g}")

    def _stop(self, member: int, cause: str, step: int, message: str) -> None:
        stop = Stop(member=member, step=step, cause=cause, term="", message=message)
        self.faults.stops.setdefault(member, stop)

    def _handle_faults(self, step: Step, output: Any) -> tuple[np.ndarray, np.ndarray]:
        """Stop members with non-finite values; zero the rows of all stopped members."""
        total = self._by_member(output.total)
        observation = self._by_member(step.observation)
        bad_reward = ~np.isfinite(total).all(1)
        bad_observation = ~np.isfinite(observation).all((1, 2))
        for member in np.flatnonzero(bad_reward | bad_observation):
            if int(member) not in self.faults.stops:
                cause = "reward" if bad_reward[member] else "observation"
                self.faults.stops[int(member)] = self._describe(int(member), cause, output)
        stopped = self.faults.mask(self.members)
        observation = np.where(stopped[:, None, None], 0.0, observation)
        return observation.reshape(step.observation.shape), np.where(stopped[:, None], 0.0, total)

    def _describe(self, member: int, cause: str, output: Any) -> Stop:
        term, why = "", ""
        if cause == "reward":
            rows = slice(member * self.num_envs, (member + 1) * self.num_envs)
            raised = [text for row, text in output.raised.items() if row // self.num_envs == member]
            broken = [name for name, value in output.terms.items() if not np.isfinite(value[rows]).all()]
            term = broken[0] if broken and not raised else "total"
            why = f": the reward raised {raised[0]}" if raised else ""
        what = f"reward term {term!r}" if term else cause
        message = f"{what} was not finite at environment step {self.steps_done}{why}"
        return Stop(member=member, step=self.steps_done, cause=cause, term=term, message=message)

    def _normalize_rows(self, rows: np.ndarray, final_observation: np.ndarray) -> np.ndarray:
        out = np.empty((len(rows), self.environment.observation_size), self.dtype)
        owners = rows // self.num_envs
        for member in np.unique(owners):
            mine = owners == member
            out[mine] = self.observations.normalize_rows(int(member), final_observation[rows[mine]])
        return out

    def _bootstrap(self, rewards: np.ndarray, rows: np.ndarray, final: np.ndarray) -> None:
        """Add discount * V(final observation) to the (M, n) rewards of truncated rows, as SB3 does."""
        owners = rows // self.num_envs
        for member in np.unique(owners):
            if int(member) in self.faults.stops:
                continue
            mine = owners == member
            values = self._value.member(int(member), final[mine])[:, 0]
            rewards[member, rows[mine] % self.num_envs] += self._discounts[member] * values

    def _by_member(self, array: np.ndarray) -> np.ndarray:
        return array.reshape(self.members, self.num_envs, *array.shape[1:])

    def snapshot(self) -> Arrays:
        """All that the next rollout depends on, but for weights and generators."""
        parts = {
            "observations": self.observations.moments.arrays(),
            "returns": self.returns.arrays(),
            "episodes": self.episodes.arrays(),
            "environment": self.environment.snapshot(),
            "reward": self.reward.snapshot(),
        }
        flat = {f"{part}/{name}": np.array(v) for part, arrays in parts.items() for name, v in arrays.items()}
        return {**flat, "current": self._current.copy(), "steps_done": np.array(self.steps_done)}

    def restore(self, arrays: Arrays) -> None:
        """The inverse of `snapshot`."""

        def part(prefix: str) -> Arrays:
            start = f"{prefix}/"
            return {name[len(start) :]: value for name, value in arrays.items() if name.startswith(start)}

        self.observations.load(part("observations"))
        self.returns.load(part("returns"))
        self.episodes.load(part("episodes"))
        self.environment.restore(part("environment"))
        self.reward.restore(part("reward"))
        self._current = np.array(arrays["current"])
        self.steps_done = int(arrays["steps_done"])
