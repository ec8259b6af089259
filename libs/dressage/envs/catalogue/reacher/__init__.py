"""Reacher-v5: a two-link arm whose fingertip is to reach a target."""

from __future__ import annotations

from dressage.envs.cards import Field, ObservationComponent
from dressage.envs.fields import BoundField, body_fields, joint_fields, observation_field, time_field
from dressage.envs.layout import Layout
from dressage.envs.namespace import library_of, never
from dressage.envs.state import Array, Raw
from dressage.envs.tasks.base import Draws, Outcome, Rules, Task, control_cost, first_accepted

# Ids of the bodies in reacher.xml, as `fields` checks.
_FINGERTIP, _TARGET = 3, 4
_START_NOISE = 0.1
_TARGET_RADIUS = 0.2
_START_VELOCITY = 0.005


class Reacher(Task):
    """Stock reward: minus the fingertip's distance from the target, minus control cost; no termination."""

    title = "two-link arm and a target"
    description = (
        "A two-link arm fixed at the origin moves in the horizontal x-y plane; two joint motors turn it. Each episode "
        "has a random target within its reach that stays where it is."
    )
    termination = "never; the episode ends at its time limit only."
    stock_reward = "- distance_to_target - (sum of squared actions)"
    example_intents = (
        "reach the target",
        "reach the target quickly",
        "reach the target with little effort",
        "stay still",
    )
    can_terminate = False
    sources = ("xpos",)

    def observation(self, raw: Raw) -> Array:
        qpos = raw["qpos"]
        xp, angles = library_of(qpos), qpos[:, :2]
        parts = (xp.cos(angles), xp.sin(angles), qpos[:, 2:], raw["qvel"][:, :2], _to_target(raw)[:, :2])
        observation: Array = xp.concatenate(parts, axis=1)
        return observation

    def outcome(self, before: Raw, after: Raw, action: Array, *, time_step: float, rules: Rules) -> Outcome:
        distance, cost = _distance(after), control_cost(action, 1)
        terms = {"reward_dist": -distance, "reward_ctrl": -cost}
        return Outcome(-distance - cost, never(cost), terms)

    def start(self, rng: Draws, layout_qpos: Array, *, nv: int, scale: float) -> tuple[Array, Array]:
        xp = library_of(layout_qpos)
        qpos = rng.uniform(low=-_START_NOISE, high=_START_NOISE, size=len(layout_qpos)) + layout_qpos
        goal = first_accepted(
            rng,
            lambda draws: draws.uniform(low=-_TARGET_RADIUS, high=_TARGET_RADIUS, size=2),
            lambda place: xp.linalg.norm(place) < _TARGET_RADIUS,
        )
        qvel = rng.uniform(low=-_START_VELOCITY, high=_START_VELOCITY, size=nv)
        return xp.concatenate((qpos[:-2], goal)), xp.concatenate((qvel[:-2], 0 * qvel[-2:]))

    def fields(self, layout: Layout) -> list[BoundField]:
        if (layout.bodies["fingertip"], layout.bodies["target"]) != (_FINGERTIP, _TARGET):
            raise AssertionError(f"reacher.xml numbers its bodies otherwise: {layout.bodies}")
        return [
            observation_field(10, ("qpos", "qvel", "xpos"), self.observation),
            time_field(),
            BoundField(Field("distance_to_target", (), "m", "distance between fingertip and target"),
                       _distance, ("xpos",)),
            *joint_fields(layout, ("joint0", "joint1")),
            *body_fields(layout),
        ]  # fmt: skip

    def observation_components(self, layout: Layout) -> tuple[ObservationComponent, ...]:
        return (
            ObservationComponent("cos_joint0", "1", "cosine of joint0_angle"),
            ObservationComponent("cos_joint1", "1", "cosine of joint1_angle"),
            ObservationComponent("sin_joint0", "1", "sine of joint0_angle"),
            ObservationComponent("sin_joint1", "1", "sine of joint1_angle"),
            ObservationComponent("target_x", "m", "position of the target along x"),
            ObservationComponent("target_y", "m", "position of the target along y"),
            ObservationComponent("joint0_velocity", "rad/s", "rate of joint0_angle"),
            ObservationComponent("joint1_velocity", "rad/s", "rate of joint1_angle"),
            ObservationComponent("offset_x", "m", "x of the fingertip minus x of the target"),
            ObservationComponent("offset_y", "m", "y of the fingertip minus y of the target"),
        )


def _to_target(raw: Raw) -> Array:
    offset: Array = raw["xpos"][:, _FINGERTIP] - raw["xpos"][:, _TARGET]
    return offset


def _distance(raw: Raw) -> Array:
    offset = _to_target(raw)
    distance: Array = library_of(offset).linalg.norm(offset, axis=-1)
    return distance


TASK = Reacher
