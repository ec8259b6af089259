"""CartPole-v1, as Gymnasium plays it. ``state``: position, velocity, angle, angular velocity, in double precision."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from dressage.envs.rules import Rules, no_number
from dressage.envs.state import Array

_GRAVITY, _CART_MASS, _POLE_MASS, _HALF_POLE = 9.8, 1.0, 0.1, 0.5
_TOTAL_MASS = _POLE_MASS + _CART_MASS
_POLE_MOMENT = _POLE_MASS * _HALF_POLE
_FORCE, _TIME_STEP = 10.0, 0.02
_ANGLE_LIMIT, _PLACE_LIMIT = 12 * 2 * math.pi / 360, 2.4
_START = 0.05


def _draw_start(stream: np.random.Generator) -> Array:
    return stream.uniform(low=-_START, high=_START, size=(4,))


def _start(state: Any, draws: Any) -> None:
    for index in range(4):
        state[index] = draws[index]


def _observe(state: Any, observation: Any) -> None:
    for index in range(4):
        observation[index] = np.float32(state[index])


def _step(state: Any, choice: int, action: Any, draws: Any, first: int) -> tuple[float, bool]:
    x, x_dot, theta, theta_dot = state[0], state[1], state[2], state[3]
    force = _FORCE if choice == 1 else -_FORCE
    cos, sin = math.cos(theta), math.sin(theta)
    temp = (force + _POLE_MOMENT * (theta_dot * theta_dot) * sin) / _TOTAL_MASS
    theta_acc = (_GRAVITY * sin - cos * temp) / (_HALF_POLE * (4.0 / 3.0 - _POLE_MASS * (cos * cos) / _TOTAL_MASS))
    x_acc = temp - _POLE_MOMENT * theta_acc * cos / _TOTAL_MASS
    x = x + _TIME_STEP * x_dot
    theta = theta + _TIME_STEP * theta_dot
    state[0] = x
    state[1] = x_dot + _TIME_STEP * x_acc
    state[2] = theta
    state[3] = theta_dot + _TIME_STEP * theta_acc
    return 1.0, x < -_PLACE_LIMIT or x > _PLACE_LIMIT or theta < -_ANGLE_LIMIT or theta > _ANGLE_LIMIT


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
