"""InvertedPendulum-v5: a pole to balance on a cart."""

from __future__ import annotations

from dressage.envs.cards import ObservationComponent
from dressage.envs.fields import (
    BoundField,
    body_fields,
    end_height,
    joint_components,
    observation_field,
    scalar,
    time_field,
)
from dressage.envs.layout import Layout
from dressage.envs.namespace import library_of
from dressage.envs.state import Array, Raw
from dressage.envs.tasks.base import Draws, Outcome, Rules, Task, positions_and_velocities, uniform_start

_HEALTHY_ANGLE = 0.2


class InvertedPendulum(Task):
    """Stock reward: 1 for each step that does not end the episode."""

    title = "pole on a cart"
    description = (
        "A cart slides along a level rail (the x axis) and carries a pole on a hinge, upright at the start; one motor "
        "pushes the cart. The pole falls unless it is balanced."
    )
    termination = "the step after which |pole_angle| > 0.2 rad."
    stock_reward = "1 for every step that does not end the episode"
    example_intents = (
        "balance the pole",
        "balance the pole at the centre of the rail",
        "balance the pole with as little force as possible",
        "balance the pole while the cart moves to the right",
    )

    def observation(self, raw: Raw) -> Array:
        return positions_and_velocities(raw, skip=0)

    def outcome(self, before: Raw, after: Raw, action: Array, *, time_step: float, rules: Rules) -> Outcome:
        qpos, qvel = after["qpos"], after["qvel"]
        xp = library_of(qpos)
        finite = xp.isfinite(qpos).all(axis=1) & xp.isfinite(qvel).all(axis=1)
        terminated = ~finite | (abs(qpos[:, 1]) > _HEALTHY_ANGLE)
        survive = ~terminated * 1.0
        return Outcome(survive, terminated, {"reward_survive": survive})

    def start(self, rng: Draws, layout_qpos: Array, *, nv: int, scale: float) -> tuple[Array, Array]:
        return uniform_start(rng, layout_qpos, nv, scale)

    def fields(self, layout: Layout) -> list[BoundField]:
        slider, hinge = layout.joint("slider"), layout.joint("hinge")
        pole = layout.body_capsule["pole"]
        moves = f"positive = the pole leans {hinge.moves}"
        return [
            observation_field(layout.nq + layout.nv, ("qpos", "qvel"), self.observation),
            time_field(),
            scalar("x_position", "m", f"position of the cart along x, 0 = middle of the rail, limits {slider.low:g} to "
                   f"{slider.high:g}", "qpos", slider.qpos),
            scalar("x_velocity", "m/s", "velocity of the cart along x", "qvel", slider.qvel),
            scalar("pole_angle", "rad", f"angle of the pole from upright, unwrapped, {moves}", "qpos", hinge.qpos),
            scalar("pole_velocity", "rad/s", "rate of pole_angle", "qvel", hinge.qvel),
            end_height("tip_height", "height of the pole's upper end above the hinge", geom=pole.id,
                       half_length=pole.far_end * pole.half_length),
            *body_fields(layout),
        ]  # fmt: skip

    def observation_components(self, layout: Layout) -> tuple[ObservationComponent, ...]:
        return joint_components(layout)


TASK = InvertedPendulum
