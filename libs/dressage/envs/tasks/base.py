"""The parts in which environments differ: observation, stock reward, termination, reset noise and fields.

A task is arithmetic on simulator arrays with a leading axis of rows, of numpy or JAX (`dressage.envs.namespace`); it imports
no simulator. The start of an episode is drawn from the environment's own numpy generator, as stock Gymnasium draws it, or on a
device from a key of JAX. A task's numbers (weights, healthy ranges) are stock Gymnasium v5's, held to it by the parity tests.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from dressage.envs.cards import ActionComponent, ObservationComponent
from dressage.envs.catalogue import catalogue
from dressage.envs.fields import BoundField, motors
from dressage.envs.layout import Layout
from dressage.envs.loading import load_model
from dressage.envs.namespace import clip_to, library_of
from dressage.envs.state import Array, Raw


@dataclass(frozen=True)
class Outcome:
    """Stock reward (N,) and termination (N,) of one step.

    :param terms: parts of the reward (N,), named as in stock Gymnasium's ``info``.
    """

    reward: Array
    terminated: Array
    terms: Mapping[str, Array]


@dataclass(frozen=True)
class Rules:
    """Options of one batch with defaults filled in; those that an environment does not have are None."""

    max_episode_steps: int
    terminate_when_unhealthy: bool | None
    reset_noise_scale: float | None


class DeviceDraws(Protocol):
    """The part of numpy's generator that starts of episodes use, on a device (`dressage.envs.warp_env`)."""

    def uniform(self, low: float, high: float, size: int) -> Array:
        """Return numbers (size,) from low to high."""
        ...

    def standard_normal(self, size: int) -> Array:
        """Return numbers (size,) of mean 0 and deviation 1."""
        ...

    def first_accepted(self, draw: Callable[[Draws], Array], accept: Callable[[Array], Any]) -> Array:
        """Return the first value of ``draw`` that is accepted; all candidates are drawn at once."""
        ...


Draws = np.random.Generator | DeviceDraws


class Task(ABC):
    """One environment; subclasses are stateless."""

    title: str
    description: str
    termination: str
    stock_reward: str
    example_intents: tuple[str, ...]
    can_terminate: bool = True
    # Id of an environment that starts with the same robot standing, where this one does not; its heights are measured.
    stands_as: str = ""
    # Simulator arrays that observation and step read besides qpos and qvel.
    sources: tuple[str, ...] = ()

    def __init__(self, env_id: str) -> None:
        self.env_id = env_id

    @property
    def control_weight(self) -> float:
        """Weight of the squared action in the stock reward."""
        return catalogue()[self.env_id].control_cost

    def load(self) -> Any:
        """Return the compiled model, an ``mujoco.MjModel``."""
        return load_model(catalogue()[self.env_id].model_file)

    def initial_qpos(self, model: Any) -> Array:
        """Return the ``qpos`` (nq,) at the start of an episode, without noise."""
        return np.array(model.qpos0)

    @abstractmethod
    def observation(self, raw: Raw) -> Array:
        """Return the stock observation (N, D), in the precision of the arrays, in a new array."""

    @abstractmethod
    def outcome(self, before: Raw, after: Raw, action: Array, *, time_step: float, rules: Rules) -> Outcome:
        """Return the stock reward and termination of the step from ``before`` to ``after``.

        :param action: (N, A) as given to the step; its dtype counts, since stock Gymnasium computes its control
            cost in the dtype of the action.
        """

    def facts(self, before: Raw, after: Raw, *, time_step: float, initial_qpos: Array) -> dict[str, Array]:
        """Return the entries of stock Gymnasium's ``info`` for a step, without the parts of the reward.

        :param initial_qpos: the model's reference ``qpos``.
        """
        return {}

    @abstractmethod
    def start(self, rng: Draws, layout_qpos: Array, *, nv: int, scale: float) -> tuple[Array, Array]:
        """Draw the first ``qpos`` (nq,) and ``qvel`` (nv,) of an episode as stock Gymnasium's ``reset_model`` does.

        :param layout_qpos: the model's reference ``qpos``.
        :param scale: the option ``reset_noise_scale``.
        """

    @abstractmethod
    def fields(self, layout: Layout) -> list[BoundField]:
        """Return all fields of the state, in the card's order."""

    @abstractmethod
    def observation_components(self, layout: Layout) -> tuple[ObservationComponent, ...]:
        """Return the meaning of each number of the observation."""

    def action(self, layout: Layout) -> tuple[ActionComponent, ...]:
        """Return the meaning of each number of the action."""
        return motors(layout)


def first_accepted(rng: Draws, draw: Callable[[Draws], Array], accept: Callable[[Array], Any]) -> Array:
    """Return the first value of ``draw`` that is accepted.

    On a device, where loops have a fixed length, all candidates are drawn at once.
    """
    if not isinstance(rng, np.random.Generator):
        return rng.first_accepted(draw, accept)
    while True:
        value = draw(rng)
        if accept(value):
            return value


def control_cost(action: Array, weight: float) -> Array:
    """Return ``weight`` times the squared norm of each row's action, in the action's dtype as stock Gymnasium has it."""
    cost: Array = weight * (action * action).sum(axis=-1)
    return cost


def column_rate(before: Raw, after: Raw, column: int, time_step: float) -> Array:
    """Return the mean rate (N,) of one entry of ``qpos`` over a step."""
    rate: Array = (after["qpos"][:, column] - before["qpos"][:, column]) / time_step
    return rate


def planar_facts(before: Raw, after: Raw, *, time_step: float, initial_qpos: Array) -> dict[str, Array]:
    """Return `Task.facts` of a torso whose x and z come first in ``qpos``."""
    qpos = after["qpos"]
    return {
        "x_position": qpos[:, 0],
        "z_distance_from_origin": qpos[:, 1] - float(initial_qpos[1]),
        "x_velocity": column_rate(before, after, 0, time_step),
    }


def distance_from_origin(raw: Raw) -> Array:
    """Return the horizontal distance (N,) in m of a body whose x and y come first in ``qpos``."""
    place = raw["qpos"][:, :2]
    distance: Array = library_of(place).sqrt((place * place).sum(axis=1))
    return distance


def contact_cost(raw: Raw, weight: float) -> Array:
    """Return ``weight`` times the sum of the squared contact forces and torques on all bodies, (N,)."""
    forces = raw["cfrc_ext"]
    cost: Array = weight * (forces * forces).reshape(len(forces), -1).sum(axis=1)
    return cost


def positions_and_velocities(raw: Raw, *, skip: int, clip: float | None = None) -> Array:
    """Return ``qpos`` without its first ``skip`` entries, then ``qvel`` clipped to ±``clip``: (N, nq - skip + nv)."""
    qpos, qvel = raw["qpos"], raw["qvel"]
    rates = qvel if clip is None else clip_to(qvel, clip)
    observation: Array = library_of(qpos).concatenate((qpos[:, skip:], rates), axis=1)
    return observation


def uniform_start(rng: Draws, qpos: Array, nv: int, scale: float) -> tuple[Array, Array]:
    """Return positions and velocities with uniform noise of ±``scale``, drawn for positions first."""
    return qpos + rng.uniform(low=-scale, high=scale, size=len(qpos)), rng.uniform(low=-scale, high=scale, size=nv)


def normal_velocity_start(rng: Draws, qpos: Array, nv: int, scale: float) -> tuple[Array, Array]:
    """Return positions with uniform noise of ±``scale``, then velocities of normal noise of deviation ``scale``."""
    return qpos + rng.uniform(low=-scale, high=scale, size=len(qpos)), scale * rng.standard_normal(nv)
