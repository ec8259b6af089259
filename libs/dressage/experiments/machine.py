"""The machine that produced a result."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_PACKAGES = ("gymnasium", "mujoco", "numpy", "cma", "numba", "stable-baselines3")


def describe(*, server: str = "") -> dict[str, Any]:
    """Return processor, cores, system and versions.

    :param server: address of a server on another machine, which then did the work; empty: this machine did.
    """
    facts = {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {name: installed for name in ("dressage", *_PACKAGES) if (installed := _version(name))},
    }
    return {"server": server, "client": facts} if server else facts


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
