"""Humanoid-v5: a two-legged robot with arms that must not fall. Its observation and fields serve HumanoidStandup-v5 too."""

from __future__ import annotations

import numpy as np

from dressage.envs.cards import Field, ObservationComponent
from dressage.envs.fields import (
    BoundField,
    body_fields,
    contact_fields,
    foot_fields,
    joint_fields,
    observation_field,
    time_field,
)
from dressage.envs.free_body import free_components, free_root
from dressage.envs.layout import Layout
from dressage.envs.namespace import library_of, never
from dressage.envs.state import Array, Raw
from dressage.envs.tasks.base import (
    Draws,
    Outcome,
    Rules,
    Task,
    contact_cost,
    control_cost,
    distance_from_origin,
    uniform_start,
)
from dressage.envs.tasks.blocks import (
    contact_components,
    inertia_components,
    motor_components,
    velocity_components,
)

_FORWARD_REWARD = 1.25
_CONTACT_COST, _CONTACT_COST_LIMIT = 5e-7, 10.0
_HEALTHY_REWARD = 5.0
_HEALTHY_HEIGHT = (1.0, 2.0)
_ROOT_DEGREES = 6
_OBSERVED = ("qpos", "qvel", "cinert", "cvel", "qfrc_actuator", "cfrc_ext")


class Humanoid(Task):
    """Stock reward: forward velocity, plus 5 while healthy, minus control and contact cost; ends when unhealthy."""

    title = "two-legged robot with arms"
    description = (
        "A human-like robot on level ground, free to move in space: torso with head, waist, pelvis, two legs of thigh, "
        "shin and foot, two arms of upper and lower arm, moved by 17 joint motors. It starts upright and falls unless it "
        "is balanced; x is the forward direction."
    )
    termination = (
        "the step after which z_position is not within (1, 2) m; switched off by terminate_when_unhealthy = false."
    )
    stock_reward = (
        "1.25 * (change of the centre of mass along x) / time step + 5 while healthy - 0.1 * (sum of squared actions) "
        "- 5e-7 * (sum of squared contact forces and torques, at most 10 in all)"
    )
    example_intents: tuple[str, ...] = (
        "walk forward",
        "run forward fast",
        "stand still and balance",
        "walk backward",
        "walk forward with small steps and level arms",
        "turn around in place",
        "crouch and hold it",
        "hop in place",
    )
    sources = (*_OBSERVED[2:], "subtree_com", "ten_length", "ten_velocity")

    def observation(self, raw: Raw) -> Array:
        qpos = raw["qpos"]
        rows = len(qpos)
        parts = [raw[name][:, 1:].reshape(rows, -1) for name in ("cinert", "cvel")]
        forces = (raw["qfrc_actuator"][:, _ROOT_DEGREES:], raw["cfrc_ext"][:, 1:].reshape(rows, -1))
        observation: Array = library_of(qpos).concatenate((qpos[:, 2:], raw["qvel"], *parts, *forces), axis=1)
        return observation

    def outcome(self, before: Raw, after: Raw, action: Array, *, time_step: float, rules: Rules) -> Outcome:
        low, high = _HEALTHY_HEIGHT
        height = after["qpos"][:, 2]
        healthy = (low < height) & (height < high)
        forward = _FORWARD_REWARD * _velocity(before, after, time_step)[:, 0]
        survive = healthy * _HEALTHY_REWARD
        # Stock takes its control cost from the simulator's controls, whose precision is not the action's.
        effort = control_cost(action.astype(height.dtype), self.control_weight)
        contact = library_of(height).minimum(contact_cost(after, _CONTACT_COST), _CONTACT_COST_LIMIT)
        reward = (forward + survive) - (effort + contact)
        terminated = ~healthy if rules.terminate_when_unhealthy else never(reward)
        terms = {
            "reward_survive": survive,
            "reward_forward": forward,
            "reward_ctrl": -effort,
            "reward_contact": -contact,
        }
        return Outcome(reward, terminated, terms)

    def facts(self, before: Raw, after: Raw, *, time_step: float, initial_qpos: Array) -> dict[str, Array]:
        velocity = _velocity(before, after, time_step)
        return {
            "x_position": after["qpos"][:, 0],
            "y_position": after["qpos"][:, 1],
            "tendon_length": after["ten_length"],
            "tendon_velocity": after["ten_velocity"],
            "distance_from_origin": distance_from_origin(after),
            "x_velocity": velocity[:, 0],
            "y_velocity": velocity[:, 1],
        }

    def start(self, rng: Draws, layout_qpos: Array, *, nv: int, scale: float) -> tuple[Array, Array]:
        return uniform_start(rng, layout_qpos, nv, scale)

    def fields(self, layout: Layout) -> list[BoundField]:
        size = layout.nq - 2 + layout.nv + (10 + 6 + 6) * len(layout.bodies) + layout.nv - _ROOT_DEGREES
        return [
            observation_field(size, _OBSERVED, self.observation),
            time_field(),
            *free_root(layout, reference=self.reference(layout), long_axis=_towards_head(layout)),
            _head_height(layout),
            *joint_fields(layout, layout.joints),
            *foot_fields(layout, ("right_foot", "left_foot")),
            *contact_fields(layout),
            *body_fields(layout),
        ]

    def reference(self, layout: Layout) -> str:
        """Return the attitude of the model file in words."""
        return "upright, facing x"

    def observation_components(self, layout: Layout) -> tuple[ObservationComponent, ...]:
        return (
            *free_components(layout, skip=2),
            *inertia_components(layout),
            *velocity_components(layout),
            *motor_components(layout),
            *contact_components(layout),
        )


def _velocity(before: Raw, after: Raw, time_step: float) -> Array:
    """Return the mean velocity (N, 2) of the robot's centre of mass over a step."""
    moved: Array = (after["subtree_com"][:, 0, :2] - before["subtree_com"][:, 0, :2]) / time_step
    return moved


def _towards_head(layout: Layout) -> tuple[float, float, float]:
    """Return the direction of the head in the torso's own frame."""
    place = np.array(layout.geom_places["head"])
    x, y, z = (float(value) for value in place / np.linalg.norm(place))
    return x, y, z


def _head_height(layout: Layout) -> BoundField:
    head = layout.geoms["head"]
    field = Field("head_height", (), "m", "height of the head's centre above the floor")
    return BoundField(field, lambda raw: raw["geom_xpos"][:, head, 2], ("geom_xpos",))


TASK = Humanoid
