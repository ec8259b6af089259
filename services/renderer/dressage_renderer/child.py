"""The environment variables of a drawing process."""

from __future__ import annotations

import os
import sys

from dressage.envs import custom


def child_environment() -> dict[str, str]:
    """This process's environment, with its import path and with drawing by EGL, one thread per process.

    Secrets of the parent (tokens, keys) are Dressage's own settings and are left out: a drawing process needs none.
    """
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith("DRESSAGE_") or name == custom.VARIABLE
    }
    kept["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    kept["MUJOCO_GL"] = "egl"
    kept["PYTHONUNBUFFERED"] = "1"
    kept.setdefault("OMP_NUM_THREADS", "1")
    return kept
