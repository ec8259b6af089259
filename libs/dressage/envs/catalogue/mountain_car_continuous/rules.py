"""MountainCarContinuous-v0, as Gymnasium plays it. ``state``: position, velocity, and whether the episode has begun.

The first step computes with a state of double precision. From then on Gymnasium keeps the state in single precision, and NumPy
computes what follows from it in single precision too; the cosine is always that of a double.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dressage.envs.catalogue.mountain_car.rules import GRAVITY, LEFT, MAX_SPEED, RIGHT, draw_start, observe
from dressage.envs.rules import Rules, no_number

_GOAL, _POWER = 0.45, np.float32(0.0015)
_LEFT32, _RIGHT32, _MAX_SPEED32, _GOAL32 = np.float32(LEFT), np.float32(RIGHT), np.float32(MAX_SPEED), np.float32(_GOAL)


def _start(state: Any, draws: Any) -> None:
    state[0] = draws[0]
    state[1] = 0.0
    state[2] = 0.0


def _step(state: Any, choice: int, action: Any, draws: Any, first: int) -> tuple[float, bool]:
    # Actions are within their bounds, so that Gymnasium's own clip changes nothing.
    push = np.float32(action[0] * _POWER)
    if state[2] == 0.0:
        position, velocity = state[0], state[1]
        velocity += np.float64(push - np.float32(GRAVITY * math.cos(3 * position)))
        velocity = min(max(velocity, -MAX_SPEED), MAX_SPEED)
        position = min(max(position + velocity, LEFT), RIGHT)
        if position == LEFT and velocity < 0:
            velocity = 0.0
        reached = position >= _GOAL and velocity >= 0.0
        state[0], state[1], state[2] = np.float32(position), np.float32(velocity), 1.0
    else:
        position32, velocity32 = np.float32(state[0]), np.float32(state[1])
        slope = np.float32(GRAVITY * math.cos(np.float64(np.float32(3) * position32)))
        velocity32 = np.float32(velocity32 + np.float32(push - slope))
        velocity32 = min(max(velocity32, -_MAX_SPEED32), _MAX_SPEED32)
        position32 = np.float32(position32 + velocity32)
        position32 = min(max(position32, _LEFT32), _RIGHT32)
        if position32 == _LEFT32 and velocity32 < 0:
            velocity32 = np.float32(0)
        reached = position32 >= _GOAL32 and velocity32 >= 0.0
        state[0], state[1] = position32, velocity32
    reward = 100.0 if reached else 0.0
    effort = np.float64(action[0])
    return reward - effort * effort * 0.1, reached


RULES = {
    "MountainCarContinuous-v0": Rules(
        name="mountain_car_continuous",
        state_size=3,
        observation_size=2,
        start=_start,
        step=_step,
        observe=observe,
        number=no_number,
        action_size=1,
        draws_at_start=1,
        draw_start=draw_start,
    )
}
