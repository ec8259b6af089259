"""InvertedDoublePendulum-v5: two poles in a chain to balance on a cart."""

from __future__ import annotations

from dressage.envs.cards import Field, ObservationComponent
from dressage.envs.fields import BoundField, body_fields, observation_field, scalar, time_field
from dressage.envs.layout import Layout
from dressage.envs.namespace import clip_to, library_of
from dressage.envs.state import Array, Raw
from dressage.envs.tasks.base import Draws, Outcome, Rules, Task, normal_velocity_start

_HEALTHY_REWARD = 10.0
_HEALTHY_HEIGHT = 1.0
_CLIP = 10.0


class InvertedDoublePendulum(Task):
    """Stock reward: 10 while up, minus penalties for distance from upright and for speed."""

    title = "double pole on a cart"
    description = (
        "A cart slides along a level rail (the x axis) and carries a pole on a hinge, which carries a second pole on a "
        "hinge, both upright at the start; one motor pushes the cart. The poles fall unless they are balanced."
    )
    termination = "the step after which tip_height <= 1 m."
    stock_reward = (
        "10 unless it ends - 0.01 * tip_x**2 - (tip_height - 2)**2 "
        "- 0.001 * pole_velocity**2 - 0.005 * pole2_velocity**2"
    )
    example_intents = (
        "balance both poles",
        "balance both poles at the centre of the rail",
        "balance with as little force as possible",
    )
    sources = ("site_xpos", "qfrc_constraint")

    def observation(self, raw: Raw) -> Array:
        qpos, qvel = raw["qpos"], raw["qvel"]
        xp, angles = library_of(qpos), qpos[:, 1:]
        forces = clip_to(raw["qfrc_constraint"][:, :1], _CLIP)
        parts = (qpos[:, :1], xp.sin(angles), xp.cos(angles), clip_to(qvel, _CLIP), forces)
        observation: Array = xp.concatenate(parts, axis=1)
        return observation

    def outcome(self, before: Raw, after: Raw, action: Array, *, time_step: float, rules: Rules) -> Outcome:
        x, height = after["site_xpos"][:, 0, 0], after["site_xpos"][:, 0, 2]
        first, second = after["qvel"][:, 1], after["qvel"][:, 2]
        terminated = height <= _HEALTHY_HEIGHT
        distance = 0.01 * x**2 + (height - 2) ** 2
        speed = 1e-3 * first**2 + 5e-3 * second**2
        survive = _HEALTHY_REWARD * ~terminated
        terms = {"reward_survive": survive, "distance_penalty": -distance, "velocity_penalty": -speed}
        return Outcome(survive - distance - speed, terminated, terms)

    def start(self, rng: Draws, layout_qpos: Array, *, nv: int, scale: float) -> tuple[Array, Array]:
        return normal_velocity_start(rng, layout_qpos, nv, scale)

    def fields(self, layout: Layout) -> list[BoundField]:
        slider, hinge, second = (layout.joint(name) for name in ("slider", "hinge", "hinge2"))
        tip = layout.sites["tip"]
        leans = f"unwrapped, positive = it leans {hinge.moves}"
        observed = ("qpos", "qvel", "qfrc_constraint")
        return [
            observation_field(9, observed, self.observation),
            time_field(),
            scalar("x_position", "m", f"position of the cart along x, 0 = middle of the rail, limits {slider.low:g} to "
                   f"{slider.high:g}", "qpos", slider.qpos),
            scalar("x_velocity", "m/s", "velocity of the cart along x", "qvel", slider.qvel),
            scalar("pole_angle", "rad", f"angle of the lower pole from upright, {leans}", "qpos", hinge.qpos),
            scalar("pole_velocity", "rad/s", "rate of pole_angle", "qvel", hinge.qvel),
            scalar("pole2_angle", "rad", f"angle of the upper pole from the lower one, {leans}", "qpos", second.qpos),
            scalar("pole2_velocity", "rad/s", "rate of pole2_angle", "qvel", second.qvel),
            BoundField(Field("tip_x", (), "m", "position of the upper end along x"),
                       lambda raw: raw["site_xpos"][:, tip, 0], ("site_xpos",)),
            BoundField(Field("tip_height", (), "m", "height of the upper end above the rail"),
                       lambda raw: raw["site_xpos"][:, tip, 2], ("site_xpos",)),
            *body_fields(layout),
        ]  # fmt: skip

    def observation_components(self, layout: Layout) -> tuple[ObservationComponent, ...]:
        return (
            ObservationComponent("slider_position", "m", "position of the cart"),
            ObservationComponent("sin_hinge", "1", "sine of pole_angle"),
            ObservationComponent("sin_hinge2", "1", "sine of pole2_angle"),
            ObservationComponent("cos_hinge", "1", "cosine of pole_angle"),
            ObservationComponent("cos_hinge2", "1", "cosine of pole2_angle"),
            ObservationComponent("slider_velocity", "m/s", "velocity of the cart", _CLIP),
            ObservationComponent("hinge_velocity", "rad/s", "rate of pole_angle", _CLIP),
            ObservationComponent("hinge2_velocity", "rad/s", "rate of pole2_angle", _CLIP),
            ObservationComponent("slider_force", "N", "force of the rail's end stops on the cart", _CLIP),
        )


TASK = InvertedDoublePendulum
