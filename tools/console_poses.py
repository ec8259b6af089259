"""Poses of geoms by the renderer's MuJoCo, with which a test of the console's page compares those of its WebAssembly.

`python tools/console_poses.py` writes them; a test checks that the file is current. The states are recorded ones of every
environment of MuJoCo's, and random ones of a model with a mesh, a height field and an included file. A second file has poses as
the renderer stores them, for the test of what reads them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "services" / "console" / "web" / "tests" / "unit"
TARGET = TESTS / "poses.json"
MODELS = TESTS / "models"
RECORDED = {"Hopper-v5": TESTS / "poses_hopper.npz", "mjcf:cart": TESTS / "poses_cart.npz"}
_FRAMES = 4
_DIGITS = 10


def poses() -> dict[str, Any]:
    """Return, by environment or model file: the states, and what `mj_forward` gives at each."""
    import mujoco
    from dressage.envs.catalogue import catalogue
    from dressage.envs.tasks import SIMULATED_IDS, task
    from dressage.envs.trajectory import load_check_trajectories

    result = {}
    for env_id in SIMULATED_IDS:
        episode = load_check_trajectories(env_id)["untrained"][0]
        rows = np.linspace(0, episode.num_steps - 1, _FRAMES).round().astype(int)
        entry = _entry(task(env_id).load(), episode.qpos[rows], episode.qvel[rows], episode.action[rows])
        result[env_id] = {"file": str(catalogue()[env_id].model_file.relative_to(ROOT)), **entry}
    model = mujoco.MjModel.from_xml_path(str(MODELS / "cart.xml"))
    result["mjcf:cart"] = {"file": str((MODELS / "cart.xml").relative_to(ROOT)), **_entry(model, *_random(model))}
    return result


def _random(model: Any) -> tuple[Any, Any, Any]:
    import mujoco

    generator = np.random.default_rng(3)
    velocity = generator.normal(size=(_FRAMES, model.nv))
    qpos = np.tile(model.qpos0, (_FRAMES, 1))
    for row, change in zip(qpos, velocity, strict=True):
        mujoco.mj_integratePos(model, row, change, 0.5)
    return qpos, velocity, generator.uniform(-1, 1, (_FRAMES, model.nu))


def _entry(model: Any, qpos: Any, qvel: Any, ctrl: Any) -> dict[str, Any]:
    import mujoco

    data, frames = mujoco.MjData(model), []
    for position, velocity, control in zip(qpos, qvel, ctrl, strict=True):
        mujoco.mj_resetData(model, data)
        data.qpos[:], data.qvel[:], data.ctrl[:] = position, velocity, control
        mujoco.mj_forward(model, data)
        frames.append(
            {
                "qpos": position.tolist(),
                "qvel": velocity.tolist(),
                "ctrl": np.asarray(control, dtype=np.float64).tolist(),
                "geom_xpos": _round(data.geom_xpos),
                "geom_xmat": _round(data.geom_xmat),
                "contacts": int(data.ncon),
                "normal_force": float(f"{_normal_force(model, data):.8g}"),
            }
        )
    return {"frames": frames}


def _normal_force(model: Any, data: Any) -> float:
    import mujoco

    force, total = np.zeros(6), 0.0
    for contact in range(data.ncon):
        mujoco.mj_contactForce(model, data, contact, force)
        total += float(force[0])
    return total


def _round(array: Any) -> list[float]:
    values: list[float] = np.asarray(array).ravel().round(_DIGITS).tolist()
    return [value + 0.0 for value in values]


def text() -> str:
    """Return the file: an environment a line."""
    lines = (f"{json.dumps(name)}: {json.dumps(entry, separators=(',', ':'))}" for name, entry in poses().items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def write_recorded(targets: dict[str, Path]) -> None:
    """Write the poses of a recorded episode, and of the states of the model with a mesh and a height field."""
    import mujoco
    from dressage.envs.trajectory import Trajectory, load_check_trajectories
    from dressage_renderer.poses import write_poses

    write_poses(load_check_trajectories("Hopper-v5")["untrained"][0], targets["Hopper-v5"])
    model = mujoco.MjModel.from_xml_path(str(MODELS / "cart.xml"))
    qpos, qvel, ctrl = _random(model)
    # The last state has no action of its own.
    cart = Trajectory("mjcf:cart", 0, {}, ctrl[:-1], np.zeros(_FRAMES - 1), False, False, qpos, qvel)
    write_poses(cart, targets["mjcf:cart"], model=model)


if __name__ == "__main__":
    write_recorded(RECORDED)
    TARGET.write_text(text(), "utf-8")
    sys.exit(0)
