"""Pusher-v5: an arm that is to push an object to a goal."""

from __future__ import annotations

from dressage.envs.cards import Field, ObservationComponent
from dressage.envs.fields import (
    BoundField,
    body_fields,
    contact_fields,
    joint_component,
    joint_fields,
    observation_field,
    time_field,
)
from dressage.envs.layout import Joint, Layout
from dressage.envs.namespace import library_of, never
from dressage.envs.state import Array, Raw
from dressage.envs.tasks.base import Draws, Outcome, Rules, Task, control_cost, first_accepted

_NEAR_WEIGHT = 0.5
_CONTROL_COST = 0.1
_ARM_JOINTS = 7
# Ids of the bodies in pusher_v5.xml, as `fields` checks.
_TIP, _OBJECT, _GOAL = 10, 11, 12
_FURTHEST_X, _FURTHEST_Y, _NEAREST = 0.3, 0.2, 0.17
_START_VELOCITY = 0.005


class Pusher(Task):
    """Stock reward: minus the object's distance from goal and half that from the hand, minus control cost."""

    title = "arm, object and goal"
    description = (
        "An arm of shoulder, elbow and wrist with seven joint motors stands next to a table. On the table is an object "
        "that slides when it is pushed, and a goal is marked that stays where it is. There is no gravity, and the table's "
        "friction slows the object."
    )
    termination = "never; the episode ends at its time limit only."
    stock_reward = "- distance_object_to_goal - 0.5 * distance_to_object - 0.1 * (sum of squared actions)"
    example_intents = (
        "push the object to the goal",
        "reach the object and touch it",
        "push the object away from the goal",
        "hold the hand above the goal",
        "stay still",
    )
    can_terminate = False
    sources = ("xpos",)

    def observation(self, raw: Raw) -> Array:
        bodies = [raw["xpos"][:, body] for body in (_TIP, _OBJECT, _GOAL)]
        parts = (raw["qpos"][:, :_ARM_JOINTS], raw["qvel"][:, :_ARM_JOINTS], *bodies)
        observation: Array = library_of(parts[0]).concatenate(parts, axis=1)
        return observation

    def outcome(self, before: Raw, after: Raw, action: Array, *, time_step: float, rules: Rules) -> Outcome:
        near = -_distance(after, _OBJECT, _TIP) * _NEAR_WEIGHT
        distance = -_distance(after, _OBJECT, _GOAL)
        effort = -control_cost(action, _CONTROL_COST)
        terms = {"reward_dist": distance, "reward_ctrl": effort, "reward_near": near}
        return Outcome(distance + effort + near, never(near), terms)

    def start(self, rng: Draws, layout_qpos: Array, *, nv: int, scale: float) -> tuple[Array, Array]:
        xp = library_of(layout_qpos)

        def draw(draws: Draws) -> Array:
            across, along = (draws.uniform(low=-_FURTHEST_X, high=0, size=1),
                             draws.uniform(low=-_FURTHEST_Y, high=_FURTHEST_Y, size=1))  # fmt: skip
            place: Array = xp.concatenate((across, along))
            return place

        place = first_accepted(rng, draw, lambda place: xp.linalg.norm(place) > _NEAREST)
        qvel = rng.uniform(low=-_START_VELOCITY, high=_START_VELOCITY, size=nv)
        qpos = xp.concatenate((layout_qpos[:-4], place, 0 * layout_qpos[-2:]))
        return qpos, xp.concatenate((qvel[:-4], 0 * qvel[-4:]))

    def fields(self, layout: Layout) -> list[BoundField]:
        ids = tuple(layout.bodies[name] for name in ("tips_arm", "object", "goal"))
        if ids != (_TIP, _OBJECT, _GOAL):
            raise AssertionError(f"pusher_v5.xml numbers its bodies otherwise: {layout.bodies}")
        return [
            observation_field(23, ("qpos", "qvel", "xpos"), self.observation),
            time_field(),
            BoundField(Field("distance_to_object", (), "m", "distance between the hand (tips_arm) and the object"),
                       lambda raw: _distance(raw, _OBJECT, _TIP), ("xpos",)),
            BoundField(Field("distance_object_to_goal", (), "m", "distance between the object and the goal"),
                       lambda raw: _distance(raw, _OBJECT, _GOAL), ("xpos",)),
            *joint_fields(layout, (joint.name for joint in _arm(layout))),
            *contact_fields(layout),
            *body_fields(layout),
        ]  # fmt: skip

    def observation_components(self, layout: Layout) -> tuple[ObservationComponent, ...]:
        arm = _arm(layout)
        places = tuple(
            ObservationComponent(f"{name}_{axis}", "m", f"position of {name} along {axis}")
            for name in ("tips_arm", "object", "goal")
            for axis in ("x", "y", "z")
        )
        return (*map(joint_component, arm), *(joint_component(joint, rate=True) for joint in arm), *places)


def _arm(layout: Layout) -> list[Joint]:
    joints = sorted(layout.joints.values(), key=lambda joint: joint.qpos)
    return joints[:_ARM_JOINTS]


def _distance(raw: Raw, one: int, other: int) -> Array:
    places = raw["xpos"]
    distance: Array = library_of(places).linalg.norm(places[:, one] - places[:, other], axis=-1)
    return distance


TASK = Pusher
