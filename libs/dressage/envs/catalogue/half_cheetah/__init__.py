"""HalfCheetah-v5: a two-legged planar runner that cannot fall out of its episode."""

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
    normal_velocity_start,
    positions_and_velocities,
)

_LEG_JOINTS = ("bthigh", "bshin", "bfoot", "fthigh", "fshin", "ffoot")


class HalfCheetah(Task):
    """Stock reward: forward velocity minus control cost; no termination."""

    title = "two-legged planar cheetah"
    description = (
        "A flat, two-legged cheetah in the vertical x-z plane on level ground: a torso with a head, and a back and a "
        "front leg of thigh, shin and foot, moved by six joint motors against spring-loaded joints. It can run either "
        "way, jump, flip and lie on its back."
    )
    termination = "never; the episode ends at its time limit only, even after a fall."
    stock_reward = "(change of x_position) / time step - 0.1 * (sum of squared actions)"
    example_intents = (
        "run forward fast",
        "run backward",
        "stand still",
        "walk forward slowly and smoothly",
        "hop in place",
        "do a backflip",
        "run forward with low effort",
    )
    can_terminate = False

    def observation(self, raw: Raw) -> Array:
        return positions_and_velocities(raw, skip=1)

    def outcome(self, before: Raw, after: Raw, action: Array, *, time_step: float, rules: Rules) -> Outcome:
        velocity, cost = column_rate(before, after, 0, time_step), control_cost(action, self.control_weight)
        terms = {"reward_forward": velocity, "reward_ctrl": -cost}
        return Outcome(velocity - cost, never(velocity), terms)

    def facts(self, before: Raw, after: Raw, *, time_step: float, initial_qpos: Array) -> dict[str, Array]:
        return {"x_position": after["qpos"][:, 0], "x_velocity": column_rate(before, after, 0, time_step)}

    def start(self, rng: Draws, layout_qpos: Array, *, nv: int, scale: float) -> tuple[Array, Array]:
        return normal_velocity_start(rng, layout_qpos, nv, scale)

    def fields(self, layout: Layout) -> list[BoundField]:
        return [
            observation_field(layout.nq + layout.nv - 1, ("qpos", "qvel"), self.observation),
            time_field(),
            *planar_root(layout, ahead="the head rises; a backflip turns this way"),
            *joint_fields(layout, _LEG_JOINTS),
            *foot_fields(layout, ("bfoot", "ffoot")),
            *contact_fields(layout),
            *body_fields(layout),
        ]

    def observation_components(self, layout: Layout) -> tuple[ObservationComponent, ...]:
        return joint_components(layout, skip=1)


TASK = HalfCheetah
