"""MountainCar-v0 and MountainCarContinuous-v0. ``state``: position, velocity, and whether the episode has begun.

The first computes in double precision. The second keeps its state in single precision from the first step on, and NumPy
computes what follows from it in single precision too; the cosine is always that of a double.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dressage.episodes.compiling import device
from dressage.episodes.rules.base import Array, Rules, no_number

_LEFT, _RIGHT, _MAX_SPEED, _GOAL = -1.2, 0.6, 0.07, 0.5
_FORCE, _GRAVITY = 0.001, 0.0025
_CONTINUOUS_GOAL, _POWER = 0.45, 0.0015
_LEFT32, _RIGHT32, _MAX_SPEED32 = np.float32(_LEFT), np.float32(_RIGHT), np.float32(_MAX_SPEED)
_GOAL32, _POWER32 = np.float32(_CONTINUOUS_GOAL), np.float32(_POWER)
_START = (-0.6, -0.4)


def _draws(stream: np.random.Generator, limit: int) -> Array:
    low, high = _START
    return np.array([stream.uniform(low=low, high=high)])


@device
def _start(state: Any, draws: Any) -> None:
    state[0] = draws[0]
    state[1] = 0.0
    state[2] = 0.0


@device
def _observe(state: Any, observation: Any) -> None:
    observation[0] = np.float32(state[0])
    observation[1] = np.float32(state[1])


@device
def _step(state: Any, choice: int, action: Any, draws: Any) -> tuple[float, bool]:
    position, velocity = state[0], state[1]
    velocity += (choice - 1) * _FORCE + math.cos(3 * position) * (-_GRAVITY)
    velocity = min(max(velocity, -_MAX_SPEED), _MAX_SPEED)
    position += velocity
    position = min(max(position, _LEFT), _RIGHT)
    if position == _LEFT and velocity < 0:
        velocity = 0.0
    state[0], state[1] = position, velocity
    return -1.0, position >= _GOAL and velocity >= 0.0


@device
def _first_continuous(state: Any, push: Any) -> None:
    """Do the first step: a double-precision state, with an increment of single precision."""
    position, velocity = state[0], state[1]
    velocity += np.float64(push - np.float32(_GRAVITY * math.cos(3 * position)))
    velocity = min(max(velocity, -_MAX_SPEED), _MAX_SPEED)
    position = min(max(position + velocity, _LEFT), _RIGHT)
    if position == _LEFT and velocity < 0:
        velocity = 0.0
    state[0], state[1], state[2] = position, velocity, 1.0


@device
def _later_continuous(state: Any, push: Any) -> None:
    position, velocity = np.float32(state[0]), np.float32(state[1])
    slope = np.float32(_GRAVITY * math.cos(np.float64(np.float32(3) * position)))
    velocity = np.float32(velocity + np.float32(push - slope))
    velocity = min(max(velocity, -_MAX_SPEED32), _MAX_SPEED32)
    position = np.float32(position + velocity)
    position = min(max(position, _LEFT32), _RIGHT32)
    if position == _LEFT32 and velocity < 0:
        velocity = np.float32(0)
    state[0], state[1] = position, velocity


@device
def _step_continuous(state: Any, choice: int, action: Any, draws: Any) -> tuple[float, bool]:
    # Actions are within their bounds, so that Gymnasium's own clip changes nothing.
    push = np.float32(action[0] * _POWER32)
    if state[2] == 0.0:
        _first_continuous(state, push)
        reached = state[0] >= _CONTINUOUS_GOAL and state[1] >= 0.0
        state[0], state[1] = np.float32(state[0]), np.float32(state[1])
    else:
        _later_continuous(state, push)
        reached = np.float32(state[0]) >= _GOAL32 and state[1] >= 0.0
    reward = 100.0 if reached else 0.0
    effort = np.float64(action[0])
    return reward - effort * effort * 0.1, reached


RULES = Rules(
    name="mountain_car",
    state_size=3,
    observation_size=2,
    action_size=0,
    draws=_draws,
    start=_start,
    observe=_observe,
    number=no_number,
    step=_step,
)
CONTINUOUS = Rules(
    name="mountain_car_continuous",
    state_size=3,
    observation_size=2,
    action_size=1,
    draws=_draws,
    start=_start,
    observe=_observe,
    number=no_number,
    step=_step_continuous,
)
