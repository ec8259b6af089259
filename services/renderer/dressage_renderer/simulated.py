"""Draws states by the camera of an environment pack's simulator, where the robot has no MuJoCo model.

The simulator runs in a sandboxed process with the pack's packages. It starts with each video, in tens of seconds, and draws a
few frames a second on a CPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from dressage.envs.packs.registry import PACKS
from dressage.errors import DressageError, InvalidArgument, Unavailable
from dressage.pack_process import last_line, pack_process
from dressage.sandbox.process import SandboxProcess

Frame = npt.NDArray[np.uint8]
Vector = npt.NDArray[np.float64]

_DRAWER = "dressage.envs.packs.batched.drawing:serve"
_SECONDS = 900.0
"""Of one answer; the deadline of the whole video is the pool's."""
_QUATERNION = slice(3, 7)
_BASE = 7


class SimulatorStage:
    """A stage on which the simulator of a pack draws. Its camera follows the robot, and there is no mask of the robot.

    :param env_id: an environment of a pack whose simulator has a camera.
    :raises InvalidArgument: if a camera is named.
    :raises FailedPrecondition: if the pack is not installed.
    :raises Unavailable: ``SIMULATOR_FAILED`` if the simulator ends or answers in another form.
    """

    def __init__(self, env_id: str, *, width: int, height: int, camera: str = "") -> None:
        if camera:
            expected = "empty: the simulator's camera draws this environment, and follows the robot"
            raise InvalidArgument(field="camera", value=camera, expected=expected)
        self._env_id, self._shape = env_id, (height, width, 3)
        (self._pack,) = (pack.name for pack in PACKS.values() if env_id in pack.environments)
        with ExitStack() as stack:
            self._process: SandboxProcess = stack.enter_context(pack_process(self._pack, _DRAWER, with_gpu=True))
            reply = self._ask({"environment": env_id, "width": width, "height": height})
            size, free_base = reply.get("position_size"), reply.get("free_base")
            if type(size) is not int or type(free_base) is not bool or size < (_BASE if free_base else 1):
                raise self._failure("a malformed reply")
            self.position_size, self._free_base = size, free_base
            self._stack = stack.pop_all()

    def draw(self, qpos: Vector, *, aim: bool = True) -> Frame:
        """Return the image of a state, a new array (H, W, 3).

        :param qpos: (position_size,) positions, those of a free base first.
        :param aim: whether to point the camera at the robot; False: the camera does not move.
        """
        image = self._ask({"positions": np.asarray(qpos, np.float64), "aim": aim}).get("image")
        if not isinstance(image, np.ndarray) or image.shape != self._shape or image.dtype != np.uint8:
            raise self._failure("a malformed image")
        return np.array(image)

    def between(self, first: Vector, second: Vector, share: float) -> Vector:
        """Return the positions at a share (0 to 1) of the way from one state to the next."""
        positions: Vector = first + share * (second - first)
        if self._free_base:
            # Opposite quaternions are the same rotation; normalised, the way between two close ones is almost even.
            near = second[_QUATERNION] * (1.0 if first[_QUATERNION] @ second[_QUATERNION] >= 0 else -1.0)
            mixed = first[_QUATERNION] + share * (near - first[_QUATERNION])
            positions[_QUATERNION] = mixed / np.linalg.norm(mixed)
        return positions

    def close(self) -> None:
        """End the simulator."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        try:
            self._process.channel.send(request, timeout=_SECONDS)
            return self._process.channel.recv(timeout=_SECONDS)
        except DressageError as error:
            raise self._failure(last_line(self._process, error)) from error

    def _failure(self, what: str) -> Unavailable:
        message = f"{self._env_id}: the simulator of its environment pack {self._pack} cannot draw it: {what}"
        return Unavailable(message, reason="SIMULATOR_FAILED", metadata={"pack": self._pack})
