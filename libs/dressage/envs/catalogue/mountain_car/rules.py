"""MountainCar-v0, as Gymnasium plays it. ``state``: position and velocity. Draw at the start: the position."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dressage.envs.rules import Rules, no_number
from dressage.envs.state import Array

LEFT, RIGHT, MAX_SPEED, GRAVITY = -1.2, 0.6, 0.07, 0.0025
_GOAL, _FORCE = 0.5, 0.001


def draw_start(stream: np.random.Generator) -> Array:
    """Return the position at the start, (1,)."""
    return stream.uniform(low=-0.6, high=-0.4, size=1)


def start(state: Any, draws: Any) -> None:
    """`Rules.start`."""
    state[0] = draws[0]
    state[1] = 0.0


def observe(state: Any, observation: Any) -> None:
    """`Rules.observe`."""
    observation[0] = np.float32(state[0])
    observation[1] = np.float32(state[1])


def _step(state: Any, choice: int, action: Any, draws: Any, first: int) -> tuple[float, bool]:
    position, velocity = state[0], state[1]
    velocity += (choice - 1) * _FORCE + math.cos(3 * position) * (-GRAVITY)
    velocity = min(max(velocity, -MAX_SPEED), MAX_SPEED)
    position += velocity
    position = min(max(position, LEFT), RIGHT)
    if position == LEFT and velocity < 0:
        velocity = 0.0
    state[0], state[1] = position, velocity
    return -1.0, position >= _GOAL and velocity >= 0.0


RULES = {
    "MountainCar-v0": Rules(
        name="mountain_car",
        state_size=2,
        observation_size=2,
        start=start,
        step=_step,
        observe=observe,
        number=no_number,
        draws_at_start=1,
        draw_start=draw_start,
    )
}
