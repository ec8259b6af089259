"""Poses of all visible shapes of a recorded trajectory, with which a page draws it in 3D without a simulator.

A file is an ``.npz`` of plain arrays and one JSON entry, ``schema``, which describes the shapes. The console's page computes
the same by MuJoCo's WebAssembly if that can load the model (``services/console/web/src/scene/engine.ts``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from dressage.envs.trajectory import Trajectory
from dressage.errors import ResourceExhausted

from dressage_renderer.stage import is_flat, stock_model, travels

FORMAT = "dressage.poses/1"
_KINDS = ("plane", "hfield", "sphere", "capsule", "ellipsoid", "cylinder", "box", "mesh")
_GROUPS = 3
"""Shapes of further groups are collision shapes and the like, which MuJoCo's viewer does not show either."""
_RGB_ROLE = 1
_MAX_CONTACTS = 64
_MAX_VALUES = 1 << 24
"""Numbers of all poses together, at most."""


def write_poses(trajectory: Trajectory, path: Path, *, model: Any = None) -> int:
    """Write the poses of a trajectory's states before the first one that is not finite; return the number of states.

    The arrays are ``position`` (T+1, S, 3) in metres, ``rotation`` (T+1, S, 4) as quaternions (x, y, z, w), ``centre``
    (T+1, 3), the robot's centre of mass, ``contact_start`` (T+2,), the first contact of each state, ``contacts`` (N, 6), a
    point in metres and the force on what moves in newtons, and for each mesh ``mesh/I/vertices`` (V, 3) and
    ``mesh/I/faces`` (F, 3).

    :param model: the MuJoCo model; None: that of the trajectory's environment.
    :raises NotFound: for an unknown environment.
    :raises InvalidArgument: for an environment that is not simulated by MuJoCo.
    :raises ResourceExhausted: for more than 16 million numbers.
    """
    scene = _Scene(stock_model(trajectory.environment)[0] if model is None else model)
    bad = np.flatnonzero(~np.isfinite(trajectory.qpos).all(axis=1))
    rows = int(bad[0]) if len(bad) else trajectory.num_steps + 1
    if 7 * rows * scene.shapes > _MAX_VALUES:
        message = f"the poses of {scene.shapes} shapes at {rows} states are too many; the video shows the episode"
        raise ResourceExhausted(message, reason="TOO_MANY_POSES")
    arrays = scene.poses(trajectory, rows)
    for number, (vertices, faces) in enumerate(scene.meshes):
        arrays |= {f"mesh/{number}/vertices": vertices, f"mesh/{number}/faces": faces}
    schema = json.dumps({"format": FORMAT, "environment": trajectory.environment, **scene.description()})
    arrays["schema"] = np.frombuffer(schema.encode(), np.uint8)
    np.savez_compressed(path, allow_pickle=False, **arrays)
    return rows


class _Scene:
    """The visible shapes of a model."""

    def __init__(self, model: Any) -> None:
        import mujoco

        self._mujoco, self._model, self._data = mujoco, model, mujoco.MjData(model)
        self._geoms, self._sites = self._visible("geom", model.ngeom), self._visible("site", model.nsite)
        self._root = int(model.body_rootid[model.jnt_bodyid[0]]) if model.njnt else 0
        self.meshes: list[tuple[npt.NDArray[np.float32], npt.NDArray[np.uint32]]] = []
        self._places: dict[tuple[str, int], int] = {}
        self._shapes = [self._shape("geom", index) for index in self._geoms]
        self._shapes += [self._shape("site", index) for index in self._sites]

    @property
    def shapes(self) -> int:
        """Number of shapes."""
        return len(self._shapes)

    def description(self) -> dict[str, Any]:
        """Return the shapes, and what a camera and arrows of forces need."""
        model = self._model
        moving = float(model.body_mass[model.body_weldid != 0].sum())
        gravity = float(np.linalg.norm(model.opt.gravity)) or 9.81
        return {
            "shapes": self._shapes,
            "meshes": len(self.meshes),
            "travels": travels(model),
            "flat": bool(model.njnt) and is_flat(model),
            "weight": moving * gravity or 1.0,
        }

    def poses(self, trajectory: Trajectory, rows: int) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays of `write_poses`, without meshes. A state's control is the action that follows it."""
        mujoco, model, data = self._mujoco, self._model, self._data
        position = np.zeros((rows, self.shapes, 3), np.float32)
        rotation = np.zeros((rows, self.shapes, 4), np.float32)
        centre, contacts = np.zeros((rows, 3), np.float32), list[npt.NDArray[np.float64]]()
        start, quaternion = np.zeros(rows + 1, np.uint32), np.zeros(4)
        action = trajectory.action
        controlled = action.ndim == 2 and action.shape[1] == model.nu and len(action)
        for row in range(rows):
            mujoco.mj_resetData(model, data)
            data.qpos[:], data.qvel[:] = trajectory.qpos[row], trajectory.qvel[row]
            if controlled:
                data.ctrl[:] = action[min(row, len(action) - 1)]
            mujoco.mj_forward(model, data)
            position[row] = np.concatenate([data.geom_xpos[self._geoms], data.site_xpos[self._sites]])
            for place, matrix in enumerate(np.concatenate([data.geom_xmat[self._geoms], data.site_xmat[self._sites]])):
                mujoco.mju_mat2Quat(quaternion, matrix)
                rotation[row, place] = quaternion[[1, 2, 3, 0]]
            centre[row] = data.subtree_com[self._root]
            contacts += self._contacts()
            start[row + 1] = len(contacts)
        forces = np.array(contacts, np.float32).reshape(-1, 6)
        return {
            "position": position,
            "rotation": rotation,
            "centre": centre,
            "contact_start": start,
            "contacts": forces,
        }

    def _contacts(self) -> Iterator[npt.NDArray[np.float64]]:
        mujoco, model, data = self._mujoco, self._model, self._data
        force = np.zeros(6)
        for index in range(min(data.ncon, _MAX_CONTACTS)):
            contact = data.contact[index]
            mujoco.mj_contactForce(model, data, index, force)
            # Rows of the frame are the normal, from the first geom to the second, and two tangents. The force acts on the
            # second.
            second = int(contact.geom2)
            moves = second >= 0 and model.body_weldid[model.geom_bodyid[second]] != 0
            acting = contact.frame.reshape(3, 3).T @ force[:3]
            yield np.concatenate([contact.pos, acting if moves else -acting])

    def _visible(self, what: str, count: int) -> npt.NDArray[np.int64]:
        groups, kinds = getattr(self._model, f"{what}_group"), getattr(self._model, f"{what}_type")
        in_group = (groups[index] < _GROUPS and kinds[index] < len(_KINDS) for index in range(count))
        indices = [index for index, seen in enumerate(in_group) if seen and self._color(what, index)[3] > 0]
        return np.array(indices, np.int64)

    def _shape(self, what: str, index: int) -> dict[str, Any]:
        model = self._model
        kind, size = _KINDS[getattr(model, f"{what}_type")[index]], getattr(model, f"{what}_size")[index].tolist()
        makers: dict[str, Callable[[int], Any]] = {"hfield": self._height_field, "mesh": self._mesh}
        mesh = -1
        if kind in makers:
            place = (kind, int(model.geom_dataid[index]))
            if place not in self._places:
                self._places[place] = len(self.meshes)
                self.meshes.append(makers[kind](place[1]))
            mesh = self._places[place]
        radius = float(model.geom_rbound[index]) if what == "geom" else max(size)
        color = self._color(what, index)
        kind = "mesh" if kind == "hfield" else kind
        return {"kind": kind, "size": size, "color": color, "mesh": mesh, "radius": radius}

    def _color(self, what: str, index: int) -> list[float]:
        """The colour of a shape: its own, or its material's, times the mean of its texture."""
        model = self._model
        own = getattr(model, f"{what}_rgba")[index].tolist()
        material = int(getattr(model, f"{what}_matid")[index])
        if material < 0:
            return list(map(float, own))
        base = model.mat_rgba[material].tolist() if own == [0.5, 0.5, 0.5, 1.0] else own
        texture, mean = int(model.mat_texid[material][_RGB_ROLE]), np.ones(3)
        if texture >= 0 and model.tex_nchannel[texture] >= 3:
            channels, first = int(model.tex_nchannel[texture]), int(model.tex_adr[texture])
            pixels = int(model.tex_width[texture]) * int(model.tex_height[texture])
            image = model.tex_data[first : first + channels * pixels].reshape(pixels, channels)
            mean = image[:, :3].mean(axis=0) / 255 if pixels else mean
        return [*(float(value) for value in np.array(base[:3]) * mean), float(base[3])]

    def _mesh(self, number: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.uint32]]:
        model = self._model
        vertex, face = int(model.mesh_vertadr[number]), int(model.mesh_faceadr[number])
        vertices = model.mesh_vert[vertex : vertex + int(model.mesh_vertnum[number])]
        faces = model.mesh_face[face : face + int(model.mesh_facenum[number])]
        return vertices.astype(np.float32), faces.astype(np.uint32)

    def _height_field(self, number: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.uint32]]:
        model = self._model
        rows, columns = int(model.hfield_nrow[number]), int(model.hfield_ncol[number])
        half_x, half_y, height = model.hfield_size[number][:3]
        first = int(model.hfield_adr[number])
        heights = model.hfield_data[first : first + rows * columns].reshape(rows, columns) * height
        y, x = np.meshgrid(np.linspace(-half_y, half_y, rows), np.linspace(-half_x, half_x, columns), indexing="ij")
        corner = np.arange(rows * columns).reshape(rows, columns)
        a, b, c, d = (part.ravel() for part in (corner[:-1, :-1], corner[:-1, 1:], corner[1:, 1:], corner[1:, :-1]))
        faces = np.concatenate([np.stack([a, b, c], 1), np.stack([a, c, d], 1)])
        return np.stack([x, y, heights], -1).reshape(-1, 3).astype(np.float32), faces.astype(np.uint32)
