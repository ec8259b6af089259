"""What MountainCar-v0 is: a car in a valley whose engine is too weak for the hill."""

from __future__ import annotations

from dressage.envs.cards import ObservationComponent
from dressage.envs.fields import BoundField
from dressage.envs.namespace import library_of
from dressage.envs.plain import PlainEnvironment, choice, column, common_fields, derived_field
from dressage.envs.state import Array

FRAMES = 30
"""Frames per second at which Gymnasium shows a step; there is no physical time."""
VALLEY = (
    "A car starts at rest near the bottom of a valley (position -0.6 to -0.4, along the x axis; the bottom is at "
    "-0.524) and must reach the top of the hill on the right. Its engine is too weak to climb the hill directly: it "
    "has to swing back and forth. The hill's height at x is proportional to sin(3 x). In each step gravity adds "
    "-0.0025 * cos(3 * position) to the velocity, which is limited to 0.07 either way; then the velocity is added to "
    "the position, which is limited to -1.2 to 0.6. At the left limit the car stops."
)
INTENTS = ("reach the top of the hill", "reach the top of the hill with as little engine power as possible")


def _height(observed: Array) -> Array:
    height: Array = library_of(observed).sin(3 * observed[:, 0]) * 0.45 + 0.55
    return height


def fields() -> tuple[BoundField, ...]:
    """Return the fields of both environments."""
    return (
        *common_fields(2, 1 / FRAMES, stock=True),
        column("position", "1", "position of the car along x, positive = right", 0),
        column("velocity", "1/step", "velocity of the car along x, positive = right", 1),
        derived_field("height", "1", "height of the track under the car, 0.1 at the bottom to 1 at the top", _height),
    )


COMPONENTS = (
    ObservationComponent("position", "1", "position of the car, -1.2 to 0.6"),
    ObservationComponent("velocity", "1/step", "velocity of the car, -0.07 to 0.07"),
)

_CAR = PlainEnvironment(
    title="car in a valley, three choices",
    description=f"{VALLEY} The engine adds -0.001, 0 or 0.001 to the velocity.",
    termination="the step after which position >= 0.5 and velocity >= 0.",
    stock_reward="-1 for every step",
    example_intents=INTENTS,
    observation_components=COMPONENTS,
    action=choice("engine", "accelerate to the left", "do not accelerate", "accelerate to the right"),
    num_actions=3,
    bound=fields(),
    time_step=1 / FRAMES,
    constants={"force": 0.001, "gravity": 0.0025, "goal_position": 0.5, "max_speed": 0.07},
)

WORDS = {"MountainCar-v0": _CAR}
