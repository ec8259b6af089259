"""What Isaac Lab 2.3 on Isaac Sim 5.1 needs besides Isaac Lab 3: an application that is started first, and ids with a version.

Runs in the process of its pack only. It has not been tried with Isaac Sim.
"""

from __future__ import annotations

import os
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dressage.envs.packs.process import ASSET_ROOT

_VERSION = re.compile(r"-v\d+\Z")
_SUFFIX = "-v0"
_FOLDER = "kit"


def is_needed() -> bool:
    """Return whether the installed Isaac Lab is one that runs in Isaac Sim only."""
    return version("isaaclab").startswith("2.")


def start(device: str, *, cameras: bool = False) -> Any:
    """Start Isaac Sim without windows and return its application. It must run before tasks are imported.

    Its caches, data and logs go into the current folder. Where the pack has assets, it takes them instead of NVIDIA's server.

    :param device: in Warp's words: ``cpu`` or ``cuda:0``.
    :param cameras: whether something is drawn.
    """
    from isaaclab.app import AppLauncher

    words = " ".join(kit_arguments())
    return AppLauncher(headless=True, device=device, enable_cameras=cameras, kit_args=words).app


def kit_arguments() -> list[str]:
    """Return the arguments of Omniverse Kit. AppLauncher splits them at spaces."""
    arguments = ["--portable-root", str(Path.cwd() / _FOLDER)]
    if assets := os.environ.get(ASSET_ROOT, ""):
        arguments.append(f"--/persistent/isaac/asset_root/cloud={assets}")
    return arguments


def task_id(env_id: str) -> str:
    """Return the id under which Isaac Lab 2.3 registers an environment of ours, such as ``Isaac-Cartpole-Direct-v0``."""
    return env_id if _VERSION.search(env_id) else f"{env_id}{_SUFFIX}"


def environment_id(registered: str) -> str:
    """Return the id without a version, which Isaac Lab 3 and the cards use."""
    return _VERSION.sub("", registered)
