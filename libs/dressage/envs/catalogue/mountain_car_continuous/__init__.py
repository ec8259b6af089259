"""What MountainCarContinuous-v0 is: the car of MountainCar-v0 with a continuous engine."""

from __future__ import annotations

from dressage.envs.cards import ActionComponent
from dressage.envs.catalogue.mountain_car import COMPONENTS, FRAMES, INTENTS, VALLEY, fields
from dressage.envs.plain import PlainEnvironment

_CAR = PlainEnvironment(
    title="car in a valley, continuous engine",
    description=f"{VALLEY} The engine adds 0.0015 * action to the velocity.",
    termination="the step after which position >= 0.45 and velocity >= 0.",
    stock_reward="-0.1 * action² for every step, plus 100 for the step that reaches the goal",
    example_intents=INTENTS,
    observation_components=COMPONENTS,
    action=(ActionComponent("engine", -1.0, 1.0, "1", "acceleration, positive = right"),),
    bound=fields(),
    time_step=1 / FRAMES,
    constants={"power": 0.0015, "goal_position": 0.45, "max_speed": 0.07},
)

WORDS = {"MountainCarContinuous-v0": _CAR}
