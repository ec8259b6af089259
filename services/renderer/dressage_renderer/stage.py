"""The scene of an environment: stock model, a camera that follows the robot, and an offscreen EGL context.

Scenes have no shadows, reflections and multisampling: software rendering is about nine times as fast without them, and judges
do not need them. The stock floors end 40 m from the start, and their pattern blurs at speed. Planes are therefore infinite,
with a checker of one-metre squares that makes motion visible.

An EGL context belongs to the thread that creates it: a `Stage` must stay in one thread.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from dressage.envs import custom
from dressage.envs.loading import load_compiled, quiet_loading
from dressage.envs.packs import models
from dressage.envs.packs.registry import PACK_ENVIRONMENT_IDS
from dressage.envs.plain import is_plain
from dressage.errors import FailedPrecondition, InvalidArgument, NotFound
from dressage.installation import install_command

from dressage_renderer.probe import egl_remedy
from dressage_renderer.simulated import SimulatorStage

Frame = npt.NDArray[np.uint8]
Vector = npt.NDArray[np.float64]

_MUJOCO_ONLY = "an environment simulated by MuJoCo"
_MAX_GEOMS = 2000
_DEFAULT_ELEVATION = -20.0
_FROM_ABOVE = -60.0
_LIGHT_SQUARE, _DARK_SQUARE = (206, 214, 220), (150, 163, 175)


def open_stage(env_id: str, *, width: int, height: int, camera: str = "") -> Stage | SimulatorStage:
    """Return what draws the states of an environment: MuJoCo, or the camera of its simulator where there is no model.

    Parameters and errors are those of `Stage` and `SimulatorStage`.
    """
    kind = SimulatorStage if models.drawn_by_simulator(env_id) else Stage
    return kind(env_id, width=width, height=height, camera=camera)


class Stage:
    """Draws states of one environment.

    :param env_id: a Gymnasium id of a MuJoCo environment.
    :param width: pixels.
    :param height: pixels.
    :param camera: name of a camera of the model; empty for one that follows the robot.
    :raises NotFound: for an unknown environment.
    :raises InvalidArgument: for an unknown camera, or an environment that is not simulated by MuJoCo.
    :raises FailedPrecondition: without EGL, with the command that installs it.
    """

    def __init__(self, env_id: str, *, width: int, height: int, camera: str = "") -> None:
        os.environ.setdefault("MUJOCO_GL", "egl")
        import mujoco

        self._mujoco = mujoco
        self.model, view = stock_model(env_id)
        _prepare(self.model, width, height)
        self._data = mujoco.MjData(self.model)
        mujoco.mj_forward(self.model, self._data)
        self._follow: _Follow | None = None
        self._camera = self._choose_camera(camera, view)
        self._gl = open_egl(width, height)
        self._context = mujoco.MjrContext(self.model, mujoco.mjtFontScale.mjFONTSCALE_100)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._context)
        self._viewport = mujoco.MjrRect(0, 0, width, height)
        self._scene = mujoco.MjvScene(self.model, _MAX_GEOMS)
        for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
            self._scene.flags[flag] = False
        self._visible, self._untouched = mujoco.MjvOption(), mujoco.MjvPerturb()
        self._pixels = np.empty((height, width, 3), dtype=np.uint8)

    @property
    def position_size(self) -> int:
        """Generalised positions of a state."""
        return int(self.model.nq)

    def draw(self, qpos: Vector, *, aim: bool = True) -> Frame:
        """Return the image of a state, a new array (H, W, 3).

        :param qpos: (nq,) generalised positions.
        :param aim: whether to point the camera at the robot; False: the camera does not move.
        """
        mujoco, model, data = self._mujoco, self.model, self._data
        data.qpos[:] = qpos
        # Only the steps that an image needs: no collisions, no dynamics.
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        mujoco.mj_camlight(model, data)
        mujoco.mj_tendon(model, data)
        if aim and self._follow is not None:
            self._follow.aim(self._camera, data)
        every = mujoco.mjtCatBit.mjCAT_ALL
        mujoco.mjv_updateScene(model, data, self._visible, self._untouched, self._camera, every, self._scene)
        mujoco.mjr_render(self._viewport, self._scene, self._context)
        mujoco.mjr_readPixels(self._pixels, None, self._viewport, self._context)
        return np.ascontiguousarray(self._pixels[::-1])

    def robot_mask(self) -> npt.NDArray[np.bool_]:
        """Return a mask (H, W) of the pixels of the last image that show neither the floor nor the background."""
        mujoco = self._mujoco
        flags = (mujoco.mjtRndFlag.mjRND_SEGMENT, mujoco.mjtRndFlag.mjRND_IDCOLOR)
        for flag in flags:
            self._scene.flags[flag] = True
        mujoco.mjr_render(self._viewport, self._scene, self._context)
        mujoco.mjr_readPixels(self._pixels, None, self._viewport, self._context)
        for flag in flags:
            self._scene.flags[flag] = False
        numbers = self._pixels[::-1].astype(np.int32) @ np.array([1, 1 << 8, 1 << 16])
        # Colours are segment numbers from 1; 0 is the background.
        robot = np.zeros(self._scene.ngeom + 1, dtype=bool)
        for place in range(self._scene.ngeom):
            geom = self._scene.geoms[place]
            solid = geom.objtype == mujoco.mjtObj.mjOBJ_GEOM and geom.type != mujoco.mjtGeom.mjGEOM_PLANE
            if solid and 0 <= geom.segid < self._scene.ngeom:
                robot[geom.segid + 1] = True
        mask: npt.NDArray[np.bool_] = robot[np.clip(numbers, 0, self._scene.ngeom)]
        return mask

    def between(self, first: Vector, second: Vector, share: float) -> Vector:
        """Return the positions at a share (0 to 1) of the way from one state to the next, along the shortest rotation."""
        if share <= 0:
            return first
        change, positions = np.zeros(self.model.nv), first.copy()
        self._mujoco.mj_differentiatePos(self.model, change, 1.0, first, second)
        self._mujoco.mj_integratePos(self.model, positions, change, share)
        return positions

    def close(self) -> None:
        """Free the graphics context."""
        self._context.free()
        self._gl.free()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _choose_camera(self, name: str, view: Mapping[str, Any]) -> Any:
        mujoco, camera = self._mujoco, self._mujoco.MjvCamera()
        if not name:
            mujoco.mjv_defaultFreeCamera(self.model, camera)
            self._follow = _Follow(self.model, self._data, camera, view)
            return camera
        names = [self.model.camera(index).name for index in range(self.model.ncam)]
        if name not in names:
            listed = ", ".join(filter(None, names)) or "none"
            raise InvalidArgument(field="camera", value=name, expected=f"a camera of the model ({listed}), or empty")
        camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
        camera.fixedcamid = names.index(name)
        return camera


class _Follow:
    """Points the camera at the robot: Gymnasium's default view of the environment, which moves with the robot.

    The stock cameras of HalfCheetah and Ant do not move, so that the robot leaves the image; this camera follows every robot
    that can travel. The height of the camera is constant, so that jumps are visible, until the robot would leave the image.
    """

    def __init__(self, model: Any, data: Any, camera: Any, view: Mapping[str, Any]) -> None:
        body = int(view.get("trackbodyid", 1))
        # The camera follows the whole robot, not one limb. Body 0 is the world, for a robot with a fixed base.
        self._body = int(model.body_rootid[body]) if 0 < body < model.nbody and travels(model) else 0
        camera.distance = float(view.get("distance", model.stat.extent))
        camera.azimuth = float(view.get("azimuth", 90.0))
        camera.elevation = float(view.get("elevation", _FROM_ABOVE if is_flat(model) else _DEFAULT_ELEVATION))
        if not self._body:
            camera.lookat[:] = view.get("lookat", np.median(data.geom_xpos, axis=0))
            return
        x, y, z = data.subtree_com[self._body]
        self._height, reach = _height(model, data, self._body)
        self._above = self._height - z
        camera.lookat[:] = (x, y, self._height)
        half_picture = camera.distance * math.tan(math.radians(model.vis.global_.fovy) / 2)
        # The distance by which the robot may rise or sink before the camera follows, so that it stays in the image.
        self._slack = min(max(0.75 * half_picture - reach, 0.1 * half_picture), 0.45 * half_picture)

    def aim(self, camera: Any, data: Any) -> None:
        """Point the camera at the robot of ``data``."""
        if not self._body:
            return
        x, y, z = data.subtree_com[self._body] + (0.0, 0.0, self._above)
        camera.lookat[:] = (x, y, min(max(self._height, z - self._slack), z + self._slack))


def _height(model: Any, data: Any, body: int) -> tuple[float, float]:
    """Height of a robot's middle, and the distance from there to its highest point, in metres."""
    geoms = model.body_rootid[model.geom_bodyid] == body
    if not geoms.any():
        return float(data.subtree_com[body][2]), 0.0
    heights, radii = data.geom_xpos[geoms, 2], model.geom_rbound[geoms]
    top, bottom = (heights + radii).max(), max(0.0, (heights - radii).min())
    return float(top + bottom) / 2, float(top - bottom) / 2


def stock_model(env_id: str) -> tuple[Any, Mapping[str, Any]]:
    """Return the compiled stock model of a Gymnasium id or of a pack's environment, and the settings of its default camera.

    :raises NotFound: if Gymnasium has no such id.
    :raises InvalidArgument: if it is not simulated by MuJoCo.
    :raises FailedPrecondition: if a package that Gymnasium's MuJoCo environments import is missing, or an environment pack.
    """
    if env_id.startswith(custom.MODEL):
        return load_compiled(custom.folder_of(env_id) / custom.MODEL_FILE), {}
    if models.model_path(env_id):
        return models.load_model(env_id), models.view_of(env_id)
    # A module of the user's own is imported in sandboxes only.
    if is_plain(env_id) or custom.module_of(env_id) or env_id in PACK_ENVIRONMENT_IDS:
        raise InvalidArgument(field="environment", value=env_id, expected=_MUJOCO_ONLY)
    import gymnasium

    try:
        with quiet_loading():
            env = gymnasium.make(env_id.removeprefix(custom.GYMNASIUM))
    except ImportError as error:
        message = f"cannot load {env_id[:60]}: {error}; install the renderer with `{install_command('renderer')}`"
        raise FailedPrecondition(message, reason="RENDERER_NOT_INSTALLED") from error
    except gymnasium.error.UnregisteredEnv as error:
        raise NotFound(f"unknown environment {env_id[:60]!r}: {error}", reason="ENVIRONMENT_NOT_FOUND") from error
    except gymnasium.error.Error as error:
        raise NotFound(
            f"environment {env_id[:60]!r} cannot be created: {error}", reason="ENVIRONMENT_NOT_FOUND"
        ) from error
    try:
        stock: Any = env.unwrapped
        if not hasattr(stock, "model") or not hasattr(stock.model, "nq"):
            raise InvalidArgument(field="environment", value=env_id, expected=_MUJOCO_ONLY)
        return stock.model, dict(stock.mujoco_renderer.default_cam_config or {})
    finally:
        env.close()


def travels(model: Any) -> bool:
    """Whether the robot's root can move freely along the floor: a free joint, or an unlimited slide joint along x."""
    for joint in range(model.njnt):
        kind = int(model.jnt_type[joint])
        if kind == 0 or (kind == 2 and not model.jnt_limited[joint] and abs(model.jnt_axis[joint][0]) > 0.5):
            return True
    return False


def is_flat(model: Any) -> bool:
    """Whether everything moves in the horizontal plane: hinges about z, and slide joints along x and y."""
    hinge, slide = 3, 2
    upright = np.abs(model.jnt_axis[:, 2]) > 0.99
    along = np.abs(model.jnt_axis[:, 2]) < 0.01
    return bool((((model.jnt_type == hinge) & upright) | ((model.jnt_type == slide) & along)).all())


def _prepare(model: Any, width: int, height: int) -> None:
    """Configure the model for fast rendering at a size, on an infinite floor."""
    model.vis.global_.offwidth = width
    model.vis.global_.offheight = height
    model.vis.quality.offsamples = 0
    model.vis.quality.shadowsize = 0
    if model.nlight == 0:
        model.vis.headlight.ambient[:] = 0.35
        model.vis.headlight.diffuse[:] = 0.7
    plane = 0
    for geom in np.flatnonzero(model.geom_type == plane):
        model.geom_size[geom, :2] = 0
        material = int(model.geom_matid[geom])
        if material >= 0:
            _checker(model, material)
            model.geom_rgba[geom] = 1


def _checker(model: Any, material: int) -> None:
    """Repaint a material's flat texture as a checker of one-metre squares."""
    for texture in {int(index) for index in model.mat_texid[material] if index >= 0}:
        height, width = int(model.tex_height[texture]), int(model.tex_width[texture])
        channels, begin = int(model.tex_nchannel[texture]), int(model.tex_adr[texture])
        flat = 0
        if channels < 3 or int(model.tex_type[texture]) != flat:
            continue
        rows, columns = np.arange(height) * 2 // height, np.arange(width) * 2 // width
        even = (rows[:, None] + columns[None, :]) % 2 == 0
        picture = np.full((height, width, channels), 255, dtype=np.uint8)
        picture[:, :, :3] = np.where(even[:, :, None], _LIGHT_SQUARE, _DARK_SQUARE)
        model.tex_data[begin : begin + picture.size] = picture.ravel()
    model.mat_texuniform[material] = True
    model.mat_texrepeat[material] = 0.5
    model.mat_rgba[material] = 1
    model.mat_specular[material] = model.mat_shininess[material] = 0


def open_egl(width: int, height: int) -> Any:
    """Return an offscreen graphics context, current in this thread.

    :raises FailedPrecondition: without EGL, with the command that installs it.
    """
    try:
        from mujoco.egl import GLContext

        context = GLContext(width, height)
        context.make_current()
    except Exception as error:
        # PyOpenGL raises AttributeError, TypeError, GLError or ImportError for a missing library.
        raise FailedPrecondition(egl_remedy(error), reason="EGL_MISSING") from error
    return context
