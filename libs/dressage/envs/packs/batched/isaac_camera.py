"""A camera of Isaac Lab's simulator that draws recorded states. Runs in the process of its pack only.

On Newton its ray tracer draws, on a CPU too. On PhysX it is Isaac Sim's renderer, which needs a GPU and has not been tried.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from dressage.envs.state import Array

_NAME = "dressage_camera"
_FIELD_OF_VIEW = 45.0
"""Vertical, in degrees: MuJoCo's default, so that both kinds of drawing show the same."""
_FOCAL_LENGTH = 24.0
_NEAR, _FAR = 0.05, 200.0
_AZIMUTH, _ELEVATION = 90.0, -20.0
_SLACK = 0.3
_POSE = 7


class Camera:
    """Draws the first articulation of an environment of one row, from a view in MuJoCo's words.

    :param width: pixels.
    :param height: pixels.
    :param view: ``distance`` in metres; ``azimuth`` and ``elevation`` in degrees; ``lookat``, the point in view, in metres
        from the origin of the environment. A robot with a free base is followed instead.
    """

    def __init__(self, *, width: int, height: int, view: Mapping[str, Any]) -> None:
        self._width, self._height = width, height
        self._distance = float(view["distance"])
        self._forward = direction(float(view.get("azimuth", _AZIMUTH)), float(view.get("elevation", _ELEVATION)))
        self._lookat = np.array(view.get("lookat", (0.0, 0.0, 0.0)), np.float64)
        self._middle: float | None = None
        self._env: Any = None

    def add_to(self, config: Any) -> None:
        """Add the camera to a task's configuration, before the environment is made."""
        import isaaclab.sim as sim_utils
        from isaaclab.sensors import CameraCfg

        aperture = 2.0 * _FOCAL_LENGTH * math.tan(math.radians(_FIELD_OF_VIEW) / 2) * self._width / self._height
        lens = sim_utils.PinholeCameraCfg(
            focal_length=_FOCAL_LENGTH, horizontal_aperture=aperture, clipping_range=(_NEAR, _FAR)
        )
        renderer: dict[str, Any] = {}
        if type(getattr(config.sim, "physics", None)).__module__.startswith("isaaclab_newton"):
            from isaaclab_newton.renderers import NewtonWarpRendererCfg

            config.sim.physics.load_visual_shapes = True
            renderer["renderer_cfg"] = NewtonWarpRendererCfg()
        camera = CameraCfg(
            prim_path=f"{{ENV_REGEX_NS}}/{_NAME}",
            width=self._width,
            height=self._height,
            data_types=["rgb"],
            spawn=lens,
            update_period=0.0,
            **renderer,
        )
        setattr(config.scene, _NAME, camera)

    def attach(self, env: Any, *, device: str) -> None:
        """Use the environment that was made from the configuration, after its first reset."""
        self._env, self._device = env, device
        (self._robot,) = env.scene.articulations.values()
        self._origin = np.asarray(_cpu(env.scene.env_origins), np.float64)[0]

    @property
    def free_base(self) -> bool:
        """Whether the robot has a free base."""
        return not self._robot.is_fixed_base

    @property
    def position_size(self) -> int:
        """Numbers of `draw`'s positions: those of the joints, after position and quaternion of a free base."""
        return (_POSE if self.free_base else 0) + len(self._robot.joint_names)

    def draw(self, positions: Array, *, aim: bool = True) -> Array:
        """Return the image (H, W, 3) uint8 of a state.

        :param positions: (position_size,), the base's position from the origin of the environment.
        :param aim: whether to point the camera at the robot; False: it does not move.
        """
        joints = positions[_POSE:] if self.free_base else positions
        if self.free_base:
            pose = np.concatenate([positions[:3] + self._origin, positions[3:_POSE]])
            self._robot.write_root_pose_to_sim_index(root_pose=self._row(pose))
        self._robot.write_joint_position_to_sim_index(position=self._row(joints))
        camera = self._env.scene.sensors[_NAME]
        if aim:
            target = self._target(positions) + self._origin
            eye = target - self._distance * self._forward
            camera.set_world_poses_from_view(self._row(eye), self._row(target))
        self._env.scene.write_data_to_sim()
        self._env.sim.forward()
        self._env.sim.render()
        camera.update(0.0, force_recompute=True)
        image: Array = np.array(_cpu(camera.data.output["rgb"])[0, ..., :3], np.uint8)
        return image

    def _target(self, positions: Array) -> Array:
        if not self.free_base:
            return self._lookat
        x, y, z = positions[:3]
        self._middle = z if self._middle is None else self._middle
        slack = _SLACK * self._distance * math.tan(math.radians(_FIELD_OF_VIEW) / 2)
        return np.array([x, y, min(max(self._middle, z - slack), z + slack)])

    def _row(self, values: Array) -> Any:
        import torch

        return torch.as_tensor(values[None], dtype=torch.float32, device=self._device)


def direction(azimuth: float, elevation: float) -> Array:
    """Return the unit vector (3,) in which a camera looks, see MuJoCo's ``mjvCamera``.

    :param azimuth: degrees from the x axis, about z.
    :param elevation: degrees above the horizontal plane.
    """
    turn, rise = math.radians(azimuth), math.radians(elevation)
    return np.array([math.cos(turn) * math.cos(rise), math.sin(turn) * math.cos(rise), math.sin(rise)])


def tensor_of(array: Any) -> Any:
    """Return a tensor that shares the memory of one of Isaac Lab's arrays."""
    return array.torch if hasattr(array, "torch") else array


def _cpu(array: Any) -> Any:
    return tensor_of(array).detach().cpu().numpy()
