"""Whether this machine can draw without a display, and what to install where it cannot."""

from __future__ import annotations

import json
import subprocess
import sys

from dressage_renderer.child import child_environment

EGL_INSTALL_COMMAND = "apt-get install libegl1 libgl1 libopengl0 libgl1-mesa-dri"
"""Installs EGL with a software driver on Debian and Ubuntu."""


def egl_remedy(cause: BaseException | str) -> str:
    """A sentence on missing EGL: what happened, and what to do."""
    told = cause if isinstance(cause, str) else f"{type(cause).__name__}: {cause}"
    short = " ".join(told.split())[:200]
    return f"cannot draw without a display: EGL does not work here ({short}); install it with `{EGL_INSTALL_COMMAND}`"


def probe_egl(*, timeout: float = 60.0) -> str | None:
    """None when pictures can be drawn here, else why not and how to get there.

    Tried in a child process: a faulty driver may crash, and must not take the caller with it.

    :param timeout: seconds to wait for the answer.
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
