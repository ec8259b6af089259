"""What of an NVIDIA GPU a sandboxed process gets, by allow-list: device files and what the driver's libraries read.

CUDA opens the control device, one device for each GPU and the one of unified memory, and reads the driver's parameters.
Everything else that the driver offers is left out: displays (``nvidia-modeset``), profiling of other processes
(``nvidia-uvm-tools``), links between nodes, and the capabilities that configure or monitor MIG. What this weakens is written in
docs/security.md.

It has been tested with files of these names, not on a GPU.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_DEVICE = re.compile(r"nvidia(ctl|-uvm|[0-9]{1,3})\Z")
_GPU = re.compile(r"nvidia[0-9]{1,3}\Z")
_MIG = re.compile(r"nvidia-cap([0-9]{1,5})\Z")
_MIG_ADMIN = 2
"""Capabilities 1 and 2 configure and monitor MIG; further ones are those of instances."""
_LIBRARIES = ("usr/local/nvidia/lib64", "usr/local/nvidia/lib", "usr/local/cuda/lib64")
"""Where drivers are that are in no system folder, which a sandboxed process reads anyway."""
_FILES = ("proc/driver/nvidia/params", "proc/driver/nvidia/version", "proc/driver/nvidia/gpus", "proc/devices")
_SYSTEM = ("sys/devices/system/node", "sys/bus/pci/devices")


@dataclass(frozen=True)
class GpuAccess:
    """What a process with a GPU gets besides what every sandboxed process has.

    :param devices: device files to read, write and control.
    :param read_only: files and folders to read.
    :param env: variables; CUDA's compiled kernels go into a folder of the process alone.
    """

    devices: tuple[Path, ...]
    read_only: tuple[Path, ...]
    env: tuple[tuple[str, str], ...]


def gpu_access(root: Path = Path("/"), *, lstat: Callable[[Path], os.stat_result] = os.lstat) -> GpuAccess | None:
    """Return what a process needs for the GPUs of this machine or container; None if there are none.

    :param root: folder that holds ``dev``, ``proc``, ``sys`` and ``usr``.
    :param lstat: returns the type of a file.
    """
    devices = tuple(sorted(_devices(root / "dev", lstat)))
    if not any(_GPU.match(path.name) for path in devices):
        return None
    libraries = tuple(root / folder for folder in _LIBRARIES if (root / folder).is_dir())
    read = tuple(root / path for path in (*_FILES, *_SYSTEM) if (root / path).exists())
    env = {"CUDA_CACHE_PATH": ".cuda", "CUDA_CACHE_MAXSIZE": str(1 << 28)}
    if libraries:
        env["LD_LIBRARY_PATH"] = ":".join(map(str, libraries))
    return GpuAccess(devices, (*read, *libraries), tuple(sorted(env.items())))


def _devices(folder: Path, lstat: Callable[[Path], os.stat_result]) -> Iterator[Path]:
    """Yield the device files; a link or a plain file of such a name is none."""
    for path in (*_entries(folder), *_entries(folder / "nvidia-caps")):
        capability = _MIG.match(path.name) if path.parent.name == "nvidia-caps" else None
        allowed = int(capability.group(1)) > _MIG_ADMIN if capability else _DEVICE.match(path.name)
        if allowed and stat.S_ISCHR(lstat(path).st_mode):
            yield path


def _entries(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []
