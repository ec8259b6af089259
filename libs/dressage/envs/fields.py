"""Fields of the state as functions of simulator arrays, with the words that describe them.

One definition serves everything: the batch evaluates a field on its N rows, with numpy or with JAX (`dressage.envs.namespace`),
a recorded stock Gymnasium episode on its T+1 rows, and the card takes its name, shape, unit and meaning. So they cannot
disagree.

Positions and velocities along joints come from ``qpos`` and ``qvel`` and are exact for the new state. What MuJoCo
derives (``xpos``, ``cvel``, geom poses) is, as stock Gymnasium reports it, up to one physics substep old.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dressage.envs.cards import ActionComponent, Field, ObservationComponent
from dressage.envs.layout import Joint, Layout
from dressage.envs.namespace import library_of
from dressage.envs.state import Array, FieldFunction, Raw
from dressage.errors import Internal

_TORSO = "torso"


@dataclass(frozen=True)
class Tracker:
    """An array that depends on the course of the episode, not only on the present state (an unwrapped angle).

    :param name: its name among the simulator arrays.
    :param shape: of one row.
    :param sources: simulator arrays that it reads.
    :param start: its value (N, ...) at the beginning of an episode.
    :param step: its next value, from the arrays before (its own among them) and after a step.
    """

    name: str
    shape: tuple[int, ...]
    sources: tuple[str, ...]
    start: Callable[[Raw], Array]
    step: Callable[[Raw, Raw], Array]


@dataclass(frozen=True)
class BoundField:
    """A field and how to compute it.

    :param sources: names of the simulator arrays that ``function`` reads, the tracker's left out.
    :param tracker: the tracker that it reads as well.
    """

    field: Field
    function: FieldFunction
    sources: tuple[str, ...]
    tracker: Tracker | None = None


def trackers_of(bound: Iterable[BoundField]) -> dict[str, Tracker]:
    """Return the trackers that these fields read, by name."""
    return {entry.tracker.name: entry.tracker for entry in bound if entry.tracker is not None}


def sources_of(bound: Sequence[BoundField]) -> set[str]:
    """Return the simulator arrays that these fields read."""
    tracked = {name for tracker in trackers_of(bound).values() for name in tracker.sources}
    return tracked | {name for entry in bound for name in entry.sources}


def scalar(
    name: str, unit: str, meaning: str, source: str, index: int, *, sign: float = 1.0, offset: float = 0.0
) -> BoundField:
    """Return ``sign * source[:, index] + offset`` as a field of one number a row."""

    def read(raw: Raw) -> Array:
        column = raw[source][:, index]
        if sign != 1.0:
            column = sign * column
        return column + offset if offset else column

    return BoundField(Field(name, (), unit, meaning), read, (source,))


def observation_field(
    size: int, sources: tuple[str, ...], function: FieldFunction, *, stock: bool = True
) -> BoundField:
    """Return the observation as a field."""
    meaning = f"the {'stock Gymnasium ' if stock else ''}observation, component by component below"
    return BoundField(Field("observation", (size,), "mixed", meaning), function, sources)


def time_field() -> BoundField:
    """Return the seconds since the episode began as a field."""
    return BoundField(Field("time", (), "s", "time since the episode began"), lambda raw: raw["time"], ("time",))


def planar_root(layout: Layout, *, ahead: str) -> list[BoundField]:
    """Return position, velocity and pitch of a torso that moves in the x-z plane on joints rootx, rootz, rooty.

    :param ahead: what positive pitch looks like, in words ("the head goes up").
    """
    x, z, pitch = layout.joint("rootx"), layout.joint("rootz"), layout.joint("rooty")
    origin = layout.body_origins[_TORSO]
    turn = "" if pitch.nose_up > 0 else "; minus the model's rooty angle"
    words = f"torso pitch, unwrapped (a full flip is 2 pi), 0 = reference pose, positive = nose up ({ahead}){turn}"
    return [
        scalar("x_position", "m", "torso position along x, the forward direction", "qpos", x.qpos,
               offset=origin[0] - x.reference),
        scalar("x_velocity", "m/s", "torso velocity along x, positive = forward", "qvel", x.qvel),
        scalar("z_position", "m", "height of the torso's centre above the floor", "qpos", z.qpos,
               offset=origin[2] - z.reference),
        scalar("z_velocity", "m/s", "torso velocity along z, positive = up", "qvel", z.qvel),
        scalar("pitch", "rad", words, "qpos", pitch.qpos, sign=float(pitch.nose_up)),
        scalar("pitch_velocity", "rad/s", "rate of pitch, positive = nose up", "qvel", pitch.qvel,
               sign=float(pitch.nose_up)),
    ]  # fmt: skip


def joint_fields(layout: Layout, joints: Iterable[str]) -> list[BoundField]:
    """Return the angle (or position) and velocity of each named joint, named by `short_name`."""
    fields = []
    for name in joints:
        joint, short = layout.joint(name), short_name(name)
        limits = ", no limits" if joint.low is None else f", limits {joint.low:.3g} to {joint.high:.3g}"
        moves = f", positive = {short} moves {joint.moves}" if joint.moves else ""
        if joint.is_hinge:
            angle = f"angle of the {short} joint, 0 = reference pose{moves}{limits}"
            fields.append(scalar(f"{short}_angle", "rad", angle, "qpos", joint.qpos))
            fields.append(scalar(f"{short}_velocity", "rad/s", f"rate of {short}_angle", "qvel", joint.qvel))
        else:
            fields.append(scalar(f"{short}_position", "m", f"position of {short}{moves}{limits}", "qpos", joint.qpos))
            fields.append(scalar(f"{short}_velocity", "m/s", f"rate of {short}_position", "qvel", joint.qvel))
    return fields


def body_fields(layout: Layout, *, velocities: bool = True) -> list[BoundField]:
    """Return the world position and velocity of each body's frame origin."""
    fields = []
    for name, body in layout.bodies.items():
        fields.append(
            BoundField(Field(f"xpos_{name}", (3,), "m", f"position (x, y, z) of the origin of {name}"),
                       _position(body), ("xpos",))
        )  # fmt: skip
    if not velocities:
        return fields
    roots = _roots(layout)
    for name, body in layout.bodies.items():
        fields.append(
            BoundField(Field(f"xvel_{name}", (3,), "m/s", f"velocity (x, y, z) of the origin of {name}"),
                       _velocity(body, roots), ("cvel", "subtree_com", "xpos"))
        )  # fmt: skip
    return fields


def contact_fields(layout: Layout) -> list[BoundField]:
    """Return the size of the contact force on each body that can touch something."""
    fields = []
    for name in layout.colliding:
        words = f"size of the total contact force on {name}, 0 when nothing touches it"
        fields.append(
            BoundField(Field(f"contact_{name}", (), "N", words), _contact(layout.bodies[name]), ("cfrc_ext",))
        )
    return fields


def foot_fields(layout: Layout, bodies: Iterable[str]) -> list[BoundField]:
    """Return the height of the lowest point of each foot above the floor at z = 0, and whether it touches the floor."""
    fields = []
    for name in bodies:
        capsule = layout.body_capsule[name]
        height = _lowest_point(capsule.id, capsule.radius, capsule.half_length)
        words = f"height of the lowest point of {name} above the floor, negative when pressed into it"
        sources = ("geom_xpos", "geom_xmat")
        fields.append(BoundField(Field(f"height_{name}", (), "m", words), height, sources))
        touch = Field(f"touching_{name}", (), "1", f"1 when {name} touches the floor, else 0")
        fields.append(BoundField(touch, _touching(height, capsule.margin), sources))
    return fields


def end_height(name: str, meaning: str, *, geom: int, half_length: float) -> BoundField:
    """Return the height of one end of a capsule's axis: ``half_length`` along it, signed."""

    def read(raw: Raw) -> Array:
        return raw["geom_xpos"][:, geom, 2] + half_length * raw["geom_xmat"][:, geom, 8]

    return BoundField(Field(name, (), "m", meaning), read, ("geom_xpos", "geom_xmat"))


def motors(layout: Layout) -> tuple[ActionComponent, ...]:
    """Return the action components of a model whose actuators are motors."""
    parts = []
    for actuator in layout.actuators:
        if not actuator.is_motor or actuator.low is None or actuator.high is None:
            raise Internal(f"actuator {actuator.name!r} is no motor of one joint with a limited control")
        joint, short = layout.joint(actuator.joint), short_name(actuator.joint)
        kind, unit = ("torque", "N m") if joint.is_hinge else ("force", "N")
        moves = f"; positive = {short} moves {joint.moves}" if joint.moves else ""
        meaning = f"motor on {short}: {kind} = {actuator.gear:g} {unit} times the action{moves}"
        parts.append(ActionComponent(short, actuator.low, actuator.high, "1", meaning))
    return tuple(parts)


def joint_components(layout: Layout, *, skip: int = 0, clip: float | None = None) -> tuple[ObservationComponent, ...]:
    """Return the observation made of ``qpos`` (the first ``skip`` left out) and ``qvel`` (clipped to ±``clip``)."""
    by_qpos = sorted(layout.joints.values(), key=lambda joint: joint.qpos)
    by_qvel = sorted(layout.joints.values(), key=lambda joint: joint.qvel)
    return tuple(joint_component(joint) for joint in by_qpos[skip:]) + tuple(
        joint_component(joint, rate=True, clip=clip) for joint in by_qvel
    )


def joint_component(joint: Joint, *, rate: bool = False, clip: float | None = None) -> ObservationComponent:
    """Return a joint's angle (or position) in the observation, or the rate of it."""
    if rate:
        return ObservationComponent(
            f"{joint.name}_velocity", _unit(joint) + "/s", f"velocity of joint {joint.name}", clip
        )
    kind = "angle" if joint.is_hinge else "position"
    return ObservationComponent(f"{joint.name}_{kind}", _unit(joint), f"{kind} of joint {joint.name}", clip)


def short_name(joint: str) -> str:
    """Return a joint's name without a trailing ``_joint`` or ``_rot``."""
    return joint.removesuffix("_joint").removesuffix("_rot")


def _unit(joint: Joint) -> str:
    return "rad" if joint.is_hinge else "m"


def _contact(body: int) -> FieldFunction:
    """Return the size of a body's contact force; MuJoCo's ``cfrc_ext`` is a torque, then a force, along the world's axes."""

    def read(raw: Raw) -> Array:
        force = raw["cfrc_ext"][:, body, 3:]
        size: Array = library_of(force).sqrt((force * force).sum(axis=-1))
        return size

    return read


def _position(body: int) -> FieldFunction:
    return lambda raw: raw["xpos"][:, body]


def _velocity(body: int, roots: dict[int, int]) -> FieldFunction:
    """Return a body's velocity, moved from the kinematic tree's centre of mass, where MuJoCo's ``cvel`` is, to its origin."""
    root = roots[body]

    def read(raw: Raw) -> Array:
        spatial = raw["cvel"][:, body]
        arm = raw["xpos"][:, body] - raw["subtree_com"][:, root]
        velocity: Array = spatial[:, 3:] + library_of(spatial).cross(spatial[:, :3], arm)
        return velocity

    return read


def _roots(layout: Layout) -> dict[int, int]:
    return {body: layout.body_root[name] for name, body in layout.bodies.items()}


def _lowest_point(geom: int, radius: float, half_length: float) -> FieldFunction:
    def read(raw: Raw) -> Array:
        height: Array = raw["geom_xpos"][:, geom, 2] - half_length * abs(raw["geom_xmat"][:, geom, 8]) - radius
        return height

    return read


def _touching(height: FieldFunction, margin: float) -> FieldFunction:
    return lambda raw: (height(raw) <= margin) * 1.0
