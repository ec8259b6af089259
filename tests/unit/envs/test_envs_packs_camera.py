"""The camera of Isaac Lab's simulator: its view against MuJoCo's, and what it writes into a made-up environment."""

from __future__ import annotations

import math
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import mujoco
import numpy as np
import pytest
from dressage.envs.packs.batched.isaac_camera import Camera, direction
from hypothesis import given
from hypothesis import strategies as st

ORIGIN = (10.0, 20.0, 0.0)


@given(azimuth=st.floats(-360, 360), elevation=st.floats(-89, 89))
def test_the_view_is_that_of_mujocos_camera(azimuth: float, elevation: float) -> None:
    model = mujoco.MjModel.from_xml_string("<mujoco><worldbody><geom size='1'/></worldbody></mujoco>")
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    camera, scene = mujoco.MjvCamera(), mujoco.MjvScene(model, 10)
    camera.azimuth, camera.elevation = azimuth, elevation
    every = mujoco.mjtCatBit.mjCAT_ALL
    mujoco.mjv_updateScene(model, data, mujoco.MjvOption(), mujoco.MjvPerturb(), camera, every, scene)
    np.testing.assert_allclose(direction(azimuth, elevation), scene.camera[0].forward, atol=1e-5)


class Sensor:
    """A camera whose image has the colour of the number of its updates."""

    def __init__(self) -> None:
        self.views: list[tuple[list[float], list[float]]] = []
        self.updates = 0
        self.data = SimpleNamespace(output={})

    def set_world_poses_from_view(self, eyes: Any, targets: Any) -> None:
        self.views.append((eyes[0].tolist(), targets[0].tolist()))

    def update(self, dt: float, force_recompute: bool) -> None:
        self.updates += 1
        image = sys.modules["torch"].full((1, 4, 6, 3), self.updates, dtype=sys.modules["torch"].uint8)
        self.data.output["rgb"] = image


def made_up(*, fixed: bool) -> Any:
    """An environment with a robot of two joints, at an origin of its own."""
    torch = pytest.importorskip("torch")
    written: dict[str, Any] = {}
    robot = SimpleNamespace(
        is_fixed_base=fixed,
        joint_names=["hip", "knee"],
        write_joint_position_to_sim_index=lambda position: written.update(joints=position[0].tolist()),
        write_root_pose_to_sim_index=lambda root_pose: written.update(root=root_pose[0].tolist()),
    )
    scene = SimpleNamespace(
        articulations={"robot": robot},
        env_origins=torch.tensor([ORIGIN]),
        sensors={"dressage_camera": Sensor()},
        write_data_to_sim=lambda: None,
    )
    return SimpleNamespace(scene=scene, sim=SimpleNamespace(forward=lambda: None, render=lambda: None), written=written)


def test_a_fixed_robot_is_seen_from_its_view() -> None:
    env, view = made_up(fixed=True), {"distance": 5.0, "azimuth": 180.0, "elevation": 0.0, "lookat": (0.0, 0.0, 2.0)}
    camera = Camera(width=6, height=4, view=view)
    camera.attach(env, device="cpu")
    assert (camera.position_size, camera.free_base) == (2, False)
    image = camera.draw(np.array([0.25, 0.5]))
    assert image.shape == (4, 6, 3) and image.dtype == np.uint8 and (image == 1).all()
    assert env.written == {"joints": [0.25, 0.5]}
    ((eye, target),) = env.scene.sensors["dressage_camera"].views
    np.testing.assert_allclose([eye, target], [[15.0, 20.0, 2.0], [10.0, 20.0, 2.0]], atol=1e-5)


def test_a_robot_with_a_free_base_is_followed() -> None:
    env = made_up(fixed=False)
    camera = Camera(width=6, height=4, view={"distance": 2.0, "azimuth": 90.0, "elevation": 0.0})
    camera.attach(env, device="cpu")
    assert (camera.position_size, camera.free_base) == (9, True)
    turned = [0.0, 0.0, 0.0, 1.0]
    for x, z in ((0.0, 0.5), (3.0, 0.5), (3.0, 5.0)):
        camera.draw(np.array([x, 1.0, z, *turned, 0.25, 0.5]))
    assert env.written["root"] == [13.0, 21.0, 5.0, *turned]
    views = np.array(env.scene.sensors["dressage_camera"].views)
    np.testing.assert_allclose(views[:2, 1], [[10.0, 21.0, 0.5], [13.0, 21.0, 0.5]], atol=1e-5)
    assert views[2, 1, 2] == pytest.approx(5.0 - 0.3 * 2.0 * math.tan(math.pi / 8))  # it stays in the image
    np.testing.assert_allclose(views[:, 1] - views[:, 0], [[0.0, 2.0, 0.0]] * 3, atol=1e-5)
    camera.draw(np.array([9.0, 1.0, 0.5, *turned, 0.25, 0.5]), aim=False)
    assert len(env.scene.sensors["dressage_camera"].views) == 3


def test_newtons_ray_tracer_draws_on_newton_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def record(**given: Any) -> Any:
        return SimpleNamespace(**given)

    sim, sensors, renderers = (
        ModuleType(name) for name in ("isaaclab.sim", "isaaclab.sensors", "isaaclab_newton.renderers")
    )
    sim.PinholeCameraCfg, sensors.CameraCfg, renderers.NewtonWarpRendererCfg = record, record, record  # type: ignore[attr-defined]
    package = ModuleType("isaaclab")
    package.sim = sim  # type: ignore[attr-defined]
    for module in (package, ModuleType("isaaclab_newton"), sim, sensors, renderers):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    newton = type("NewtonCfg", (), {"__module__": "isaaclab_newton.physics", "load_visual_shapes": False})
    camera = Camera(width=200, height=100, view={"distance": 2.0})
    for physics, traced in ((newton(), True), (None, False)):
        config = SimpleNamespace(sim=SimpleNamespace(physics=physics), scene=SimpleNamespace())
        camera.add_to(config)
        added = config.scene.dressage_camera
        assert hasattr(added, "renderer_cfg") == traced and (not traced or physics.load_visual_shapes)
        assert (added.width, added.height) == (200, 100)
        lens = added.spawn
        vertical = lens.horizontal_aperture * added.height / added.width
        assert 2 * math.degrees(math.atan(vertical / 2 / lens.focal_length)) == pytest.approx(45.0)
