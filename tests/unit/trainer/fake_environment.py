"""A small linear environment, as one Gymnasium environment and as a batch: the same arithmetic, no simulator."""

from __future__ import annotations

from dataclasses import dataclass, field

import gymnasium
import numpy as np

D, A, LIMIT = 3, 2, 13
_MIX = np.array([[0.3, -0.2], [0.1, 0.4], [-0.3, 0.2]])


def start(row):
    return np.array([0.1, -0.2, 0.05]) * (row + 1)


def advance(x, action):
    """Works on (D,) with (A,), and on (N, D) with (N, A)."""
    x = 0.95 * x + np.asarray(action, np.float64) @ _MIX.T + np.array([0.02, 0.0, -0.01])
    reward = x[..., 0] - 0.1 * np.square(np.asarray(action, np.float64)).sum(-1)
    return x, reward, np.abs(x[..., 1]) > 1.5


class OneEnv(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (D,), np.float64)
    action_space = gymnasium.spaces.Box(-1, 1, (A,), np.float32)

    def __init__(self, row):
        self.row = row

    def reset(self, *, seed=None, options=None):
        self.x, self.t = start(self.row), 0
        return self.x.copy(), {}

    def step(self, action):
        self.x, reward, terminated = advance(self.x, action)
        self.t += 1
        return self.x.copy(), float(reward), bool(terminated), self.t >= LIMIT, {}


@dataclass
class Step:
    observation: np.ndarray
    final_observation: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    state: object
    next_state: object


class FakeBatch:
    """N of them; row r behaves as `OneEnv(r % rows_per_member)`."""

    observation_size, action_size = D, A
    action_low, action_high = np.full(A, -1.0, np.float32), np.full(A, 1.0, np.float32)

    def __init__(self, members, num_envs):
        self.num_envs = members * num_envs
        self.start = np.stack([start(row % num_envs) for row in range(self.num_envs)])
        self.corrupt = None  # a function of (step count, observation) that may spoil it
        self.count = 0

    def reset(self, seeds):
        self.seeds = list(seeds)
        self.x, self.t = self.start.copy(), np.zeros(self.num_envs, int)
        return self.x.copy()

    def step(self, actions):
        before = self.x
        final, reward, terminated = advance(self.x, actions)
        self.t += 1
        self.count += 1
        truncated = self.t >= LIMIT
        done = terminated | truncated
        self.x = np.where(done[:, None], self.start, final)
        self.t[done] = 0
        observation = self.x.copy()
        if self.corrupt is not None:
            self.corrupt(self.count, observation)
        return Step(observation, final, reward, terminated, truncated, before, final)

    def snapshot(self):
        return {"x": self.x.copy(), "t": self.t.copy()}

    def restore(self, arrays):
        self.x, self.t = np.array(arrays["x"]), np.array(arrays["t"])


@dataclass
class Output:
    total: np.ndarray
    terms: dict
    raised: dict = field(default_factory=dict)


class FakeReward:
    """The environment's own reward in two terms; ``spoil`` may change the terms of a step, and return which rows raised."""

    def __init__(self, spoil=None):
        self.calls, self.spoil = 0, spoil

    def __call__(self, state, action, next_state):
        self.calls += 1
        terms = {"x": next_state[:, 0].copy(), "effort": -0.1 * np.square(np.asarray(action, np.float64)).sum(-1)}
        raised = self.spoil(self.calls, terms) if self.spoil is not None else None
        return Output(sum(terms.values()), terms, raised or {})

    def reset(self, mask=None):
        pass

    def snapshot(self):
        return {}

    def restore(self, arrays):
        pass
