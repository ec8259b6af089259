"""Episodes on the reference implementation, stock Gymnasium: the basis of scores and judgments.

Nothing of the batched simulation takes part here but the definitions of the fields, which read the same arrays off a
single stock environment (`dressage.envs.stock`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import metadata as distributions
from itertools import pairwise
from typing import Any

import numpy as np

from dressage.envs.cards import EnvironmentCard, load_card
from dressage.envs.fields import trackers_of
from dressage.envs.options import EnvOptions
from dressage.envs.state import Array
from dressage.envs.stock import make_stock, source_of
from dressage.envs.trajectory import Trajectory
from dressage.errors import InvalidArgument

Policy = Callable[[Array], Array]
"""From one observation (D,) to one action (A,), or, for batched rollouts, from (n, D) to (n, A). A discrete action is a
single integer: (), and (n,)."""


def rollout(
    policy: Policy,
    env_id: str,
    seeds: Sequence[int],
    options: EnvOptions | None = None,
    *,
    batched: bool = False,
) -> list[Trajectory]:
    """Record one stock Gymnasium episode per seed. Equal seeds and policy give equal episodes.

    :param policy: from an observation (D,) float64 to an action (A,), which is given to the environment as it is.
    :param seeds: seeds of ``env.reset(seed=...)``.
    :param options: passed to ``gymnasium.make``.
    :param batched: run all episodes in lockstep; the policy then maps (n, D) to (n, A) for the n episodes that still
        run, in the order of the seeds.
    :returns: episodes in the order of the seeds, columns in float64.
    :raises NotFound: for an unknown environment.
    :raises InvalidArgument: for a bad option, or an action of the wrong shape or not finite.
    """
    options = options or EnvOptions()
    card = options.check(env_id)
    if batched:
        return _together(policy, card, seeds, options)
    env = make_stock(card, options)
    try:
        return [_alone(policy, card, int(seed), options, env) for seed in seeds]
    finally:
        env.close()


def random_policy(env_id: str, seed: int) -> Policy:
    """Return uniformly random actions between the action bounds, for one observation or a batch of them."""
    card = load_card(env_id)
    low, high = _bounds(card)
    rng = np.random.default_rng(seed)

    def act(observation: Array) -> Array:
        if card.action_kind == "discrete":
            return np.asarray(rng.integers(card.num_actions, size=observation.shape[:-1]))
        return rng.uniform(low, high, size=(*observation.shape[:-1], len(low))).astype(np.float32)

    return act


def motionless_policy(env_id: str) -> Policy:
    """Return the zero action, always; of a discrete action, the first choice."""
    card = load_card(env_id)
    if card.action_kind == "discrete":
        return lambda observation: np.zeros(observation.shape[:-1], dtype=np.int64)
    return lambda observation: np.zeros((*observation.shape[:-1], card.action_size), dtype=np.float32)


def untrained_policy(env_id: str, seed: int) -> Policy:
    """Return the deterministic actions of a randomly initialised tanh network of two hidden layers of 64."""
    card = load_card(env_id)
    low, high = (bound.astype(np.float64) for bound in _bounds(card))
    rng = np.random.default_rng(seed)
    sizes = (card.observation_size, 64, 64, card.num_actions or card.action_size)
    layers = [rng.standard_normal(shape) / np.sqrt(shape[0]) for shape in pairwise(sizes)]

    def act(observation: Array) -> Array:
        hidden = observation
        for weight in layers:
            hidden = np.tanh(hidden @ weight)
        if card.action_kind == "discrete":
            return np.asarray(hidden.argmax(axis=-1))
        action: Array = (low + (hidden + 1) / 2 * (high - low)).astype(np.float32)
        return action

    return act


def _bounds(card: EnvironmentCard) -> tuple[Array, Array]:
    low = np.array([part.low for part in card.action], dtype=np.float32)
    return low, np.array([part.high for part in card.action], dtype=np.float32)


def _alone(policy: Policy, card: EnvironmentCard, seed: int, options: EnvOptions, env: Any) -> Trajectory:
    episode = _Episode(card, seed, options, env)
    while not episode.done:
        episode.step(policy(episode.observation))
    return episode.trajectory()


def _together(policy: Policy, card: EnvironmentCard, seeds: Sequence[int], options: EnvOptions) -> list[Trajectory]:
    """Play all episodes in lockstep; one policy call serves those that still run."""
    with ExitStack() as stack:
        episodes = []
        for seed in seeds:
            env = make_stock(card, options)
            stack.callback(env.close)
            episodes.append(_Episode(card, int(seed), options, env))
        while running := [episode for episode in episodes if not episode.done]:
            actions = np.asarray(policy(np.stack([episode.observation for episode in running])))
            if actions.shape[:1] != (len(running),):
                raise InvalidArgument(field="action", value=actions.shape, expected=f"{len(running)} rows")
            for episode, action in zip(running, actions, strict=True):
                episode.step(action)
        return [episode.trajectory() for episode in episodes]


class _Episode:
    """One reference environment, and what has been recorded of its episode."""

    def __init__(self, card: EnvironmentCard, seed: int, options: EnvOptions, env: Any) -> None:
        self.card, self.seed, self.options = card, seed, options
        self._env = env
        self._source = source_of(card, env)
        self._trackers = trackers_of(self._source.bound)
        self._rows: list[dict[str, Array]] = []
        self._actions: list[Array] = []
        self._rewards: list[float] = []
        self.terminated = self.truncated = False
        self.success: bool | None = None
        self.observation: Array = self._source.flat(env.reset(seed=seed)[0])
        self._record()

    @property
    def done(self) -> bool:
        return self.terminated or self.truncated

    def step(self, action: Array) -> None:
        action = checked_action(np.asarray(action), self.card, step=len(self._rewards))
        env_action = self._source.action(action)
        observation, reward, terminated, truncated, info = self._env.step(env_action)
        self.success = _success(info)
        self.observation = self._source.flat(observation)
        self.terminated, self.truncated = bool(terminated), bool(truncated)
        self._actions.append(action.astype(np.float64))
        self._rewards.append(float(reward))
        self._record()

    def trajectory(self) -> Trajectory:
        raw = {name: np.concatenate([row[name] for row in self._rows]) for name in self._rows[0]}
        positions, velocities = self._source.motion(raw)
        return Trajectory(
            environment=self.card.id,
            seed=self.seed,
            fields={entry.field.name: np.ascontiguousarray(entry.function(raw)) for entry in self._source.bound},
            action=np.stack(self._actions),
            reward=np.array(self._rewards),
            terminated=self.terminated,
            truncated=self.truncated,
            qpos=positions,
            qvel=velocities,
            metadata={
                "options": self.options.overrides(),
                "versions": {name: distributions.version(name) for name in self._source.packages},
            },
        )

    def _record(self) -> None:
        """Record the present state as one row, with the tracked arrays."""
        row = {name: array[None] for name, array in self._source.read(self.observation, len(self._rewards)).items()}
        for name, tracker in self._trackers.items():
            row[name] = tracker.step(self._rows[-1], row) if self._rows else tracker.start(row)
        self._rows.append(row)


def checked_action(action: Array, card: EnvironmentCard, *, step: int) -> Array:
    """Return the action if it is legal.

    :raises InvalidArgument: if it is not.
    """
    if card.action_kind == "discrete":
        count = card.num_actions
        if action.shape != () or action.dtype.kind not in "iu" or not 0 <= int(action) < count:
            expected = f"an integer from 0 to {count - 1} at step {step}"
            raise InvalidArgument(field="action", value=action.tolist(), expected=expected)
    elif action.shape != (card.action_size,) or not np.isfinite(action).all():
        expected = f"{card.action_size} finite numbers at step {step}"
        raise InvalidArgument(field="action", value=action.tolist(), expected=expected)
    return action


def _success(info: Mapping[str, Any]) -> bool | None:
    """Return whether the goal is reached, where ``info`` contains it, as in goal environments of Gymnasium."""
    return bool(info["is_success"]) if "is_success" in info else None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an episode.

    :param stock_return: sum of the stock rewards, undiscounted.
    :param length: steps.
    :param success: ``info["is_success"]`` of the last step; None where the environment does not give it.
    """

    stock_return: float
    length: int
    success: bool | None


class StockPlayer:
    """One stock environment, kept from episode to episode: for many short evaluations. Use as a context manager, or close it.

    :param env_id: environment id.
    :param options: passed to ``gymnasium.make``.
    :raises NotFound: for an unknown environment.
    :raises InvalidArgument: for a bad option.
    """

    def __init__(self, env_id: str, options: EnvOptions | None = None) -> None:
        self._options = options or EnvOptions()
        self.card = self._options.check(env_id)
        self._env = make_stock(self.card, self._options)
        self._source = source_of(self.card, self._env)

    def __enter__(self) -> StockPlayer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the environment."""
        self._env.close()

    def play(self, policy: Policy, seed: int) -> Outcome:
        """Play one episode. Nothing is recorded; the outcome is that of `record`.

        :param policy: from an observation (D,) float64 to an action.
        :raises InvalidArgument: for an action of the wrong shape or not finite.
        """
        env, card, source = self._env, self.card, self._source
        observation, ended = source.flat(env.reset(seed=seed)[0]), False
        rewards: list[float] = []
        info: Mapping[str, Any] = {}
        while not ended:
            action = checked_action(np.asarray(policy(observation)), card, step=len(rewards))
            state, reward, terminated, truncated, info = env.step(source.action(action))
            observation, ended = source.flat(state), bool(terminated or truncated)
            rewards.append(float(reward))
        # Summed as a trajectory's rewards are: the order of additions counts in the last digit.
        return Outcome(float(np.sum(np.array(rewards))), len(rewards), _success(info))

    def record(self, policy: Policy, seed: int) -> tuple[Trajectory, Outcome]:
        """Play one episode and record it.

        :raises InvalidArgument: for an action of the wrong shape or not finite.
        """
        episode = _Episode(self.card, seed, self._options, self._env)
        while not episode.done:
            episode.step(policy(episode.observation))
        trajectory = episode.trajectory()
        return trajectory, Outcome(trajectory.stock_return, len(trajectory.action), episode.success)
