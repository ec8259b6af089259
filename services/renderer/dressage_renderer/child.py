"""The environment variables of a rendering process."""

from __future__ import annotations

import os
import sys

from dressage.envs import custom
from dressage.envs.packs import registry

_FOLDERS = (custom.VARIABLE, registry.VARIABLE)


def child_environment() -> dict[str, str]:
    """Return the variables of this process, with its import path, EGL and one thread.

    Dressage's own settings, which may be secrets (tokens, keys), are left out.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DRESSAGE_") or name in _FOLDERS}
    kept["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    kept["MUJOCO_GL"] = "egl"
    kept["PYTHONUNBUFFERED"] = "1"
    kept.setdefault("OMP_NUM_THREADS", "1")
    return kept
