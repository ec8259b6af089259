"""What a task needs to know about a MuJoCo model, as plain data read off the live model.

Fields of the state index ``qpos``, ``xpos`` and so on by number; the numbers come from here, by name, so that nothing
about a model is typed in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dressage.errors import Internal

# Values of MuJoCo's mjtGeom and mjtJoint, which are part of its stable API.
_CAPSULE = 3
_SLIDE = 2
_HINGE = 3


@dataclass(frozen=True)
class Joint:
    """A joint with one degree of freedom; angles in rad, positions in m.

    :param moves: where a positive velocity takes the moved body in the reference pose ("forward (+x)"); "" unknown.
    :param nose_up: +1 when positive rotation lifts what lies ahead (+x) of the joint, -1 when it lowers it, else 0.
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
class Capsule:
    """A capsule geom: its axis is the geom's own z axis.

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
    """A motor: the applied joint torque or force is ``gear`` times the control, clamped to low..high."""

    joint: str
    gear: float
    low: float
    high: float


@dataclass(frozen=True)
class Layout:
    """Names, addresses and sizes of one model.

    :param bodies: body ids by name, the world excluded, in the model's order.
    :param body_origins: position (m) of each body in the model's reference pose, in its parent's frame.
    :param body_root: id of the root body of the kinematic tree that each body belongs to.
    :param body_capsule: the last capsule geom of each body that has one.
    :param timestep: physics time step, s.
    """

    nq: int
    nv: int
    nu: int
    joints: dict[str, Joint]
    bodies: dict[str, int]
    body_origins: dict[str, tuple[float, float, float]]
    body_capsule: dict[str, Capsule]
    body_root: dict[str, int]
    sites: dict[str, int]
    actuators: tuple[Actuator, ...]
    timestep: float

    def joint(self, name: str) -> Joint:
        """The joint of that name."""
        return self.joints[name]


def layout_of(model: Any) -> Layout:
    """Read the layout off a compiled model.

    :param model: a ``mujoco.MjModel`` whose joints all have one degree of freedom.
    """
    capsules = _capsules(model)
    data = _reference_pose(model)
    joints = {}
    for index in range(model.njnt):
        view = model.joint(index)
        if int(view.type[0]) not in (_SLIDE, _HINGE):
            raise Internal(f"joint {view.name!r} has more than one degree of freedom")
        limited = bool(model.jnt_limited[index])
        adr = int(model.jnt_qposadr[index])
        joints[view.name] = Joint(
            name=view.name,
            qpos=adr,
            qvel=int(model.jnt_dofadr[index]),
            is_hinge=int(view.type[0]) == _HINGE,
            low=float(model.jnt_range[index, 0]) if limited else None,
            high=float(model.jnt_range[index, 1]) if limited else None,
            reference=float(model.qpos0[adr]),
            moves=_moves(model, data, index, capsules),
            nose_up=_nose_up(model, data, index),
        )
    bodies = {model.body(index).name: index for index in range(1, model.nbody)}
    joint_names = [model.joint(index).name for index in range(model.njnt)]
    return Layout(
        nq=int(model.nq),
        nv=int(model.nv),
        nu=int(model.nu),
        joints=joints,
        bodies=bodies,
        body_origins={name: _triple(model.body_pos[index]) for name, index in bodies.items()},
        body_capsule=capsules,
        body_root={name: int(model.body_rootid[index]) for name, index in bodies.items()},
        sites={model.site(index).name: index for index in range(model.nsite)},
        actuators=tuple(
            Actuator(
                joint=joint_names[int(model.actuator_trnid[index, 0])],
                gear=float(model.actuator_gear[index, 0]),
                low=float(model.actuator_ctrlrange[index, 0]),
                high=float(model.actuator_ctrlrange[index, 1]),
            )
            for index in range(model.nu)
        ),
        timestep=float(model.opt.timestep),
    )


def _capsules(model: Any) -> dict[str, Capsule]:
    found = {}
    for index in range(model.ngeom):
        body = int(model.geom_bodyid[index])
        if body == 0 or int(model.geom_type[index]) != _CAPSULE:
            continue
        found[model.body(body).name] = Capsule(
            name=model.geom(index).name,
            id=index,
            radius=float(model.geom_size[index, 0]),
            half_length=float(model.geom_size[index, 1]),
            margin=float(model.geom_margin[index]),
            far_end=1 if float(np.dot(_local_axis(model.geom_quat[index]), model.geom_pos[index])) >= 0 else -1,
        )
    return found


def _local_axis(quaternion: Any) -> tuple[float, float, float]:
    """The z axis of a frame, in its parent's coordinates."""
    w, x, y, z = (float(value) for value in quaternion)
    return 2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)


def _reference_pose(model: Any) -> Any:
    import mujoco

    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    return data


_DIRECTIONS = (("backward (-x)", "forward (+x)"), ("right (-y)", "left (+y)"), ("down (-z)", "up (+z)"))


def _moves(model: Any, data: Any, joint: int, capsules: dict[str, Capsule]) -> str:
    """Direction in which a positive joint velocity takes the middle of the joint's body, in the reference pose."""
    axis = np.asarray(data.xaxis[joint])
    if int(model.jnt_type[joint]) == _SLIDE:
        motion = axis
    else:
        capsule = capsules.get(model.body(int(model.jnt_bodyid[joint])).name)
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
