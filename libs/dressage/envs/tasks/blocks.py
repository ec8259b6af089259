"""Blocks of numbers that observations of several robots hold: contact forces, inertia, velocities of bodies."""

from __future__ import annotations

from dressage.envs.cards import ObservationComponent
from dressage.envs.layout import Layout

_INERTIA = ("xx", "yy", "zz", "xy", "xz", "yz")
_AXES = ("x", "y", "z")


def contact_components(layout: Layout, *, clip: float | None = None) -> tuple[ObservationComponent, ...]:
    """Return ``cfrc_ext`` of every body but the world: torque, then force."""
    components = []
    for body in layout.bodies:
        for kind, unit in (("torque", "N m"), ("force", "N")):
            for axis in _AXES:
                name, words = f"{body}_contact_{kind}_{axis}", f"contact {kind} on {body} along {axis}"
                components.append(
                    ObservationComponent(name, unit, words, clip, _group("cfrc_ext", 6, "contact torque, force"))
                )
    return tuple(components)


def inertia_components(layout: Layout) -> tuple[ObservationComponent, ...]:
    """Return ``cinert`` of every body but the world: rotational inertia about the robot's centre of mass, offset, mass."""
    group = _group("cinert", 10, "rotational inertia xx yy zz xy xz yz, mass times offset x y z, mass")
    components = []
    for body in layout.bodies:
        about = f"of {body} about the robot's centre of mass"
        components += [
            ObservationComponent(f"{body}_inertia_{axes}", "kg m^2", f"rotational inertia {axes} {about}", None, group)
            for axes in _INERTIA
        ]
        components += [
            ObservationComponent(
                f"{body}_offset_{axis}", "kg m", f"mass times offset along {axis} {about}", None, group
            )
            for axis in _AXES
        ]
        components.append(ObservationComponent(f"{body}_mass", "kg", f"mass of {body}", None, group))
    return tuple(components)


def velocity_components(layout: Layout) -> tuple[ObservationComponent, ...]:
    """Return ``cvel`` of every body but the world: angular velocity, then velocity at the robot's centre of mass."""
    group = _group("cvel", 6, "angular velocity x y z, velocity x y z at the robot's centre of mass")
    components = []
    for body in layout.bodies:
        for kind, unit in (("rotation", "rad/s"), ("velocity", "m/s")):
            for axis in _AXES:
                words = f"{kind} of {body} along {axis}, taken at the robot's centre of mass"
                components.append(ObservationComponent(f"{body}_com_{kind}_{axis}", unit, words, None, group))
    return tuple(components)


def motor_components(layout: Layout) -> tuple[ObservationComponent, ...]:
    """Return ``qfrc_actuator`` of every joint that a motor can turn, in the order of ``qvel``."""
    joints = sorted(layout.joints.values(), key=lambda joint: joint.qvel)
    group = _group("qfrc_actuator", 1, "torque of the motors on each joint")
    return tuple(
        ObservationComponent(f"{joint.name}_torque", "N m", f"motor torque on joint {joint.name}", None, group)
        for joint in joints
    )


def _group(name: str, size: int, words: str) -> str:
    return f"{name}: {words}" if size == 1 else f"{name}, {size} for each body: {words}"
