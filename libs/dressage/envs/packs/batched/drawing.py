"""The simulator's process that draws recorded states by its own camera. Runs in the process of a pack only."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from dressage.envs.packs.batched.stepping import use_kernels
from dressage.envs.packs.models import view_of
from dressage.envs.packs.process import DEVICE
from dressage.envs.state import Array
from dressage.errors import Unavailable


class Drawer(Protocol):
    """Draws states of one environment."""

    @property
    def position_size(self) -> int:
        """Numbers of a state's positions."""
        ...

    @property
    def free_base(self) -> bool:
        """Whether position and quaternion of a base come first."""
        ...

    def draw(self, positions: Array, *, aim: bool = True) -> Array:
        """Return the image (H, W, 3) uint8 of positions (position_size,)."""
        ...


def make(env_id: str, *, width: int, height: int) -> Drawer:
    """Return the camera of an environment's simulator, on the device that ``DRESSAGE_DEVICE`` names (``cpu``).

    :raises ImportError: outside of the pack's process.
    """
    from dressage.envs.packs.batched.isaac_camera import Camera
    from dressage.envs.packs.batched.isaaclab import IsaacSimulator

    use_kernels()
    camera = Camera(width=width, height=height, view=view_of(env_id))
    device = os.environ.get(DEVICE, "cpu")
    IsaacSimulator(env_id, num_envs=1, max_episode_steps=None, device=device, camera=camera).reset(0)
    return camera


def serve(channel: Any) -> None:
    """Sandbox target: draw the states that arrive until the channel closes; the first message names the environment."""
    serve_with(make, channel)


def serve_with(build: Callable[..., Drawer], channel: Any) -> None:
    """As `serve`, with another camera.

    :param build: takes the arguments of `make`.
    """
    try:
        request = channel.recv(timeout=None)
        size = {name: int(request[name]) for name in ("width", "height")}
        drawer = build(str(request["environment"]), **size)
        channel.send({"position_size": drawer.position_size, "free_base": drawer.free_base})
        while True:
            request = channel.recv(timeout=None)
            positions = np.asarray(request["positions"], np.float64)
            channel.send({"image": drawer.draw(positions, aim=bool(request["aim"]))})
    except Unavailable:  # the other side has ended
        return
