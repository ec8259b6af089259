"""The cart-pole of Isaac Lab without its simulator: its written model, and the poses of bodies that the simulator recorded."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from dressage.envs.packs import models, registry

CART_POLE = "Isaac-Cartpole-Direct"
DATA = Path(__file__).parents[2] / "data" / "isaac_cartpole"


def write_pack(folder: Path, *, with_model: bool = True) -> None:
    """Write a pack that consists of the model alone.

    :param folder: of packs.
    """
    pack = registry.PACKS["isaaclab"]
    (folder / pack.name / registry.PACKAGES).mkdir(parents=True, exist_ok=True)
    (folder / pack.name / registry.MARKER).write_text(json.dumps(pack.identity))
    if with_model:
        file = folder / pack.name / pack.models[CART_POLE]
        file.parent.mkdir()
        shutil.copyfile(DATA / "model.xml", file)


def pose_errors(model: Any, recorded: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the distances (T, B, 2) of the bodies' positions, in metres, and of their quaternions.

    :param recorded: the fields that `models.motion` takes, (T, J), and of the simulator's bodies ``names`` (B,), ``place``
        (T, B, 3) and ``turn`` (T, B, 4), quaternions in the order x, y, z, w.
    """
    import mujoco

    data, bodies = mujoco.MjData(model), [_body(model, name) for name in recorded["names"].tolist()]
    positions, _ = models.motion({name: recorded[name] for name in ("joint_positions", "joint_velocities")})
    errors = np.zeros((len(positions), len(bodies), 2))
    for row, qpos in enumerate(positions):
        data.qpos[:] = qpos
        mujoco.mj_kinematics(model, data)
        turned = np.roll(recorded["turn"][row], 1, axis=-1)
        turned *= np.sign((turned * data.xquat[bodies]).sum(axis=1, keepdims=True))  # q and -q are the same rotation
        errors[row, :, 0] = np.linalg.norm(data.xpos[bodies] - recorded["place"][row], axis=1)
        errors[row, :, 1] = np.linalg.norm(data.xquat[bodies] - turned, axis=1)
    return errors


def _body(model: Any, name: str) -> int:
    (body,) = (index for index in range(model.nbody) if model.body(index).name.endswith(f"_{name}"))
    return int(body)
