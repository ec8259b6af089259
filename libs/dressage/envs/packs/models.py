"""The MuJoCo models of packs' robots, with which recorded states are drawn.

The simulator's own scene is not needed for that: the robot's model comes from the pack's packages, a floor from here. MuJoCo's
version is ours, which need not be the pack's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dressage.envs.packs.registry import PACKS, damaged, installed_packages
from dressage.envs.state import Array, Raw
from dressage.errors import InvalidArgument

_SKY = (0.3, 0.5, 0.7)


def model_path(env_id: str) -> str:
    """Return where the robot's model is among the packages of its pack; empty for an environment without one."""
    return next((pack.models[env_id] for pack in PACKS.values() if env_id in pack.models), "")


def load_model(env_id: str) -> Any:
    """Return the compiled model of a pack's robot on a floor.

    :raises InvalidArgument: for an environment without a model.
    :raises FailedPrecondition: if the pack is not installed here, or its model cannot be read.
    """
    import mujoco

    path = model_path(env_id)
    if not path:
        raise InvalidArgument(field="environment", value=env_id, expected="an environment with a MuJoCo model")
    name = next(pack.name for pack in PACKS.values() if env_id in pack.models)
    file = installed_packages(name) / path
    try:
        spec = mujoco.MjSpec.from_file(str(file))
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
        spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_PLANE, size=(40.0, 40.0, 0.1), material="floor")
        return spec.compile()
    except (ValueError, OSError) as error:
        raise damaged(name, env_id, f"the model {path} cannot be read: {error}") from error


def motion(raw: Raw) -> tuple[Array, Array]:
    """Return positions (T, 7 + J) and velocities (T, 6 + J) of a robot with a free base and J joints, in MuJoCo's order.

    :param raw: fields of a batched simulator: velocities of the base are in its own frame.
    """
    quaternion = raw["root_quaternion"]
    positions = np.concatenate([raw["root_position"], quaternion, raw["joint_positions"]], axis=-1)
    velocity = _turned(quaternion, raw["root_velocity"])
    return positions, np.concatenate([velocity, raw["root_angular_velocity"], raw["joint_velocities"]], axis=-1)


def _turned(quaternion: Array, vector: Array) -> Array:
    """Rotate vectors (T, 3) by quaternions (T, 4) in the order w, x, y, z."""
    real, imaginary = quaternion[..., :1], quaternion[..., 1:]
    once = np.cross(imaginary, vector)
    turned: Array = vector + 2.0 * (real * once + np.cross(imaginary, once))
    return turned
