"""The environment of `fake_environment` and its reward as pure functions of JAX: the same arithmetic, no simulator."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from dressage.envs.device import DeviceStep
from fake_environment import _MIX, LIMIT, A, D, start

DRIFT = np.array([0.02, 0.0, -0.01])


class JaxEnv:
    """`FakeBatch` as a `DeviceEnv`.

    :param spoil: a function of (elapsed steps of all rows since the start, observation), which returns another observation.
    """

    observation_size, action_size, num_actions, action_kind = D, A, 0, "box"
    action_low, action_high = np.full(A, -1.0, np.float32), np.full(A, 1.0, np.float32)
    provenance: dict = {}

    def __init__(self, members, num_envs, *, dtype=np.float64, spoil=None):
        self.num_envs, self.spoil = members * num_envs, spoil
        self.start = np.stack([start(row % num_envs) for row in range(self.num_envs)]).astype(dtype)

    def init(self, key):
        x = jnp.asarray(self.start)
        return {"x": x, "t": jnp.zeros(self.num_envs, jnp.int32), "count": jnp.zeros((), jnp.int32), "seen": x}

    def step(self, carry, action):
        before = carry["x"]
        final = 0.95 * before + action @ jnp.asarray(_MIX.T, before.dtype) + jnp.asarray(DRIFT, before.dtype)
        reward = final[:, 0] - 0.1 * jnp.square(action).sum(-1)
        terminated = jnp.abs(final[:, 1]) > 1.5
        t, count = carry["t"] + 1, carry["count"] + 1
        truncated = t >= LIMIT
        done = terminated | truncated
        x = jnp.where(done[:, None], self.start, final)
        seen = x if self.spoil is None else self.spoil(count, x)
        none = jnp.zeros(self.num_envs, bool)
        outcome = DeviceStep(seen, final, reward, terminated, truncated, none, none, {"x": before}, {"x": final})
        return {"x": x, "t": jnp.where(done, 0, t), "count": count, "seen": seen}, outcome

    def observation(self, carry):
        return carry["seen"]

    def state(self, raw):
        return raw["x"]

    def snapshot(self, carry):
        return {name: np.asarray(array) for name, array in carry.items()}

    def restore(self, snapshot):
        return {name: jnp.asarray(array) for name, array in snapshot.items()}


class JaxReward:
    """`FakeReward` as a pure function; its memory counts the steps of each episode.

    :param spoil: a function of (steps of the episode, terms), which returns other terms.
    """

    terms = ("x", "effort")

    def __init__(self, num_envs, spoil=None):
        self.num_envs, self.spoil = num_envs, spoil

    def init(self, dtype=np.float32):
        return {"steps": jnp.zeros(self.num_envs, dtype)}

    def restart(self, memory, done):
        return {"steps": jnp.where(done, 0.0, memory["steps"])}

    def __call__(self, memory, state, action, next_state):
        terms = jnp.stack([next_state[:, 0], -0.1 * jnp.square(action).sum(-1)])
        steps = memory["steps"] + 1
        return {"steps": steps}, terms if self.spoil is None else self.spoil(steps, terms)
