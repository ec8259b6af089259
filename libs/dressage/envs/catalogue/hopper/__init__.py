"""Hopper-v5: a one-legged planar hopper that must stay upright."""

from __future__ import annotations

from dressage.envs.cards import ObservationComponent
from dressage.envs.fields import (
    BoundField,
    body_fields,
    contact_fields,
    foot_fields,
    joint_components,
    joint_fields,
    observation_field,
    planar_root,
    time_field,
)
from dressage.envs.layout import Layout
from dressage.envs.namespace import never
from dressage.envs.state import Array, Raw
from dressage.envs.tasks.base import (
    Draws,
    Outcome,
    Rules,
    Task,
    column_rate,
    control_cost,
    planar_facts,
    positions_and_velocities,
    uniform_start,
)

_HEALTHY_REWARD = 1.0
_HEALTHY_STATE = 100.0
_HEALTHY_HEIGHT = 0.7
_HEALTHY_ANGLE = 0.2
_VELOCITY_CLIP = 10.0


class Hopper(Task):
    """Stock reward: forward velocity, plus 1 while healthy, minus control cost; ends when unhealthy."""

    title = "one-legged planar hopper"
    description = (
        "A one-legged hopper in the vertical x-z plane on level ground: torso, thigh, leg and foot in a chain, moved "
        "by three joint motors. It starts upright and falls unless it is balanced."
    )
    termination = (
        "the step after which z_position <= 0.7 m, |pitch| >= 0.2 rad, or any joint position or velocity (without x) "
        "leaves (-100, 100); switched off by terminate_when_unhealthy = false."
    )
    stock_reward = "(change of x_position) / time step + 1 while healthy - 0.001 * (sum of squared actions)"
    example_intents = (
        "hop forward",
        "hop forward fast",
        "hop backward",
        "stand still and balance",
        "hop in place as high as possible",
    )

    def observation(self, raw: Raw) -> Array:
        return positions_and_velocities(raw, skip=1, clip=_VELOCITY_CLIP)

    def outcome(self, before: Raw, after: Raw, action: Array, *, time_step: float, rules: Rules) -> Outcome:
        qpos, qvel = after["qpos"], after["qvel"]
        height, angle = qpos[:, 1], qpos[:, 2]
        within_bounds = (abs(qpos[:, 2:]) < _HEALTHY_STATE).all(axis=1) & (abs(qvel) < _HEALTHY_STATE).all(axis=1)
        healthy = (height > _HEALTHY_HEIGHT) & (abs(angle) < _HEALTHY_ANGLE) & within_bounds
        velocity = column_rate(before, after, 0, time_step)
        survive, cost = healthy * _HEALTHY_REWARD, control_cost(action, self.control_weight)
        reward = (velocity + survive) - cost
        terminated = ~healthy if rules.terminate_when_unhealthy else never(reward)
        terms = {"reward_forward": velocity, "reward_ctrl": -cost, "reward_survive": survive}
        return Outcome(reward, terminated, terms)

    def facts(self, before: Raw, after: Raw, *, time_step: float, initial_qpos: Array) -> dict[str, Array]:
        return planar_facts(before, after, time_step=time_step, initial_qpos=initial_qpos)

    def start(self, rng: Draws, layout_qpos: Array, *, nv: int, scale: float) -> tuple[Array, Array]:
        return uniform_start(rng, layout_qpos, nv, scale)

    def fields(self, layout: Layout) -> list[BoundField]:
        return [
            observation_field(layout.nq + layout.nv - 1, ("qpos", "qvel"), self.observation),
            time_field(),
            *planar_root(layout, ahead="it leans backward"),
            *joint_fields(layout, ("thigh_joint", "leg_joint", "foot_joint")),
            *foot_fields(layout, ("foot",)),
            *contact_fields(layout),
            *body_fields(layout),
        ]

    def observation_components(self, layout: Layout) -> tuple[ObservationComponent, ...]:
        return joint_components(layout, skip=1, clip=_VELOCITY_CLIP)


TASK = Hopper
