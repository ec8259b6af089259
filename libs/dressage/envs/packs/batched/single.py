"""One environment of a batched simulator in Gymnasium's form, for players and evaluators. Runs in a pack's process only."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dressage.envs.packs.batched.protocol import Facts, VisibleState
from dressage.envs.packs.batched.stepping import Stepper, make
from dressage.envs.state import Array


class SingleEnv:
    """One environment of a batched simulator, with the interface of `gymnasium.Env`.

    Equal seeds and actions give equal episodes on one machine.

    :param bound: of each component of the action.
    """

    def __init__(self, env_id: str, *, max_episode_steps: int | None, bound: float) -> None:
        from gymnasium import spaces

        self._stepper = Stepper(make(env_id, num_envs=1, max_episode_steps=max_episode_steps))
        self.facts: Facts = self._stepper.simulator.facts()
        size = sum(count for _, count in self.facts.observation)
        self.observation_space = spaces.Box(-np.inf, np.inf, (size,), np.float64)
        self.action_space = spaces.Box(-bound, bound, (len(self.facts.action),), np.float32)
        self._final: VisibleState | None = None

    def fields(self) -> dict[str, Array]:
        """Return the fields of the present state, of a last one before its restart, each (...)."""
        assert self._final is not None
        return {name: np.array(value[0]) for name, value in self._final.fields.items()}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Array, dict[str, Any]]:
        """Start an episode; without a seed, the random streams continue."""
        rows = np.zeros(1, np.int64)
        self._final = self._stepper.restart(rows) if seed is None else self._stepper.reset(seed % 2**31)
        return self._final.observation[0].copy(), {}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Apply an action; an ended episode has its own last observation."""
        result, _, _ = self._stepper.step(np.asarray(action)[None])
        self._final = result.state
        ended = (bool(result.terminated[0]), bool(result.truncated[0]))
        return self._final.observation[0].copy(), float(result.reward[0]), *ended, {}

    def close(self) -> None:
        """Do nothing: the environment is kept for the next episodes, until its process ends."""


class LimitedEnv:
    """A `SingleEnv` with a shorter time limit. Isaac Lab makes one simulation in a process, whatever the limits are.

    :param env: shared with other limits; one episode is played at a time.
    :param limit: steps of an episode, at most those of ``env``.
    """

    def __init__(self, env: SingleEnv, limit: int) -> None:
        self.facts: Facts = replace(env.facts, max_episode_steps=limit)
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self.unwrapped = self
        self._env, self._max_episode_steps, self._steps = env, limit, 0

    def fields(self) -> dict[str, Array]:
        """Return the fields of the state."""
        return self._env.fields()

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Array, dict[str, Any]]:
        """Start an episode."""
        self._steps = 0
        return self._env.reset(seed=seed, options=options)

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Apply an action for one time step; the time limit truncates."""
        self._steps += 1
        observation, reward, terminated, truncated, info = self._env.step(action)
        return observation, reward, terminated, truncated or self._steps >= self._max_episode_steps, info

    def close(self) -> None:
        """Close the environment."""
        self._env.close()
