"""Swimmer-v5: a three-link swimmer in a viscous plane."""

from __future__ import annotations

from dressage.envs.cards import ObservationComponent
from dressage.envs.fields import (
    BoundField,
    body_fields,
    joint_components,
    joint_fields,
    observation_field,
    scalar,
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
    distance_from_origin,
    positions_and_velocities,
    uniform_start,
)


class Swimmer(Task):
    """Stock reward: forward velocity minus control cost; no termination."""

    title = "three-link swimmer"
    description = (
        "Three links in a chain (torso in front, mid, back) swim in a viscous fluid in the horizontal x-y plane, seen "
        "from above; two joint motors bend the chain."
    )
    termination = "never; the episode ends at its time limit only."
    stock_reward = "(change of x_position) / time step - 0.0001 * (sum of squared actions)"
    example_intents = ("swim forward fast", "swim backward", "turn in place", "stay still", "swim to the left")
    can_terminate = False

    def observation(self, raw: Raw) -> Array:
        return positions_and_velocities(raw, skip=2)

    def outcome(self, before: Raw, after: Raw, action: Array, *, time_step: float, rules: Rules) -> Outcome:
        velocity, cost = column_rate(before, after, 0, time_step), control_cost(action, self.control_weight)
        terms = {"reward_forward": velocity, "reward_ctrl": -cost}
        return Outcome(velocity - cost, never(velocity), terms)

    def facts(self, before: Raw, after: Raw, *, time_step: float, initial_qpos: Array) -> dict[str, Array]:
        return {
            "x_position": after["qpos"][:, 0],
            "y_position": after["qpos"][:, 1],
            "distance_from_origin": distance_from_origin(after),
            "x_velocity": column_rate(before, after, 0, time_step),
            "y_velocity": column_rate(before, after, 1, time_step),
        }

    def start(self, rng: Draws, layout_qpos: Array, *, nv: int, scale: float) -> tuple[Array, Array]:
        return uniform_start(rng, layout_qpos, nv, scale)

    def fields(self, layout: Layout) -> list[BoundField]:
        x, y, turn = (layout.joint(name) for name in ("slider1", "slider2", "free_body_rot"))
        counter = "unwrapped, 0 = along x, positive = counterclockwise seen from above"
        return [
            observation_field(layout.nq + layout.nv - 2, ("qpos", "qvel"), self.observation),
            time_field(),
            scalar("x_position", "m", "position of the front link's frame along x", "qpos", x.qpos),
            scalar("x_velocity", "m/s", "its velocity along x, positive = forward", "qvel", x.qvel),
            scalar("y_position", "m", "position of the front link's frame along y", "qpos", y.qpos),
            scalar("y_velocity", "m/s", "its velocity along y, positive = left", "qvel", y.qvel),
            scalar("heading", "rad", f"heading of the front link, {counter}", "qpos", turn.qpos),
            scalar("heading_velocity", "rad/s", "rate of heading", "qvel", turn.qvel),
            *joint_fields(layout, ("motor1_rot", "motor2_rot")),
            *body_fields(layout),
        ]

    def observation_components(self, layout: Layout) -> tuple[ObservationComponent, ...]:
        return joint_components(layout, skip=2)


TASK = Swimmer
