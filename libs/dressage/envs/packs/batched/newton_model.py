"""The MuJoCo model of an Isaac Lab task on Newton, from which recorded states are drawn.

Newton's solver builds a MuJoCo model of the scene and saves it without colours. `write_model` adds them, in the process of the
pack; `drawable` needs MuJoCo only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

MODEL_FILE = "model.xml"
"""What `write_model` writes, in the current folder."""
_NOT_DRAWN = 3
"""Renderers leave out groups of geoms from this one on."""
_PLAIN = (0.65, 0.68, 0.72)
_THINNEST = 0.01


@dataclass(frozen=True)
class Shape:
    """How Newton shows a geom.

    :param color: red, green and blue, 0 to 1.
    :param visible: False for a shape that only collides, where others are visible.
    """

    color: tuple[float, float, float] = _PLAIN
    visible: bool = True


def write_model(channel: Any) -> None:
    """Sandbox target: write the MuJoCo model of the environment that the first message names."""
    env_id = str(channel.recv(timeout=None)["environment"])
    from dressage.envs.packs.batched.isaaclab import IsaacSimulator
    from dressage.envs.packs.batched.stepping import use_kernels

    use_kernels()
    simulator = IsaacSimulator(env_id, num_envs=1, max_episode_steps=None, device="cpu", visible=True)
    xml, shapes = _solver_model()
    Path(MODEL_FILE).write_text(drawable(xml, shapes, simulator.joint_names()), "utf-8")
    channel.send({})


def _solver_model() -> tuple[str, dict[str, Shape]]:
    """Return the MuJoCo model of the present simulation, with what is only visible, and Newton's shape of each geom."""
    from isaaclab_newton.physics import NewtonManager
    from newton import ShapeFlags
    from newton.solvers import SolverMuJoCo

    scene: Any = NewtonManager.get_model()
    saved = Path("solver.xml")
    solver: Any = SolverMuJoCo(scene, skip_visual_only_geoms=False, save_to_mjcf=str(saved))
    flags, colors = scene.shape_flags.numpy(), scene.shape_color.numpy()
    shapes = {}
    for geom, shape in enumerate(solver.mjc_geom_to_newton_shape.numpy()[0]):
        if shape >= 0:
            red, green, blue = map(float, colors[shape])
            visible = bool(flags[shape] & ShapeFlags.VISIBLE)
            shapes[solver.mj_model.geom(geom).name] = Shape((red, green, blue), visible)
    return saved.read_text("utf-8"), shapes


def drawable(xml: str, shapes: Mapping[str, Shape], joints: Sequence[str]) -> str:
    """Return a model in MuJoCo's XML whose positions (nq,) are those of the joints, and all of whose bodies can be seen.

    A body whose shapes only collide shows these; one without shapes shows the box of its inertia.

    :param xml: the model, whose joints' names end with those of the simulator.
    :param shapes: how geoms look, by name; others are plain.
    :param joints: names of the simulator's joints, in the order of its positions.
    :raises ValueError: if the model has other joints, or has them in another order.
    """
    import mujoco

    spec = mujoco.MjSpec.from_string(xml)
    model = spec.compile()
    names = [model.joint(index).name for index in range(model.njnt)]
    same = len(names) == len(joints) and all(name.endswith(joint) for name, joint in zip(names, joints, strict=True))
    if not same or model.nq != len(joints):
        raise ValueError(f"the MuJoCo model has {model.nq} positions of the joints {names}, the simulator has {joints}")
    for actuator in list(spec.actuators):
        spec.delete(actuator)
    for body in spec.bodies:
        look = {geom.name: shapes.get(geom.name, Shape()) for geom in body.geoms}
        any_visible = any(shape.visible for shape in look.values())
        for geom in body.geoms:
            geom.group = _NOT_DRAWN if any_visible and not look[geom.name].visible else 0
            geom.rgba = (*look[geom.name].color, 1.0)
        if not look and body.name != "world":
            _add_box(body, model)
    return str(spec.to_xml())


def _add_box(body: Any, model: Any) -> None:
    """Show a body without shapes as the box that has its mass and inertia; nothing where it has none."""
    import mujoco

    compiled = model.body(body.name)
    mass, inertia = float(compiled.mass[0]), np.asarray(compiled.inertia, np.float64)
    if mass <= 0:
        return
    sides = np.sqrt(np.maximum(inertia.sum() - 2 * inertia, 0.0) * 6 / mass)
    body.add_geom(
        type=mujoco.mjtGeom.mjGEOM_BOX,
        size=np.maximum(sides / 2, _THINNEST),
        pos=compiled.ipos,
        quat=compiled.iquat,
        rgba=(*_PLAIN, 1.0),
        contype=0,
        conaffinity=0,
        mass=0,
    )
