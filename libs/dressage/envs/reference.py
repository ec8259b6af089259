"""Episodes on the reference implementation, stock Gymnasium: what scores and judgments rest on.

Nothing of the batched simulation takes part here but the definitions of the fields, which read the same arrays off a
single stock environment's ``MjData``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from importlib import metadata as distributions
from itertools import pairwise
from typing import Any

import numpy as np

from dressage.envs.cards import EnvironmentCard, load_card
from dressage.envs.layout import layout_of
from dressage.envs.loading import quiet_loading
from dressage.envs.options import EnvOptions
from dressage.envs.state import Array
from dressage.envs.tasks import task as task_of
from dressage.envs.trajectory import Trajectory
from dressage.errors import InvalidArgument

Policy = Callable[[Array], Array]
"""From one observation (D,) to one action (A,), or, for batched rollouts, from (n, D) to (n, A)."""


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
    """Uniformly random actions between the action bounds, for one observation or a batch of them."""
    card = load_card(env_id)
    low = np.array([part.low for part in card.action], dtype=np.float32)
    high = np.array([part.high for part in card.action], dtype=np.float32)
    rng = np.random.default_rng(seed)

    def act(observation: Array) -> Array:
        return rng.uniform(low, high, size=(*observation.shape[:-1], len(low))).astype(np.float32)

    return act


def motionless_policy(env_id: str) -> Policy:
    """The zero action, always."""
    size = load_card(env_id).action_size
    return lambda observation: np.zeros((*observation.shape[:-1], size), dtype=np.float32)


def untrained_policy(env_id: str, seed: int) -> Policy:
    """The deterministic actions of a randomly initialised tanh network of two hidden layers of 64."""
    card = load_card(env_id)
    low = np.array([part.low for part in card.action])
    high = np.array([part.high for part in card.action])
    rng = np.random.default_rng(seed)
    sizes = (card.observation_size, 64, 64, card.action_size)
    layers = [rng.standard_normal(shape) / np.sqrt(shape[0]) for shape in pairwise(sizes)]

    def act(observation: Array) -> Array:
        hidden = observation
        for weight in layers:
            hidden = np.tanh(hidden @ weight)
        action: Array = (low + (hidden + 1) / 2 * (high - low)).astype(np.float32)
        return action

    return act


def make_stock(card: EnvironmentCard, options: EnvOptions) -> Any:
    """The stock Gymnasium environment with these options."""
    import gymnasium

    given: dict[str, Any] = dict(options.given())
    with quiet_loading():
        return gymnasium.make(card.id, **given)


def _alone(policy: Policy, card: EnvironmentCard, seed: int, options: EnvOptions, env: Any) -> Trajectory:
    episode = _Episode(card, seed, options, env)
    while not episode.done:
        episode.step(policy(episode.observation))
    return episode.trajectory()


def _together(policy: Policy, card: EnvironmentCard, seeds: Sequence[int], options: EnvOptions) -> list[Trajectory]:
    """All episodes in lockstep; one policy call serves those that still run."""
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
    """One stock environment, and what has been recorded of its episode."""

    def __init__(self, card: EnvironmentCard, seed: int, options: EnvOptions, env: Any) -> None:
        self.card, self.seed, self.options = card, seed, options
        self._env = env
        self._data = env.unwrapped.data
        self._bound = task_of(card.id).fields(layout_of(env.unwrapped.model))
        self._sources = sorted({"qpos", "qvel", *(name for entry in self._bound for name in entry.sources)})
        self._rows: dict[str, list[Array]] = {name: [] for name in self._sources}
        self._actions: list[Array] = []
        self._rewards: list[float] = []
        self.terminated = self.truncated = False
        self.observation: Array = env.reset(seed=seed)[0]
        self._record()

    @property
    def done(self) -> bool:
        return self.terminated or self.truncated

    def step(self, action: Array) -> None:
        action = np.asarray(action)
        if action.shape != (self.card.action_size,) or not np.isfinite(action).all():
            expected = f"{self.card.action_size} finite numbers at step {len(self._rewards)}"
            raise InvalidArgument(field="action", value=action.tolist(), expected=expected)
        self.observation, reward, terminated, truncated, _ = self._env.step(action)
        self.terminated, self.truncated = bool(terminated), bool(truncated)
        self._actions.append(action.astype(np.float64))
        self._rewards.append(float(reward))
        self._record()

    def trajectory(self) -> Trajectory:
        raw = {name: np.stack(rows) for name, rows in self._rows.items()}
        return Trajectory(
            environment=self.card.id,
            seed=self.seed,
            fields={entry.field.name: np.ascontiguousarray(entry.function(raw)) for entry in self._bound},
            action=np.stack(self._actions),
            reward=np.array(self._rewards),
            terminated=self.terminated,
            truncated=self.truncated,
            qpos=raw["qpos"],
            qvel=raw["qvel"],
            metadata={
                "options": self.options.given(),
                "versions": {name: distributions.version(name) for name in ("gymnasium", "mujoco", "numpy")},
            },
        )

    def _record(self) -> None:
        for name, rows in self._rows.items():
            rows.append(np.array(getattr(self._data, name)))
