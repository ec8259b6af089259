"""Single reference environments: how to make one for a card, and how to read its state as fields do.

For a registered environment that is stock Gymnasium's; for a custom model it is a plain Gymnasium environment around one
``MjData``. Neither shares code with the batches that train.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dressage.envs import custom, random_state
from dressage.envs.cards import EnvironmentCard
from dressage.envs.catalogue import catalogue
from dressage.envs.fields import BoundField, sources_of
from dressage.envs.layout import layout_of
from dressage.envs.loading import quiet_loading
from dressage.envs.options import EnvOptions
from dressage.envs.packs import models
from dressage.envs.packs.registry import PACKS
from dressage.envs.plain import is_plain, plain
from dressage.envs.state import Array, Raw
from dressage.envs.tasks import is_simulated
from dressage.envs.tasks import task as task_of
from dressage.errors import FailedPrecondition


@dataclass(frozen=True)
class Source:
    """Reads one environment.

    :param bound: the fields.
    :param flat: the environment's observation as (D,) float64.
    :param read: from that observation and the number of steps done to the raw arrays of one row, copies.
    :param motion: from raw arrays (T, ...) to positions (T, nq) and velocities (T, nv); empty where there are none.
    :param action: from a checked action to what the environment takes.
    :param packages: what the result depends on.
    """

    bound: Sequence[BoundField]
    flat: Callable[[Any], Array]
    read: Callable[[Array, int], dict[str, Array]]
    motion: Callable[[Raw], tuple[Array, Array]]
    packages: tuple[str, ...]
    action: Callable[[Array], Any] = lambda action: action


def make_stock(card: EnvironmentCard, options: EnvOptions) -> Any:
    """Return the reference environment with these options."""
    if card.id.startswith(custom.GYMNASIUM):
        from dressage.envs.vector import make_registered

        return make_registered(card.id, options.max_episode_steps or card.max_episode_steps)
    if card.id.startswith(custom.MODEL):
        return _ModelEnv(card, options)
    if card.pack:
        return _of_pack(card, options)
    return make_by_id(card.id, **options.overrides())


def make_by_id(env_id: str, **arguments: Any) -> Any:
    """Return an environment that Gymnasium or `dressage.envs.small` registers.

    :param arguments: arguments of ``gymnasium.make``.
    """
    import gymnasium

    if is_plain(env_id):
        from dressage.envs.small import register

        register()
        return gymnasium.make(env_id, **arguments)
    with quiet_loading():
        return gymnasium.make(env_id, **arguments)


def _of_pack(card: EnvironmentCard, options: EnvOptions) -> Any:
    from dressage.envs.packs import registry, simulators

    try:
        return simulators.make(card.id, options.max_episode_steps)
    except Exception as error:  # damaged packages may raise anything
        problem = f"{type(error).__name__}: {error}"
        message = f"{card.id} cannot be made; it is played in a process of the environment pack {card.pack}: {problem}"
        raise FailedPrecondition(message, reason=registry.DAMAGED, metadata={"problem": problem}) from error


def source_of(card: EnvironmentCard, env: Any) -> Source:
    """Return how to read an environment of `make_stock`."""
    if card.pack and PACKS[card.pack].batched:
        return _simulator_source(card, env)
    if card.id.startswith(custom.GYMNASIUM) or card.pack:
        from dressage.envs.vector import bound_fields

        return _observation_source(bound_fields(card), card, env)
    if is_plain(card.id):
        return _observation_source(plain(card.id).bound, card, env)
    if not is_simulated(card.id):
        return _own(card, env.unwrapped)
    stock: Any = env.unwrapped
    bound = task_of(card.id).fields(layout_of(stock.model))
    data, names = stock.data, sorted({"qpos", "qvel", *sources_of(bound)})
    return Source(
        bound=bound,
        flat=lambda observation: np.asarray(observation, dtype=np.float64),
        read=lambda observation, steps: {name: np.array(getattr(data, name)) for name in names},
        motion=lambda raw: (raw["qpos"], raw["qvel"]),
        packages=("gymnasium", "mujoco", "numpy"),
    )


def _observation_source(bound: Sequence[BoundField], card: EnvironmentCard, env: Any) -> Source:
    """Return how to read an environment whose visible state is its observation."""
    from dressage.envs.vector import Adapter

    adapter = Adapter(env, card.id)
    return Source(
        bound=bound,
        flat=adapter.flat,
        read=lambda observation, steps: {"observed": observation, "steps": np.array(float(steps))},
        motion=lambda raw: (np.zeros((len(raw["steps"]), 0)), np.zeros((len(raw["steps"]), 0))),
        packages=("gymnasium", "numpy"),
        action=adapter.action,
    )


def _simulator_source(card: EnvironmentCard, env: Any) -> Source:
    """Return how to read an environment of a batched simulator, which computes the fields itself."""
    from dressage.envs.packs.batched.fields import bound_fields

    simulated = env.unwrapped
    observed = _observation_source(bound_fields(card), card, env)
    return replace(
        observed,
        read=lambda observation, steps: {**observed.read(observation, steps), **simulated.fields()},
        motion=models.motion if card.has_video else observed.motion,
    )


def _own(card: EnvironmentCard, stock: Any) -> Source:
    """Return how to read an environment whose folder has a batch of its own."""
    module = importlib.import_module(catalogue()[card.id].module)
    return Source(
        bound=module.bound_fields(),
        flat=lambda observation: np.asarray(observation, dtype=np.float64),
        read=lambda observation, steps: module.raw_arrays(stock, steps * card.time_step),
        motion=module.motion,
        packages=("gymnasium", "numpy"),
        action=int,
    )


class _ModelEnv:
    """A custom model as a plain environment with Gymnasium's interface, around one ``MjData``."""

    def __init__(self, card: EnvironmentCard, options: EnvOptions) -> None:
        import mujoco

        from dressage.envs.engine import DIVERGENCE

        self._divergence = DIVERGENCE
        self._mujoco, self._task = mujoco, task_of(card.id)
        self.model = self._task.load()
        self.data = mujoco.MjData(self.model)
        self.unwrapped = self
        values: dict[str, Any] = {**card.options, **options.overrides()}
        self._limit, self._scale = int(values["max_episode_steps"]), float(values["reset_noise_scale"])
        self._substeps = round(card.time_step / float(self.model.opt.timestep))
        self._stream, self._elapsed = random_state.generator(0), 0

    def reset(self, *, seed: int | None = None) -> tuple[Array, dict[str, Any]]:
        """Start an episode."""
        if seed is not None:
            self._stream = random_state.generator(seed)
        initial = self._task.initial_qpos(self.model)
        self._mujoco.mj_resetData(self.model, self.data)
        qpos, qvel = self._task.start(self._stream, initial, nv=int(self.model.nv), scale=self._scale)
        self.data.qpos[:], self.data.qvel[:] = qpos, qvel
        self._mujoco.mj_forward(self.model, self.data)
        self._elapsed = 0
        return self._observation(), {}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Apply an action for one time step."""
        self.data.ctrl[:] = action
        self._mujoco.mj_step(self.model, self.data, nstep=self._substeps)
        self._mujoco.mj_rnePostConstraint(self.model, self.data)
        self._elapsed += 1
        # MuJoCo has reset and counted a simulation that diverged; the episode ends, as in the batch.
        diverged = bool(self.data.warning.number[self._divergence].any())
        return self._observation(), 0.0, False, diverged or self._elapsed >= self._limit, {}

    def close(self) -> None:
        """Do nothing; the environment holds no resources."""

    def _observation(self) -> Array:
        return np.concatenate((self.data.qpos, self.data.qvel))
