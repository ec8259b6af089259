"""MountainCar-v0 and MountainCarContinuous-v0: a car in a valley whose engine is too weak for the hill."""

from __future__ import annotations

from dressage.envs.cards import ActionComponent, ObservationComponent
from dressage.envs.fields import BoundField
from dressage.envs.namespace import library_of
from dressage.envs.plain.base import PlainEnvironment, choice, column, common_fields, derived
from dressage.envs.state import Array

_FRAMES = 30
"""Frames per second at which Gymnasium shows a step; there is no physical time."""
_VALLEY = (
    "A car starts at rest near the bottom of a valley (position -0.6 to -0.4, along the x axis; the bottom is at "
    "-0.524) and must reach the top of the hill on the right. Its engine is too weak to climb the hill directly: it "
    "has to swing back and forth. The hill's height at x is proportional to sin(3 x). In each step gravity adds "
    "-0.0025 * cos(3 * position) to the velocity, which is limited to 0.07 either way; then the velocity is added to "
    "the position, which is limited to -1.2 to 0.6. At the left limit the car stops."
)
_INTENTS = ("reach the top of the hill", "reach the top of the hill with as little engine power as possible")


def _height(observed: Array) -> Array:
    height: Array = library_of(observed).sin(3 * observed[:, 0]) * 0.45 + 0.55
    return height


def _fields() -> tuple[BoundField, ...]:
    return (
        *common_fields(2, 1 / _FRAMES, stock=True),
        column("position", "1", "position of the car along x, positive = right", 0),
        column("velocity", "1/step", "velocity of the car along x, positive = right", 1),
        derived("height", "1", "height of the track under the car, 0.1 at the bottom to 1 at the top", _height),
    )


_COMPONENTS = (
    ObservationComponent("position", "1", "position of the car, -1.2 to 0.6"),
    ObservationComponent("velocity", "1/step", "velocity of the car, -0.07 to 0.07"),
)

_DISCRETE = PlainEnvironment(
    env_id="MountainCar-v0",
    title="car in a valley, three choices",
    description=f"{_VALLEY} The engine adds -0.001, 0 or 0.001 to the velocity.",
    termination="the step after which position >= 0.5 and velocity >= 0.",
    stock_reward="-1 for every step",
    example_intents=_INTENTS,
    observation_components=_COMPONENTS,
    action=choice("engine", "accelerate to the left", "do not accelerate", "accelerate to the right"),
    num_actions=3,
    bound=_fields(),
    time_step=1 / _FRAMES,
    constants={"force": 0.001, "gravity": 0.0025, "goal_position": 0.5, "max_speed": 0.07},
)

_CONTINUOUS = PlainEnvironment(
    env_id="MountainCarContinuous-v0",
    title="car in a valley, continuous engine",
    description=f"{_VALLEY} The engine adds 0.0015 * action to the velocity.",
    termination="the step after which position >= 0.45 and velocity >= 0.",
    stock_reward="-0.1 * action² for every step, plus 100 for the step that reaches the goal",
    example_intents=_INTENTS,
    observation_components=_COMPONENTS,
    action=(ActionComponent("engine", -1.0, 1.0, "1", "acceleration, positive = right"),),
    bound=_fields(),
    time_step=1 / _FRAMES,
    constants={"power": 0.0015, "goal_position": 0.45, "max_speed": 0.07},
)

ENVIRONMENTS = {entry.env_id: entry for entry in (_DISCRETE, _CONTINUOUS)}
