"""Models and recorded motion of packs' robots, and the interpreter that a pack is installed for."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dressage.envs import load_card
from dressage.envs.packs import installing, models, registry
from dressage.errors import FailedPrecondition, InvalidArgument

GO1 = "Mjlab-Velocity-Flat-Unitree-Go1"
ROBOT = """<mujoco><worldbody><body pos="0 0 1"><freejoint/><geom type="sphere" size="0.1" mass="1"/>
<body pos="0.2 0 0"><joint axis="0 1 0"/><geom type="sphere" size="0.05" mass="1"/></body></body></worldbody></mujoco>"""


@pytest.fixture
def mjlab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the robot in a pack that consists of nothing else."""
    monkeypatch.setenv(registry.VARIABLE, str(tmp_path))
    file = tmp_path / "mjlab" / registry.PACKAGES / registry.PACKS["mjlab"].models[GO1]
    file.parent.mkdir(parents=True)
    file.write_text(ROBOT)
    (tmp_path / "mjlab" / registry.MARKER).write_text(json.dumps(registry.PACKS["mjlab"].identity))
    return file


def test_the_model_of_a_packs_robot_stands_on_a_floor(mjlab: Path) -> None:
    import mujoco

    model = models.load_model(GO1)
    assert model.nq == 8 and mujoco.mjtGeom.mjGEOM_PLANE in model.geom_type
    mjlab.write_text("<mujoco><nothing/></mujoco>")
    with pytest.raises(FailedPrecondition, match="dressage envs install mjlab --reinstall"):
        models.load_model(GO1)


def test_a_model_needs_its_pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(registry.VARIABLE, str(tmp_path))
    with pytest.raises(FailedPrecondition, match="dressage envs install mjlab"):
        models.load_model(GO1)
    with pytest.raises(InvalidArgument, match="MuJoCo model"):
        models.load_model("Isaac-Cartpole-Direct")
    assert load_card(GO1).has_video and not load_card("Isaac-Cartpole-Direct").has_video


def test_recorded_motion_is_that_of_mujoco(mjlab: Path) -> None:
    """The velocity of the base, in its own frame, becomes the world's, as MuJoCo moves a free joint."""
    import mujoco

    model, rng = models.load_model(GO1), np.random.default_rng(0)
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = rng.normal(size=8), rng.normal(size=7)
    mujoco.mj_normalizeQuat(model, data.qpos)
    mujoco.mj_forward(model, data)
    own = np.zeros(6)
    mujoco.mj_objectVelocity(model, data, mujoco.mjtObj.mjOBJ_XBODY, 1, own, 1)
    raw = {
        "root_position": data.qpos[None, :3],
        "root_quaternion": data.qpos[None, 3:7],
        "joint_positions": data.qpos[None, 7:],
        "root_velocity": own[None, 3:],
        "root_angular_velocity": own[None, :3],
        "joint_velocities": data.qvel[None, 6:],
    }
    positions, velocities = models.motion(raw)
    np.testing.assert_allclose(positions[0], data.qpos)
    np.testing.assert_allclose(velocities[0], data.qvel, atol=1e-12)


@pytest.mark.parametrize("tool", ["uv", ""])
def test_a_pack_is_installed_for_its_own_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str) -> None:
    commands: list[list[str]] = []

    def run(command: list[str], **given: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        target = Path(command[command.index("--target") + 1]) if "--target" in command else tmp_path / "unused"
        target.mkdir(parents=True, exist_ok=True)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setenv(registry.VARIABLE, str(tmp_path / "packs"))
    monkeypatch.setattr(installing, "interpreter", lambda name: f"/opt/{name}/python3.12")
    monkeypatch.setattr(installing.shutil, "which", lambda name: tool or None)
    monkeypatch.setattr(installing.subprocess, "run", run)
    asset = tmp_path / "packs" / "isaaclab" / "assets" / "robot.usd"
    asset.parent.mkdir(parents=True)
    asset.touch()
    installing.install(registry.pack("isaaclab"))
    assert asset.exists()
    if tool:
        assert commands[0][commands[0].index("--python") + 1] == "/opt/isaaclab/python3.12"
    else:
        assert commands[0][:4] == ["/opt/isaaclab/python3.12", "-I", "-m", "venv"]
        assert commands[1][0] == str(Path(commands[0][-1]) / "bin" / "python")
    assert not registry.problem_of("isaaclab")


def test_a_python_without_venv_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(registry.VARIABLE, str(tmp_path))
    monkeypatch.setattr(installing, "interpreter", lambda name: "/bin/false")
    monkeypatch.setattr(installing.shutil, "which", lambda name: None)
    with pytest.raises(FailedPrecondition, match=r"/bin/false makes no virtual environment\. Install its modules venv"):
        installing.install(registry.pack("isaaclab"))
