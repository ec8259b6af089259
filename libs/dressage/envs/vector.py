"""Any environment registered with Gymnasium as a batch: N of them, stepped one after another in Python.

This is slow, because it uses one core whatever ``num_threads`` is, but it needs only Gymnasium's interface. The only visible
part of the state is the observation. Since the inner state cannot be read, a snapshot holds each environment's random stream
before the episode and the actions since. Restoring a snapshot plays the episode again and fails if another observation
results.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from dressage.envs import custom, random_state
from dressage.envs.cards import EnvironmentCard, Field
from dressage.envs.fields import BoundField, observation_field
from dressage.envs.loading import quiet_loading
from dressage.envs.options import EnvOptions
from dressage.envs.protocol import BatchStep, check_snapshot, environment_bytes
from dressage.envs.state import Array, Raw, State
from dressage.errors import FailedPrecondition, InvalidArgument, NotFound, Unavailable


def bound_fields(card: EnvironmentCard) -> list[BoundField]:
    """Return the fields, computed from the arrays ``observed`` (N, D) and ``steps`` (N,)."""
    time = Field("time", (), "s", "time since the episode began")
    return [
        observation_field(card.observation_size, ("observed",), lambda raw: raw["observed"]),
        BoundField(time, lambda raw: raw["steps"] * card.time_step, ("steps",)),
    ]


def make_registered(env_id: str, max_episode_steps: int | None) -> Any:
    """Return the environment behind ``gymnasium:ID``.

    :param max_episode_steps: time limit; None: the registered one.
    :raises NotFound: when no such id is registered.
    :raises Unavailable: when a package that it needs is not installed.
    :raises FailedPrecondition: for ``gymnasium:MODULE:ID`` outside a sandboxed process.
    """
    import gymnasium

    name = env_id.removeprefix(custom.GYMNASIUM)
    if custom.module_of(env_id):
        _allow_import(env_id)
    limits = {} if max_episode_steps is None else {"max_episode_steps": max_episode_steps}
    try:
        with quiet_loading():
            return gymnasium.make(name, disable_env_checker=True, **limits)
    except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
        raise Unavailable(f"{env_id} needs a package that is not installed: {error}") from error
    except gymnasium.error.Error as error:
        raise NotFound(
            f"Gymnasium cannot make {name!r}: {error}",
            reason="ENVIRONMENT_NOT_FOUND",
            metadata={"environment": env_id},
        ) from error


SANDBOXED = "DRESSAGE_SANDBOXED"
"""Variable of sandboxed processes (`dressage.sandbox.process`)."""


def _allow_import(env_id: str) -> None:
    """Make the module of an environment of the user's own importable, in a sandboxed process only.

    :raises FailedPrecondition: in any other process.
    """
    if not os.environ.get(SANDBOXED):
        message = (
            f"{env_id}: its module is imported in sandboxed processes only; import it yourself and call gymnasium.make"
        )
        raise FailedPrecondition(message, reason="SANDBOX_ONLY", metadata={"environment": env_id})
    source = str(custom.folder_of(env_id) / custom.SOURCE)
    if os.path.isdir(source) and source not in sys.path:
        sys.path.insert(0, source)


class Adapter:
    """Flat observations and actions of one environment's spaces.

    :raises InvalidArgument: for spaces that a trainer cannot use.
    """

    def __init__(self, env: Any, env_id: str) -> None:
        from gymnasium import spaces

        self._spaces = spaces
        self._observation, self._action = env.observation_space, env.action_space
        discrete = isinstance(self._observation, spaces.Discrete)
        self.num_observations = int(self._observation.n) if discrete else 0
        if isinstance(self._action, spaces.Discrete):
            self.num_actions, self._first = int(self._action.n), int(self._action.start)
            self.low, self.high = np.zeros(1), np.full(1, self.num_actions - 1.0)
        elif isinstance(self._action, spaces.Box) and np.issubdtype(self._action.dtype, np.floating):
            self.num_actions = 0
            self.low, self.high = (
                np.ravel(bound).astype(np.float64) for bound in (self._action.low, self._action.high)
            )
            if not (np.isfinite(self.low) & np.isfinite(self.high)).all():
                raise InvalidArgument(field="environment", value=env_id, expected="actions with finite bounds")
        else:
            raise InvalidArgument(
                field="environment", value=env_id, expected=f"actions of Box or Discrete, not {self._action}"
            )
        self.size = spaces.flatdim(self._observation) if self._observation.is_np_flattenable else 0
        if not 1 <= self.size <= _MAX_OBSERVATION:
            expected = f"an observation of 1 to {_MAX_OBSERVATION} numbers, not {self._observation}"
            raise InvalidArgument(field="environment", value=env_id, expected=expected)

    def flat(self, observation: Any) -> Array:
        """Return an observation as (D,) float64; a Discrete one as one-hot."""
        return np.asarray(self._spaces.flatten(self._observation, observation), dtype=np.float64)

    def action(self, values: Array) -> Any:
        """Return an action as the environment accepts it."""
        if self.num_actions:
            return int(values) + self._first
        return np.asarray(values, dtype=self._action.dtype).reshape(self._action.shape)


_MAX_OBSERVATION = 10_000


class VectorBatch:
    """Any registered environment, many in one process, as a `BatchEnv`."""

    def __init__(
        self, card: EnvironmentCard, num_envs: int, *, options: EnvOptions, fields: Collection[str] | None
    ) -> None:
        self.card, self.num_envs = card, num_envs
        self.observation_size, self.action_size = card.observation_size, card.action_size
        self.action_kind, self.num_actions = card.action_kind, card.num_actions
        self.action_low = np.array([part.low for part in card.action], dtype=np.float32)
        self.action_high = np.array([part.high for part in card.action], dtype=np.float32)
        self.divergences = 0
        limit = options.max_episode_steps or card.max_episode_steps
        self._envs = [make_registered(card.id, limit) for _ in range(num_envs)]
        self._adapter = Adapter(self._envs[0], card.id)
        bound = [entry for entry in bound_fields(card) if fields is None or entry.field.name in fields]
        self._functions = {entry.field.name: entry.function for entry in bound}
        self._elapsed = np.zeros(num_envs, dtype=np.int64)
        self._observed: Array | None = None
        self._begun: list[Array] = []
        """The random stream of each row as it stood before its episode, packed."""
        self._played: list[list[Array]] = [[] for _ in range(num_envs)]
        """The actions of each row's episode so far."""
        self._state = State()

    def reset(self, seeds: Sequence[int]) -> Array:
        if len(seeds) != self.num_envs:
            expected = f"{self.num_envs} seeds, one per environment"
            raise InvalidArgument(field="seeds", value=len(seeds), expected=expected)
        streams = [random_state.generator(seed) for seed in seeds]
        self._begun = [random_state.pack([stream])[0] for stream in streams]
        self._played = [[] for _ in seeds]
        self._elapsed[:] = 0
        rows = [self._adapter.flat(env.reset(seed=int(seed))[0]) for env, seed in zip(self._envs, seeds, strict=True)]
        return self._adopt(np.stack(rows)).copy()

    def state(self) -> State:
        self._current()
        return self._state

    def step(self, actions: Array) -> BatchStep:
        before, state = self._current(), self._state
        actions, refused = self._check_actions(actions)
        after = np.empty_like(before)
        reward = np.zeros(self.num_envs)
        terminated, truncated = np.zeros(self.num_envs, dtype=bool), np.zeros(self.num_envs, dtype=bool)
        for row, env in enumerate(self._envs):
            observation, reward[row], terminated[row], truncated[row], _ = env.step(self._adapter.action(actions[row]))
            after[row] = self._adapter.flat(observation)
            self._played[row].append(np.atleast_1d(actions[row]).astype(np.float64))
        self._elapsed += 1
        diverged = refused | ~(np.isfinite(after).all(axis=1) & np.isfinite(reward))
        self.divergences += int(diverged.sum())
        after[diverged], reward[diverged] = before[diverged], 0.0
        terminated &= ~diverged
        truncated |= diverged
        next_state = State(raw=self._raw(after), functions=self._functions)
        fresh = after.copy()
        for ended in np.flatnonzero(terminated | truncated):
            fresh[ended] = self._restart(int(ended))
        seen = self._adopt(fresh)
        return BatchStep(seen.copy(), after, reward, terminated, truncated, state, next_state)

    def snapshot(self) -> dict[str, Array]:
        longest = int(self._elapsed.max())
        played = np.zeros((self.num_envs, longest, self.action_size))
        for row, actions in enumerate(self._played):
            if actions:
                played[row, : len(actions)] = actions
        return {
            "environment": environment_bytes(self.card.id),
            "observation": self._current().copy(),
            "generators": np.stack(self._begun),
            "elapsed_steps": self._elapsed.copy(),
            "actions": played,
            "divergences": np.array(self.divergences, dtype=np.int64),
        }

    def restore(self, snapshot: Mapping[str, Array]) -> None:
        longest = int(np.max(snapshot.get("elapsed_steps", 0)))
        shapes: dict[str, tuple[int, ...]] = {
            "observation": (self.num_envs, self.observation_size),
            "generators": (self.num_envs, random_state.WIDTH),
            "elapsed_steps": (self.num_envs,),
            "actions": (self.num_envs, longest, self.action_size),
            "divergences": (),
        }
        check_snapshot(snapshot, self.card.id, shapes)
        self._elapsed = snapshot["elapsed_steps"].astype(np.int64)
        self._begun = [np.array(row) for row in snapshot["generators"]]
        self._played = [
            [np.array(action) for action in actions[:count]]
            for actions, count in zip(snapshot["actions"], self._elapsed, strict=True)
        ]
        self.divergences = int(snapshot["divergences"])
        observed = np.stack([self._replay(row) for row in range(self.num_envs)])
        if not np.array_equal(observed, snapshot["observation"]):
            rows = np.flatnonzero((observed != snapshot["observation"]).any(axis=1)).tolist()
            message = (
                f"{self.card.id} cannot be resumed: playing its episode again gave another observation (rows {rows[:10]}), "
                "so it draws random numbers from elsewhere than its own generator"
            )
            raise FailedPrecondition(message, reason="ENVIRONMENT_NOT_REPEATABLE")
        self._adopt(observed)

    def _replay(self, row: int) -> Array:
        env = self._envs[row]
        env.reset(seed=0)  # an environment may do some work in its first reset only
        env.unwrapped.np_random = random_state.unpack(self._begun[row][None])[0]
        observation, _ = env.reset()
        for action in self._played[row]:
            single = action[0] if self.num_actions else action
            observation = env.step(self._adapter.action(single))[0]
        return self._adapter.flat(observation)

    def _restart(self, row: int) -> Array:
        env = self._envs[row]
        stream = env.unwrapped.np_random
        self._begun[row] = random_state.pack([stream])[0]
        self._played[row] = []
        self._elapsed[row] = 0
        return self._adapter.flat(env.reset()[0])

    def _adopt(self, observed: Array) -> Array:
        self._observed = observed
        self._state = State(raw=self._raw(observed), functions=self._functions)
        return observed

    def _raw(self, observed: Array) -> Raw:
        return {"observed": observed, "steps": self._elapsed.astype(np.float64)}

    def _current(self) -> Array:
        if self._observed is None:
            raise FailedPrecondition("the batch has no state yet: call reset(seeds) or restore(snapshot) first")
        return self._observed

    def _check_actions(self, actions: Array) -> tuple[Array, Array]:
        """Return actions, and the rows that were not finite (their actions become 0)."""
        actions = np.asarray(actions)
        none = np.zeros(self.num_envs, dtype=bool)
        if self.num_actions:
            fits = actions.shape == (self.num_envs,) and actions.dtype.kind in "iu"
            if not fits or not ((actions >= 0) & (actions < self.num_actions)).all():
                expected = f"integers from 0 to {self.num_actions - 1} of shape ({self.num_envs},)"
                raise InvalidArgument(field="actions", value=f"{actions.dtype} {actions.shape}", expected=expected)
            return actions, none
        if actions.shape != (self.num_envs, self.action_size) or actions.dtype.kind not in "fiu":
            expected = f"numbers of shape ({self.num_envs}, {self.action_size})"
            raise InvalidArgument(field="actions", value=f"{actions.dtype} {actions.shape}", expected=expected)
        refused: Array = ~np.asarray(np.isfinite(actions).all(axis=1))
        return np.where(refused[:, None], actions.dtype.type(0), actions), refused
