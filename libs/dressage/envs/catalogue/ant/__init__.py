"""Ant-v5: a four-legged robot in space, with contact forces in its observation and its cost."""

from __future__ import annotations

from dressage.envs.cards import ObservationComponent
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
from dressage.envs.namespace import clip_to, library_of, never
from dressage.envs.state import Array, Raw
from dressage.envs.tasks.base import (
    Draws,
    Outcome,
    Rules,
    Task,
    control_cost,
    distance_from_origin,
    normal_velocity_start,
)
from dressage.envs.tasks.blocks import contact_components

_CONTACT_COST = 5e-4
_CONTACT_CLIP = 1.0
_HEALTHY_REWARD = 1.0
_HEALTHY_HEIGHT = (0.2, 1.0)
_TORSO = 1
_OBSERVED = ("qpos", "qvel", "cfrc_ext")


class Ant(Task):
    """Stock reward: forward velocity, plus 1 while healthy, minus control and contact cost; ends when unhealthy."""

    title = "four-legged robot"
    description = (
        "A round torso on four legs on level ground, free to move in space. Each leg has a hip that swings it level and "
        "an ankle that lifts and lowers the shin, moved by two motors: hip_1, ankle_1 and body left_ankle at the front left, "
        "hip_2, ankle_2 and right_ankle at the back left, hip_3, ankle_3 and third_ankle at the back right, hip_4, ankle_4 "
        "and fourth_ankle at the front right. It can walk any way, turn, jump and fall over; "
        "x is the forward direction."
    )
    termination = (
        "the step after which z_position is not within [0.2, 1] m; switched off by terminate_when_unhealthy = false. "
        "A robot on its back is not necessarily ended by it."
    )
    stock_reward = (
        "(change of the torso's x) / time step + 1 while healthy - 0.5 * (sum of squared actions) "
        "- 0.0005 * (sum of squared contact forces and torques, each clipped to [-1, 1])"
    )
    example_intents = (
        "walk forward",
        "run forward fast",
        "walk backward",
        "spin in place to the left",
        "crawl forward with the torso low",
        "jump as high as possible",
        "do a backflip",
        "stand still",
        "walk to the left without turning",
    )
    sources = ("cfrc_ext", "xpos")

    def observation(self, raw: Raw) -> Array:
        qpos, qvel, forces = raw["qpos"], raw["qvel"], raw["cfrc_ext"][:, 1:]
        forces = clip_to(forces, _CONTACT_CLIP).reshape(len(qpos), -1)
        observation: Array = library_of(qpos).concatenate((qpos[:, 2:], qvel, forces), axis=1)
        return observation

    def outcome(self, before: Raw, after: Raw, action: Array, *, time_step: float, rules: Rules) -> Outcome:
        qpos, qvel = after["qpos"], after["qvel"]
        xp = library_of(qpos)
        low, high = _HEALTHY_HEIGHT
        finite = xp.isfinite(qpos).all(axis=1) & xp.isfinite(qvel).all(axis=1)
        healthy = (low <= qpos[:, 2]) & (qpos[:, 2] <= high) & finite
        forward = _velocity(before, after, time_step)[:, 0]
        survive = healthy * _HEALTHY_REWARD
        forces = clip_to(after["cfrc_ext"], _CONTACT_CLIP).reshape(len(qpos), -1)
        effort, contact = control_cost(action, self.control_weight), _CONTACT_COST * (forces * forces).sum(axis=1)
        reward = (forward + survive) - (effort + contact)
        terminated = ~healthy if rules.terminate_when_unhealthy else never(reward)
        terms = {
            "reward_forward": forward,
            "reward_ctrl": -effort,
            "reward_contact": -contact,
            "reward_survive": survive,
        }
        return Outcome(reward, terminated, terms)

    def facts(self, before: Raw, after: Raw, *, time_step: float, initial_qpos: Array) -> dict[str, Array]:
        velocity = _velocity(before, after, time_step)
        return {
            "x_position": after["qpos"][:, 0],
            "y_position": after["qpos"][:, 1],
            "distance_from_origin": distance_from_origin(after),
            "x_velocity": velocity[:, 0],
            "y_velocity": velocity[:, 1],
        }

    def start(self, rng: Draws, layout_qpos: Array, *, nv: int, scale: float) -> tuple[Array, Array]:
        return normal_velocity_start(rng, layout_qpos, nv, scale)

    def fields(self, layout: Layout) -> list[BoundField]:
        if layout.bodies["torso"] != _TORSO:
            raise AssertionError(f"ant.xml numbers its bodies otherwise: {layout.bodies}")
        size = layout.nq - 2 + layout.nv + 6 * len(layout.bodies)
        return [
            observation_field(size, _OBSERVED, self.observation),
            time_field(),
            *free_root(layout, reference="level, facing x"),
            *joint_fields(layout, layout.joints),
            *foot_fields(layout, _feet(layout)),
            *contact_fields(layout),
            *body_fields(layout),
        ]

    def observation_components(self, layout: Layout) -> tuple[ObservationComponent, ...]:
        return (*free_components(layout, skip=2), *contact_components(layout, clip=_CONTACT_CLIP))


def _feet(layout: Layout) -> list[str]:
    """Return the shins, whose ends touch the floor: bodies that an ankle moves."""
    return [name for name in layout.bodies if name.endswith("_ankle")]


def _velocity(before: Raw, after: Raw, time_step: float) -> Array:
    """Return the torso's mean velocity (N, 2) over a step, from ``xpos`` as in stock Gymnasium: a substep behind ``qpos``."""
    moved: Array = (after["xpos"][:, _TORSO, :2] - before["xpos"][:, _TORSO, :2]) / time_step
    return moved


TASK = Ant
