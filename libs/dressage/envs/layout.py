"""What a task needs to know about a MuJoCo model, as plain data read off the live model.

Fields of the state index ``qpos``, ``xpos`` and so on by number; the numbers come from here, by name, so that nothing
about a model is typed in.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

# Values of MuJoCo's mjtGeom and mjtJoint, which are part of its stable API.
_SPHERE = 2
_CAPSULE = 3
_FREE = 0
_SLIDE = 2
_HINGE = 3
_JOINT_TRANSMISSION = 0


@dataclass(frozen=True)
class Joint:
    """A joint with one degree of freedom; angles in rad, positions in m.

    :param moves: where a positive velocity takes the moved body in the reference pose ("forward (+x)"); "" unknown.
    :param nose_up: +1 when positive rotation lifts what is ahead (+x) of the joint, -1 when it lowers it, else 0.
    """

    name: str
    qpos: int
    qvel: int
    is_hinge: bool
    low: float | None
    high: float | None
    reference: float
    moves: str
    nose_up: int


@dataclass(frozen=True)
class FreeJoint:
    """A body that moves freely: 7 numbers in ``qpos`` (position, quaternion), 6 in ``qvel`` (both velocities).

    :param body: name of the body.
    """

    name: str
    body: str
    qpos: int
    qvel: int


@dataclass(frozen=True)
class Capsule:
    """A capsule geom, or a sphere (of half length 0): its axis is the geom's own z axis.

    :param far_end: +1 when the end towards the axis' direction is the farther one from the body's origin, else -1.
    """

    name: str
    id: int
    radius: float
    half_length: float
    margin: float
    far_end: int


@dataclass(frozen=True)
class Actuator:
    """What one number of the control drives.

    :param joint: the joint that it acts on; empty where it acts on something else (a tendon, a site).
    :param is_motor: the applied joint torque or force is ``gear`` times the control.
    :param low: the control is clamped to low..high; None: it is not.
    """

    name: str
    joint: str
    is_motor: bool
    gear: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Layout:
    """Names, addresses and sizes of one model.

    :param joints: joints with one degree of freedom, by name.
    :param free: bodies that move freely.
    :param bodies: body ids by name, the world excluded, in the model's order. One that the model does not name is called
        after its geom or joint.
    :param body_origins: position (m) of each body in the model's reference pose, in its parent's frame.
    :param body_root: id of the root body of the kinematic tree that each body belongs to.
    :param body_capsule: the last capsule geom of each body that has one, else its last sphere.
    :param colliding: names of the bodies that can touch another one, or the floor.
    :param geoms: ids of the named geoms.
    :param geom_places: position (m) of each named geom in its body's frame.
    :param timestep: physics time step, s.
    """

    nq: int
    nv: int
    nu: int
    joints: dict[str, Joint]
    free: tuple[FreeJoint, ...]
    bodies: dict[str, int]
    body_origins: dict[str, tuple[float, float, float]]
    body_capsule: dict[str, Capsule]
    body_root: dict[str, int]
    colliding: tuple[str, ...]
    geoms: dict[str, int]
    geom_places: dict[str, tuple[float, float, float]]
    sites: dict[str, int]
    actuators: tuple[Actuator, ...]
    timestep: float

    def joint(self, name: str) -> Joint:
        """Return the joint of that name."""
        return self.joints[name]


def layout_of(model: Any) -> Layout:
    """Read the layout off a compiled model.

    :param model: a ``mujoco.MjModel``.
    """
    names = body_names(model)
    capsules = _capsules(model, names)
    bodies = {names[index]: index for index in range(1, model.nbody)}
    geoms = {model.geom(index).name: index for index in range(model.ngeom) if model.geom(index).name}
    return Layout(
        nq=int(model.nq),
        nv=int(model.nv),
        nu=int(model.nu),
        joints=_joints(model, names, capsules),
        free=_free_joints(model, names),
        bodies=bodies,
        body_origins={name: _triple(model.body_pos[index]) for name, index in bodies.items()},
        body_capsule=capsules,
        body_root={name: int(model.body_rootid[index]) for name, index in bodies.items()},
        colliding=tuple(name for name, index in bodies.items() if _collides(model, index)),
        geoms=geoms,
        geom_places={name: _triple(model.geom_pos[index]) for name, index in geoms.items()},
        sites={model.site(index).name: index for index in range(model.nsite)},
        actuators=tuple(_actuator(model, index) for index in range(model.nu)),
        timestep=float(model.opt.timestep),
    )


def body_names(model: Any) -> tuple[str, ...]:
    """Return a name for each body, the world's first: its own, else that of its first geom or of its first joint."""
    chosen: list[str] = []
    for index in range(model.nbody):
        geom, joint = int(model.body_geomadr[index]), int(model.body_jntadr[index])
        candidates = (
            model.body(index).name,
            model.geom(geom).name.removesuffix("_geom") if geom >= 0 else "",
            model.joint(joint).name if joint >= 0 else "",
        )
        names = (identifier(name) for name in candidates if name)
        chosen.append(next((name for name in names if name not in chosen), f"body{index}"))
    return tuple(chosen)


def joint_names(model: Any) -> tuple[str, ...]:
    """Return a name for each joint: its own, else one after its number."""
    names: list[str] = []
    for index in range(model.njnt):
        name = identifier(model.joint(index).name or f"joint{index}")
        names.append(name if name not in names else f"{name}_{index}")
    return tuple(names)


def identifier(name: str) -> str:
    """Return a name as part of a field's name: a model may call its parts ``leg-1/foot``."""
    return re.sub(r"\W", "_", name, flags=re.ASCII)


def _joints(model: Any, bodies: tuple[str, ...], capsules: dict[str, Capsule]) -> dict[str, Joint]:
    data = _reference_pose(model)
    joints = {}
    for index, name in enumerate(joint_names(model)):
        kind, adr = int(model.jnt_type[index]), int(model.jnt_qposadr[index])
        if kind not in (_SLIDE, _HINGE):
            continue
        limited = bool(model.jnt_limited[index])
        joints[name] = Joint(
            name=name,
            qpos=adr,
            qvel=int(model.jnt_dofadr[index]),
            is_hinge=kind == _HINGE,
            low=float(model.jnt_range[index, 0]) if limited else None,
            high=float(model.jnt_range[index, 1]) if limited else None,
            reference=float(model.qpos0[adr]),
            moves=_moves(model, data, index, capsules.get(bodies[int(model.jnt_bodyid[index])])),
            nose_up=_nose_up(model, data, index),
        )
    return joints


def _free_joints(model: Any, bodies: tuple[str, ...]) -> tuple[FreeJoint, ...]:
    return tuple(
        FreeJoint(
            name, bodies[int(model.jnt_bodyid[index])], int(model.jnt_qposadr[index]), int(model.jnt_dofadr[index])
        )
        for index, name in enumerate(joint_names(model))
        if int(model.jnt_type[index]) == _FREE
    )


def _actuator(model: Any, index: int) -> Actuator:
    on_joint = int(model.actuator_trntype[index]) == _JOINT_TRANSMISSION
    joint = joint_names(model)[int(model.actuator_trnid[index, 0])] if on_joint else ""
    gain, bias = model.actuator_gainprm[index], model.actuator_biasprm[index]
    limited = bool(model.actuator_ctrllimited[index])
    return Actuator(
        name=identifier(model.actuator(index).name or joint or f"actuator{index}"),
        joint=joint,
        # A motor has a fixed gain of one, no bias and no dynamics of its own.
        is_motor=on_joint and gain[0] == 1 and not bias.any() and int(model.actuator_dyntype[index]) == 0,
        gear=float(model.actuator_gear[index, 0]),
        low=float(model.actuator_ctrlrange[index, 0]) if limited else None,
        high=float(model.actuator_ctrlrange[index, 1]) if limited else None,
    )


def _collides(model: Any, body: int) -> bool:
    """Return whether a geom of the body may touch one of another body, according to collision masks and explicit pairs."""
    own = np.flatnonzero(np.asarray(model.geom_bodyid) == body)
    others = np.flatnonzero(np.asarray(model.geom_bodyid) != body)
    kinds, affinities = np.asarray(model.geom_contype), np.asarray(model.geom_conaffinity)
    masks = (kinds[own, None] & affinities[others]) | (affinities[own, None] & kinds[others])
    paired = {int(geom) for geom in (*model.pair_geom1, *model.pair_geom2)}
    return bool(masks.any()) or bool(paired & {int(geom) for geom in own})


def _capsules(model: Any, bodies: tuple[str, ...]) -> dict[str, Capsule]:
    by_body: dict[str, Capsule] = {}
    for kind in (_SPHERE, _CAPSULE):  # a capsule takes the place of a sphere
        for index in np.flatnonzero(np.asarray(model.geom_type) == kind):
            body = int(model.geom_bodyid[index])
            if body != 0:
                by_body[bodies[body]] = _capsule(model, int(index), kind)
    return by_body


def _capsule(model: Any, index: int, kind: int) -> Capsule:
    return Capsule(
        name=model.geom(index).name,
        id=index,
        radius=float(model.geom_size[index, 0]),
        half_length=float(model.geom_size[index, 1]) if kind == _CAPSULE else 0.0,
        margin=float(model.geom_margin[index]),
        far_end=1 if float(np.dot(_local_axis(model.geom_quat[index]), model.geom_pos[index])) >= 0 else -1,
    )


def _local_axis(quaternion: Any) -> tuple[float, float, float]:
    """Return the z axis of a frame, in its parent's coordinates."""
    w, x, y, z = (float(value) for value in quaternion)
    return 2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)


def _reference_pose(model: Any) -> Any:
    import mujoco

    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    return data


_DIRECTIONS = (("backward (-x)", "forward (+x)"), ("right (-y)", "left (+y)"), ("down (-z)", "up (+z)"))


def _moves(model: Any, data: Any, joint: int, capsule: Capsule | None) -> str:
    """Return the direction in which a positive joint velocity takes the middle of the joint's body, in the reference pose."""
    axis = np.asarray(data.xaxis[joint])
    if int(model.jnt_type[joint]) == _SLIDE:
        motion = axis
    else:
        if capsule is None:
            return ""
        motion = np.cross(axis, data.geom_xpos[capsule.id] - data.xanchor[joint])
    strongest = int(np.argmax(np.abs(motion)))
    if abs(motion[strongest]) < 1e-6:
        return ""
    return _DIRECTIONS[strongest][int(motion[strongest] > 0)]


def _nose_up(model: Any, data: Any, joint: int) -> int:
    if int(model.jnt_type[joint]) == _SLIDE:
        return 0
    lift = float(np.cross(data.xaxis[joint], (1.0, 0.0, 0.0))[2])
    return int(np.sign(round(lift, 9)))


def _triple(values: Any) -> tuple[float, float, float]:
    return float(values[0]), float(values[1]), float(values[2])
