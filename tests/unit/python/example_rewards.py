"""Rewards as functions of a module, for tests."""

from __future__ import annotations

import math
from typing import Any

LATEX = r"v_x - 0.1\lVert a\rVert^2"
TERMS = {"speed": "forward velocity, m/s", "effort": "squared action, times -0.1"}
MEMORY = {"steps": 0.0}
WEIGHT = 0.1
SECRET = object()
"""No reward can use this."""


def squared(action: Any, np: Any) -> Any:
    return np.square(action).sum(-1)


def forward(state: Any, action: Any, next_state: Any, memory: Any, np: Any) -> dict[str, Any]:
    memory.steps = memory.steps + 1.0
    effort = -WEIGHT * math.sqrt(1.0) * squared(action, np)
    return {"speed": next_state.x_velocity, "effort": effort}


def per_step(obs, action, next_obs, info):
    speed = WEIGHT * info["x_velocity"]
    return speed, {"speed": speed, "effort": 0.0}


def leaking(state, action, next_state, memory, np):
    return {"speed": next_state.x_velocity, "effort": 0.0 * next_state.x_velocity + SECRET}


class Forward:
    """Moves forward."""

    latex = "v_x"
    terms = {"speed": "forward velocity, m/s"}

    def compute(self, obs, action, next_obs, info):
        return info["x_velocity"], {"speed": info["x_velocity"]}


def enclosed(weight: float) -> Any:
    def reward(state, action, next_state, memory, np):
        return {"speed": weight * next_state.x_velocity}

    return reward
