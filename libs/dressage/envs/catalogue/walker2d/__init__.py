"""Walker2d-v5: a two-legged planar walker that must stay upright."""

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
_HEALTHY_HEIGHT = (0.8, 2.0)
_HEALTHY_ANGLE = 1.0
_VELOCITY_CLIP = 10.0
_LEG_JOINTS = ("thigh_joint", "leg_joint", "foot_joint", "thigh_left_joint", "leg_left_joint", "foot_left_joint")


class Walker2d(Task):
    """Stock reward: forward velocity, plus 1 while healthy, minus control cost; ends when unhealthy."""

    title = "two-legged planar walker"
    description = (
        "A two-legged walker in the vertical x-z plane on level ground: a torso and two legs of thigh, leg and foot, "
        "moved by six joint motors. It starts upright and falls unless it is balanced."
    )
    termination = (
        "the step after which z_position leaves (0.8, 2.0) m or |pitch| >= 1 rad; "
        "switched off by terminate_when_unhealthy = false."
    )
    stock_reward = "(change of x_position) / time step + 1 while healthy - 0.001 * (sum of squared actions)"
    example_intents = (
        "walk forward",
        "run forward fast",
        "walk backward",
        "stand still and balance",
        "hop forward on both legs",
    )

    def observation(self, raw: Raw) -> Array:
        return positions_and_velocities(raw, skip=1, clip=_VELOCITY_CLIP)

    def outcome(self, before: Raw, after: Raw, action: Array, *, time_step: float, rules: Rules) -> Outcome:
        qpos = after["qpos"]
        low, high = _HEALTHY_HEIGHT
        healthy = (low < qpos[:, 1]) & (qpos[:, 1] < high) & (abs(qpos[:, 2]) < _HEALTHY_ANGLE)
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
            *joint_fields(layout, _LEG_JOINTS),
            *foot_fields(layout, ("foot", "foot_left")),
            *contact_fields(layout),
            *body_fields(layout),
        ]

    def observation_components(self, layout: Layout) -> tuple[ObservationComponent, ...]:
        return joint_components(layout, skip=1, clip=_VELOCITY_CLIP)


TASK = Walker2d
