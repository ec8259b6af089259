"""A custom model: observation is qpos and qvel, there is no stock reward, and only the time limit ends an episode."""

from __future__ import annotations

from typing import Any

import numpy as np

from dressage.envs import custom
from dressage.envs.cards import ActionComponent, ObservationComponent
from dressage.envs.fields import (
    BoundField,
    body_fields,
    contact_fields,
    joint_fields,
    observation_field,
    short_name,
    time_field,
)
from dressage.envs.free_body import free_root
from dressage.envs.layout import Actuator, Layout
from dressage.envs.loading import load_compiled
from dressage.envs.namespace import library_of, never
from dressage.envs.state import Array, Raw
from dressage.envs.tasks.base import Draws, Outcome, Rules, Task, positions_and_velocities, uniform_start

_UNBOUNDED = 1.0


class CustomModel(Task):
    """One model of the folder of custom environments."""

    termination = "never; the episode ends at its time limit only."
    stock_reward = "0; the environment has no reward of its own"
    can_terminate = False
    example_intents = ("move forward", "stay still")

    def __init__(self, env_id: str) -> None:
        super().__init__(env_id)
        self.title = f"custom model {env_id.removeprefix(custom.MODEL)}"
        self.description = "A model that its user has added."

    def load(self) -> Any:
        return load_compiled(custom.folder_of(self.env_id) / custom.MODEL_FILE)

    def initial_qpos(self, model: Any) -> Array:
        """Return the first keyframe's positions, by convention the standing pose, or the reference pose's."""
        return np.array(model.key_qpos[0] if model.nkey else model.qpos0)

    def observation(self, raw: Raw) -> Array:
        return positions_and_velocities(raw, skip=0)

    def outcome(self, before: Raw, after: Raw, action: Array, *, time_step: float, rules: Rules) -> Outcome:
        qpos = after["qpos"]
        reward = library_of(qpos).zeros(len(qpos), dtype=qpos.dtype)
        return Outcome(reward, never(reward), {})

    def start(self, rng: Draws, layout_qpos: Array, *, nv: int, scale: float) -> tuple[Array, Array]:
        return uniform_start(rng, layout_qpos, nv, scale)

    def fields(self, layout: Layout) -> list[BoundField]:
        root = free_root(layout, reference="as in the model file") if layout.free else []
        fields = [
            observation_field(layout.nq + layout.nv, ("qpos", "qvel"), self.observation, stock=False),
            time_field(),
            *root,
            *joint_fields(layout, layout.joints),
            *contact_fields(layout),
            *body_fields(layout),
        ]
        return list({entry.field.name: entry for entry in fields}.values())

    def observation_components(self, layout: Layout) -> tuple[ObservationComponent, ...]:
        positions: list[ObservationComponent] = [_number("qpos", index) for index in range(layout.nq)]
        velocities: list[ObservationComponent] = [_number("qvel", index) for index in range(layout.nv)]
        for joint in layout.joints.values():
            kind, unit = ("angle", "rad") if joint.is_hinge else ("position", "m")
            positions[joint.qpos] = ObservationComponent(f"{joint.name}_{kind}", unit, f"{kind} of joint {joint.name}")
            velocities[joint.qvel] = ObservationComponent(
                f"{joint.name}_velocity", f"{unit}/s", f"velocity of joint {joint.name}"
            )
        for free in layout.free:
            for index, part in enumerate(("w", "x", "y", "z")):
                words = f"{free.body} orientation, quaternion {part}"
                positions[free.qpos + 3 + index] = ObservationComponent(f"{free.body}_quaternion_{part}", "1", words)
            for index, axis in enumerate(("x", "y", "z")):
                place, turn = f"{free.body} position along {axis}", f"turning of {free.body} about its own {axis} axis"
                positions[free.qpos + index] = ObservationComponent(f"{free.body}_{axis}", "m", place)
                velocities[free.qvel + index] = ObservationComponent(
                    f"{free.body}_velocity_{axis}", "m/s", f"{free.body} velocity along {axis}"
                )
                velocities[free.qvel + 3 + index] = ObservationComponent(f"{free.body}_rotation_{axis}", "rad/s", turn)
        return (*positions, *velocities)

    def action(self, layout: Layout) -> tuple[ActionComponent, ...]:
        return tuple(_action(layout, actuator) for actuator in layout.actuators)


def _number(array: str, index: int) -> ObservationComponent:
    return ObservationComponent(f"{array}_{index}", "mixed", f"number {index} of MuJoCo's {array}")


def _action(layout: Layout, actuator: Actuator) -> ActionComponent:
    joint = layout.joints.get(actuator.joint)
    what = f" on joint {short_name(actuator.joint)}" if joint is not None else ""
    force = ""
    if actuator.is_motor and joint is not None:
        force = f": {'torque' if joint.is_hinge else 'force'} = {actuator.gear:g} {'N m' if joint.is_hinge else 'N'} times it"
        force += f"; positive = moves {joint.moves}" if joint.moves else ""
    low = -_UNBOUNDED if actuator.low is None else actuator.low
    high = _UNBOUNDED if actuator.high is None else actuator.high
    kind = "motor" if actuator.is_motor else "actuator"
    note = " (the model sets no bounds; these are ours)" if actuator.low is None else ""
    return ActionComponent(actuator.name, low, high, "1", f"control of {kind} {actuator.name}{what}{force}{note}")
