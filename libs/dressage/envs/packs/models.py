"""The MuJoCo models of packs' robots, with which recorded states are drawn. Where there is none, a simulator's camera draws.

A model comes from the pack's packages, or its simulator has written it when the pack was installed. A floor comes from here.
MuJoCo's version is ours, which need not be the pack's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dressage.envs.packs.registry import (
    PACKS,
    broken_pack_error,
    folder_of,
    install_remedy,
    installed_packages,
    problem_of,
)
from dressage.envs.state import Array, Raw
from dressage.errors import FailedPrecondition, InvalidArgument

_SKY = (0.3, 0.5, 0.7)


_DISTANCE = 2.0
"""Metres from the camera to a robot, whose model has no extent of its own because of the floor."""
_VIEWS: Mapping[str, Mapping[str, Any]] = {
    # From the side of the rail, whose 6 m are in a square image too; the cart moves to the right where its position grows.
    "Isaac-Cartpole-Direct": {"distance": 8.4, "azimuth": 180.0, "elevation": -8.0, "lookat": (0.0, 0.0, 2.2)},
}


def model_path(env_id: str) -> str:
    """Return where the robot's model is in the folder of its pack; empty for an environment without one."""
    return next((pack.models[env_id] for pack in PACKS.values() if env_id in pack.models), "")


def drawn_by_simulator(env_id: str) -> bool:
    """Return whether the camera of the pack's simulator draws the environment here, because no MuJoCo model is there.

    :raises FailedPrecondition: if the environment has no model at all and its pack is not installed.
    """
    pack = next((pack for pack in PACKS.values() if pack.camera and env_id in pack.environments), None)
    if pack is None:
        return False
    if path := model_path(env_id):
        return not problem_of(pack.name) and not (folder_of(pack.name) / path).exists()
    installed_packages(pack.name)
    return True


def view_of(env_id: str) -> Mapping[str, Any]:
    """Return the settings of the default camera: the distance in metres, and where they differ angles and the point in view."""
    return _VIEWS.get(env_id, {"distance": _DISTANCE})


def load_model(env_id: str) -> Any:
    """Return the compiled model of a pack's robot on a floor.

    :raises InvalidArgument: for an environment without a model.
    :raises FailedPrecondition: if the pack is not installed here, has not written the model, or it cannot be read.
    """
    import mujoco

    path = model_path(env_id)
    if not path:
        raise InvalidArgument(field="environment", value=env_id, expected="an environment with a MuJoCo model")
    pack = next(pack for pack in PACKS.values() if env_id in pack.models)
    installed_packages(pack.name)
    file = folder_of(pack.name) / path
    if env_id in pack.written_models and not file.exists():
        remedy = f"Once the pack's assets are there, run the installation again. {install_remedy(pack.name)}"
        message = f"{env_id}: the simulator has not written its MuJoCo model {file}. {remedy}"
        raise FailedPrecondition(message, reason="PACK_MODEL_MISSING", metadata={"pack": pack.name})
    try:
        spec = mujoco.MjSpec.from_file(str(file))
        _add_scenery(spec)
        return spec.compile()
    except (ValueError, OSError) as error:
        raise broken_pack_error(pack.name, env_id, f"the model {path} cannot be read: {error}") from error


def _add_scenery(spec: Any) -> None:
    """Add a sky and the material of the floor, and a floor where the model has none."""
    import mujoco

    spec.add_texture(
        name="floor",
        type=mujoco.mjtTexture.mjTEXTURE_2D,
        builtin=mujoco.mjtBuiltin.mjBUILTIN_CHECKER,
        width=64,
        height=64,
    )
    material = spec.add_material(name="floor")
    material.textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = "floor"
    spec.add_texture(
        type=mujoco.mjtTexture.mjTEXTURE_SKYBOX,
        builtin=mujoco.mjtBuiltin.mjBUILTIN_GRADIENT,
        rgb1=_SKY,
        rgb2=(0.0, 0.0, 0.0),
        width=64,
        height=64,
    )
    planes = [geom for geom in spec.geoms if geom.type == mujoco.mjtGeom.mjGEOM_PLANE]
    for plane in planes:
        plane.material = "floor"
    if not planes:
        spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_PLANE, size=(40.0, 40.0, 0.1), material="floor")


def motion(raw: Raw) -> tuple[Array, Array]:
    """Return positions and velocities of a robot with J joints, in MuJoCo's order.

    :param raw: fields of a batched simulator: velocities of the base are in its own frame.
    :returns: (T, 7 + J) and (T, 6 + J) of a robot with a free base, (T, J) and (T, J) of one with a fixed base.
    """
    if "root_position" not in raw:
        return raw["joint_positions"], raw["joint_velocities"]
    quaternion = raw["root_quaternion"]
    positions = np.concatenate([raw["root_position"], quaternion, raw["joint_positions"]], axis=-1)
    velocity = _rotate(quaternion, raw["root_velocity"])
    return positions, np.concatenate([velocity, raw["root_angular_velocity"], raw["joint_velocities"]], axis=-1)


def _rotate(quaternion: Array, vector: Array) -> Array:
    """Rotate vectors (T, 3) by quaternions (T, 4) in the order w, x, y, z."""
    real, imaginary = quaternion[..., :1], quaternion[..., 1:]
    once = np.cross(imaginary, vector)
    turned: Array = vector + 2.0 * (real * once + np.cross(imaginary, once))
    return turned
