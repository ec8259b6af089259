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
from dressage.envs.packs.batched import newton_model
from dressage.errors import FailedPrecondition, InvalidArgument

from tests.unit.envs.body_poses import CART_POLE, DATA, pose_errors, write_pack

GO1 = "Mjlab-Velocity-Flat-Unitree-Go1"
ROBOT = """<mujoco><worldbody><body pos="0 0 1"><freejoint/><geom type="sphere" size="0.1" mass="1"/>
<body pos="0.2 0 0"><joint axis="0 1 0"/><geom type="sphere" size="0.05" mass="1"/></body></body></worldbody></mujoco>"""


@pytest.fixture
def mjlab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the robot in a pack that consists of nothing else."""
    monkeypatch.setenv(registry.VARIABLE, str(tmp_path))
    file = tmp_path / "mjlab" / registry.PACKS["mjlab"].models[GO1]
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
        models.load_model("PointMaze_Large-v3")
    assert load_card(GO1).has_video and load_card(CART_POLE).has_video
    assert not load_card("PointMaze_Large-v3").has_video


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


SCENE = """<mujoco><worldbody><geom name="ground" type="plane" size="5 5 5"/>
<body name="rail" pos="0 0 2"><inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>
<geom name="rail_visual" type="box" size="0.1 4 0.1" contype="0" conaffinity="0"/>
<geom name="rail_collision" type="box" size="1 4 1"/>
<body name="cart"><inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/><joint name="/robot/slider" type="slide" axis="0 1 0"/>
<geom name="cart_collision" type="sphere" size="0.2"/>
<body name="pole"><inertial pos="0 0 0.5" mass="0.2" diaginertia="0.02 0.02 0.001"/>
<joint name="/robot/hinge" axis="1 0 0"/></body>
</body></body></worldbody>
<actuator><motor joint="/robot/slider"/></actuator></mujoco>"""


def test_all_bodies_of_a_solvers_model_can_be_seen() -> None:
    """Visible shapes, else those that collide, else the box of the inertia."""
    import mujoco

    shapes = {
        "rail_visual": newton_model.Shape((1.0, 0.0, 0.0)),
        "rail_collision": newton_model.Shape(visible=False),
        "cart_collision": newton_model.Shape((0.0, 1.0, 0.0), visible=False),
    }
    model = mujoco.MjModel.from_xml_string(newton_model.drawable(SCENE, shapes, ["slider", "hinge"]))
    groups = {name: int(model.geom(name).group[0]) for name in ("ground", *shapes)}
    assert groups == {"ground": 0, "rail_visual": 0, "rail_collision": 3, "cart_collision": 0}
    np.testing.assert_allclose(model.geom("rail_visual").rgba, [1, 0, 0, 1])
    (box,) = (geom for geom in range(model.ngeom) if model.geom_bodyid[geom] == model.body("pole").id)
    half = np.sqrt(6 / 0.2 * np.array([0.001, 0.001, 0.039])) / 2
    np.testing.assert_allclose(np.sort(model.geom_size[box]), half, rtol=1e-4)
    np.testing.assert_allclose(model.geom_pos[box], [0, 0, 0.5])
    np.testing.assert_allclose(model.body("pole").mass, 0.2)
    assert (model.nq, model.nu) == (2, 0)


@pytest.mark.parametrize("joints", [["hinge", "slider"], ["slider"], ["slider", "hinge", "third"]])
def test_joints_in_another_order_are_refused(joints: list[str]) -> None:
    with pytest.raises(ValueError, match="the simulator has"):
        newton_model.drawable(SCENE, {}, joints)


def test_the_cart_pole_is_drawn_where_its_simulator_had_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model that Newton wrote for the hand-written asset, and the poses of bodies that it recorded."""
    monkeypatch.setenv(registry.VARIABLE, str(tmp_path))
    write_pack(tmp_path, with_model=False)
    with pytest.raises(FailedPrecondition, match="dressage envs install isaaclab") as missing:
        models.load_model(CART_POLE)
    assert missing.value.reason == "PACK_MODEL_MISSING"
    write_pack(tmp_path)
    model, recorded = models.load_model(CART_POLE), dict(np.load(DATA / "poses.npz"))
    assert pose_errors(model, recorded).max() < 1e-4
    swapped = {**recorded, "joint_positions": recorded["joint_positions"][:, ::-1]}
    assert pose_errors(model, swapped).max() > 0.1
    assert models.view_of(CART_POLE) != models.view_of(GO1)
