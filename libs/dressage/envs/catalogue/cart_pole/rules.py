"""CartPole-v1, as Gymnasium plays it. ``state``: position, velocity, angle, angular velocity, in double precision."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dressage.envs.catalogue.cart_pole import (
    ANGLE_LIMIT,
    FORCE,
    GRAVITY,
    HALF_POLE,
    PLACE_LIMIT,
    POLE_MASS,
    POLE_MOMENT,
    START,
    TIME_STEP,
    TOTAL_MASS,
)
from dressage.envs.rules import Rules, no_number
from dressage.envs.state import Array


def _draw_start(stream: np.random.Generator) -> Array:
    return stream.uniform(low=-START, high=START, size=(4,))


def _start(state: Any, draws: Any) -> None:
    for index in range(4):
        state[index] = draws[index]


def _observe(state: Any, observation: Any) -> None:
    for index in range(4):
        observation[index] = np.float32(state[index])


def _step(state: Any, choice: int, action: Any, draws: Any, first: int) -> tuple[float, bool]:
    x, x_dot, theta, theta_dot = state[0], state[1], state[2], state[3]
    force = FORCE if choice == 1 else -FORCE
    cos, sin = math.cos(theta), math.sin(theta)
    temp = (force + POLE_MOMENT * (theta_dot * theta_dot) * sin) / TOTAL_MASS
    theta_acc = (GRAVITY * sin - cos * temp) / (HALF_POLE * (4.0 / 3.0 - POLE_MASS * (cos * cos) / TOTAL_MASS))
    x_acc = temp - POLE_MOMENT * theta_acc * cos / TOTAL_MASS
    x = x + TIME_STEP * x_dot
    theta = theta + TIME_STEP * theta_dot
    state[0] = x
    state[1] = x_dot + TIME_STEP * x_acc
    state[2] = theta
    state[3] = theta_dot + TIME_STEP * theta_acc
    return 1.0, x < -PLACE_LIMIT or x > PLACE_LIMIT or theta < -ANGLE_LIMIT or theta > ANGLE_LIMIT


RULES = {
    "CartPole-v1": Rules(
        name="cart_pole",
        state_size=4,
        observation_size=4,
        start=_start,
        step=_step,
        observe=_observe,
        number=no_number,
        draws_at_start=4,
        draw_start=_draw_start,
        math_functions=("cos", "sin"),
    )
}
