"""Fields of a robot whose root moves freely in space: position, velocity, orientation as angles that do not wrap.

A quaternion does not show how often the robot has turned, so angles are followed through the episode, in two ways.
``roll``, ``pitch`` and ``yaw`` are Euler angles (yaw, then pitch, then roll) of the present orientation; of the many triples
that describe it, the one nearest to that of the step before is taken, so a flip counts on to 2 pi. ``turned_*`` add up the
rotation about the robot's own three axes; they have no singular attitude, but do not come back to 0 after a wobble.
"""

from __future__ import annotations

import math

from dressage.envs.cards import Field, ObservationComponent
from dressage.envs.fields import BoundField, Tracker, joint_component, scalar
from dressage.envs.layout import FreeJoint, Layout
from dressage.envs.namespace import clip_to, library_of
from dressage.envs.state import Array, FieldFunction, Raw

_TURN = 2 * math.pi
_AXES = ("x", "y", "z")


def free_root(
    layout: Layout, *, reference: str, long_axis: tuple[float, float, float] = (0.0, 0.0, 1.0)
) -> list[BoundField]:
    """Return the fields of the first freely moving body.

    :param reference: the attitude in which all angles are 0, in words.
    :param long_axis: direction in the body's own frame that points up when the robot stands.
    """  # fmt: skip
    root = layout.free[0]
    name = root.body
    angles, turns = _angles(root), _turns(root)
    unwrapped = f"unwrapped (a full turn is 2 pi), 0 = {reference}"
    position = [
        scalar("x_position", "m", f"{name} position along x, the forward direction", "qpos", root.qpos),
        scalar("x_velocity", "m/s", f"{name} velocity along x, positive = forward", "qvel", root.qvel),
        scalar("y_position", "m", f"{name} position along y", "qpos", root.qpos + 1),
        scalar("y_velocity", "m/s", f"{name} velocity along y, positive = left", "qvel", root.qvel + 1),
        scalar("z_position", "m", f"height of the {name}'s centre above the floor", "qpos", root.qpos + 2),
        scalar("z_velocity", "m/s", f"{name} velocity along z, positive = up", "qvel", root.qvel + 2),
    ]
    attitude = [
        _tracker_field("roll", f"{name} roll, {unwrapped}, positive = the left side (+y) rises", angles, 0),
        _tracker_field("pitch", f"{name} pitch, {unwrapped}, positive = the front (+x) rises, as in a backflip", angles, 1),
        _tracker_field("yaw", f"{name} heading, {unwrapped}, positive = turned left, counterclockwise from above", angles, 2),
        scalar("roll_velocity", "rad/s", "rate of turning about its own x axis, signed as roll", "qvel", root.qvel + 3),
        scalar("pitch_velocity", "rad/s", "rate of turning about its own y axis, signed as pitch", "qvel",
               root.qvel + 4, sign=-1.0),
        scalar("yaw_velocity", "rad/s", "rate of turning about its own z axis, signed as yaw", "qvel", root.qvel + 5),
    ]  # fmt: skip
    whole = "turning about its own {} axis added up since the start, signed as {}; for flips and spins"
    turned = [
        _tracker_field(f"turned_{angle}", whole.format(axis, angle), turns, index)
        for index, (angle, axis) in enumerate(zip(("roll", "pitch", "yaw"), _AXES, strict=True))
    ]
    words = "1 when the robot is upright, 0 when it is on its side, -1 upside down"
    upright = BoundField(Field("upright", (), "1", words), _upright(root, long_axis), ("qpos",))
    return [*position, *attitude, *turned, upright]


def free_components(layout: Layout, *, skip: int) -> tuple[ObservationComponent, ...]:
    """Return the observation made of ``qpos`` (the first ``skip`` left out) and ``qvel`` of a robot with one free root."""
    root = layout.free[0]
    places = [ObservationComponent(f"{root.body}_{axis}", "m", f"{root.body} position along {axis}") for axis in _AXES]
    places += [
        ObservationComponent(f"{root.body}_quaternion_{part}", "1", f"{root.body} orientation, quaternion {part}")
        for part in ("w", "x", "y", "z")
    ]
    rates = [ObservationComponent(f"{root.body}_velocity_{axis}", "m/s", f"{root.body} velocity along {axis}")
             for axis in _AXES]  # fmt: skip
    rates += [
        ObservationComponent(
            f"{root.body}_rotation_{axis}", "rad/s", f"turning of {root.body} about its own {axis} axis"
        )
        for axis in _AXES
    ]
    by_qpos = sorted(layout.joints.values(), key=lambda joint: joint.qpos)
    by_qvel = sorted(layout.joints.values(), key=lambda joint: joint.qvel)
    positions = (*places, *(joint_component(joint) for joint in by_qpos))
    return (*positions[skip:], *rates, *(joint_component(joint, rate=True) for joint in by_qvel))


def euler_angles(quaternion: Array) -> Array:
    """Return roll, pitch (positive = front up) and yaw (N, 3) in rad of unit quaternions (N, 4)."""
    xp = library_of(quaternion)
    w, x, y, z = quaternion.T
    roll = xp.arctan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y))
    pitch = -xp.arcsin(clip_to(2 * (w * y - z * x), 1.0))
    yaw = xp.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
    angles: Array = xp.stack([roll, pitch, yaw], axis=1)
    return angles


def nearest_angles(previous: Array, quaternion: Array) -> Array:
    """Return, of all Euler triples that describe these orientations, those nearest to the previous ones (N, 3)."""
    xp = library_of(quaternion)
    first = euler_angles(quaternion)
    second = xp.stack([first[:, 0] + math.pi, math.pi - first[:, 1], first[:, 2] + math.pi], axis=1)
    changes = [_shortest(candidate - previous) for candidate in (first, second)]
    other = abs(changes[1]).sum(axis=1) < abs(changes[0]).sum(axis=1)
    moved: Array = previous + xp.where(other[:, None], changes[1], changes[0])
    return moved


def rotation_between(before: Array, after: Array) -> Array:
    """Return the rotation (N, 3) in rad about the body's own axes that leads from one unit quaternion (N, 4) to another."""
    xp = library_of(after)
    w0, x0, y0, z0 = before.T
    w1, x1, y1, z1 = after.T
    w = w0 * w1 + x0 * x1 + y0 * y1 + z0 * z1
    axis = xp.stack(
        [
            w0 * x1 - x0 * w1 - y0 * z1 + z0 * y1,
            w0 * y1 - y0 * w1 - z0 * x1 + x0 * z1,
            w0 * z1 - z0 * w1 - x0 * y1 + y0 * x1,
        ],
        axis=1,
    )
    axis = xp.where(w[:, None] < 0, -axis, axis)  # q and -q are the same rotation; this is the shorter way
    size = xp.sqrt((axis * axis).sum(axis=1))
    angle = 2 * xp.arctan2(size, abs(w))
    scale = xp.where(size > 1e-12, angle / xp.maximum(size, 1e-12), 2.0)
    rotation: Array = axis * scale[:, None]
    return rotation


def _angles(root: FreeJoint) -> Tracker:
    return Tracker(
        name=f"euler_{root.name}",
        shape=(3,),
        sources=("qpos",),
        start=lambda raw: euler_angles(_quaternion(raw, root)),
        step=lambda before, after: nearest_angles(before[f"euler_{root.name}"], _quaternion(after, root)),
    )


def _turns(root: FreeJoint) -> Tracker:
    name = f"turned_{root.name}"

    def step(before: Raw, after: Raw) -> Array:
        rotation = rotation_between(_quaternion(before, root), _quaternion(after, root))
        signs = library_of(rotation).asarray((1, -1, 1), dtype=rotation.dtype)  # MuJoCo turns the front down about +y
        total: Array = before[name] + rotation * signs
        return total

    def start(raw: Raw) -> Array:
        qpos = raw["qpos"]
        nothing: Array = library_of(qpos).zeros((len(qpos), 3), dtype=qpos.dtype)
        return nothing

    return Tracker(name=name, shape=(3,), sources=("qpos",), start=start, step=step)


def _tracker_field(name: str, meaning: str, tracker: Tracker, index: int) -> BoundField:
    return BoundField(Field(name, (), "rad", meaning), lambda raw: raw[tracker.name][:, index], (), tracker)


def _quaternion(raw: Raw, root: FreeJoint) -> Array:
    """Return unit quaternions (N, 4); the noise of a reset leaves ``qpos`` a little off, and MuJoCo corrects it likewise."""
    four = raw["qpos"][:, root.qpos + 3 : root.qpos + 7]
    xp = library_of(four)
    size = xp.sqrt((four * four).sum(axis=1, keepdims=True))
    unit: Array = four / xp.where(size > 0, size, 1.0)
    return unit


def _upright(root: FreeJoint, axis: tuple[float, float, float]) -> FieldFunction:
    """Return the cosine of the angle between the axis, carried along by the body, and the vertical."""
    along_x, along_y, along_z = axis

    def read(raw: Raw) -> Array:
        w, x, y, z = _quaternion(raw, root).T
        up: Array = along_x * 2 * (x * z - w * y) + along_y * 2 * (y * z + w * x) + along_z * (1 - 2 * (x * x + y * y))
        return up

    return read


def _shortest(change: Array) -> Array:
    """Return the same angles, shifted by full turns to within half a turn."""
    wrapped: Array = change - _TURN * library_of(change).round(change / _TURN)
    return wrapped
