"""The environment of rendering processes, and whether this machine can render without a display."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from dressage.envs import custom
from dressage.envs.packs import registry

EGL_INSTALL_COMMAND = "apt-get install libegl1 libgl1 libopengl0 libgl1-mesa-dri"
"""Command that installs EGL with a software driver on Debian and Ubuntu."""
_FOLDERS = (custom.VARIABLE, registry.VARIABLE)


def child_environment() -> dict[str, str]:
    """Return the variables of this process, with its import path, EGL and one thread.

    Dressage's own settings, which may be secrets (tokens, keys), are left out.
    """
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("DRESSAGE_") or name in _FOLDERS
    }
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    environment["MUJOCO_GL"] = "egl"
    environment["PYTHONUNBUFFERED"] = "1"
    environment.setdefault("OMP_NUM_THREADS", "1")
    return environment


def egl_remedy(cause: BaseException | str) -> str:
    """Return a message about missing EGL: the cause and the remedy."""
    text = cause if isinstance(cause, str) else f"{type(cause).__name__}: {cause}"
    short = " ".join(text.split())[:200]
    return f"cannot render without a display: EGL does not work here ({short}); install it with `{EGL_INSTALL_COMMAND}`"


def probe_egl(*, timeout: float = 60.0) -> str | None:
    """Check whether this machine can render: None, or a message with the cause and the remedy.

    The check runs in a child process, since a faulty driver may crash its process.

    :param timeout: deadline of the check in seconds.
    """
    command = [sys.executable, "-m", "dressage_renderer.worker", "--probe"]
    try:
        done = subprocess.run(
            command, env=child_environment(), capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        return egl_remedy(f"no answer from the graphics driver within {timeout:g} s")
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        return egl_remedy(f"the probe ended with code {done.returncode}: {done.stderr.strip()[-160:]}")
    fault: str | None = json.loads(lines[-1])["fault"]
    return fault
