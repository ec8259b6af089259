"""What the machine offers to this process and its children: memory, and room in a folder.

In a container the control group limits the memory. A sandboxed process must reach its own limit first: then it is known
who used the memory. Otherwise the kernel kills some process, and the cause is unknown.
"""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from dressage.sandbox.limits import GIB, Limits

_RESERVE_BYTES = GIB
"""For the parent and its other children."""
_LEAST_SHARE = 0.5
_LEAST_BYTES = 768 * 2**20
"""A learner uses most of it before it runs generated code. In a container with less, the container is too small, not the code
too large: the kernel ends a process, and the launcher reports it."""


@dataclass(frozen=True)
class Machine:
    """Bounds of all processes of a container or a machine together; None: unknown.

    :param memory_bytes: memory.
    :param scratch_bytes: room for files.
    """

    memory_bytes: int | None = None
    scratch_bytes: int | None = None

    @classmethod
    def here(cls, folder: Path, *, scratch_bytes: int = 0) -> Machine:
        """Return the bounds of this process.

        :param folder: existing folder for files.
        :param scratch_bytes: how large it may become, as a pod's volume has a limit that the file system does not show; 0:
            as large as the file system is.
        """
        return cls(memory_bytes=memory_bytes(), scratch_bytes=scratch_bytes or shutil.disk_usage(folder).total)

    def fit(self, limits: Limits, *, processes: int = 1) -> Limits:
        """Return the limits of one process that exceeds them before it exhausts the machine.

        Memory: all but 1 GiB, or half if that is more, and at least 768 MiB. Files: half, as the parent copies them.

        :param processes: how many such processes run at a time; each gets an equal part.
        """
        changed = {}
        if self.memory_bytes is not None:
            most = max(self.memory_bytes - _RESERVE_BYTES, int(_LEAST_SHARE * self.memory_bytes), _LEAST_BYTES)
            changed["memory_bytes"] = min(limits.memory_bytes, most // processes)
        if self.scratch_bytes is not None:
            most = max(1, int(_LEAST_SHARE * self.scratch_bytes) // processes)
            changed["scratch_bytes"] = min(limits.scratch_bytes, most)
            changed["file_bytes"] = min(limits.file_bytes, most)
        return replace(limits, **changed)


UNKNOWN = Machine()
"""Bounds nothing."""


def memory_bytes(root: Path = Path("/")) -> int | None:
    """Return the memory that this process may use: the least of its control groups' limits and the machine's memory.

    :param root: folder in which ``proc`` and ``sys`` are.
    """
    limits = []
    with contextlib.suppress(OSError, ValueError, IndexError, StopIteration):
        lines = (root / "proc/meminfo").read_text().splitlines()
        limits.append(1024 * int(next(line for line in lines if line.startswith("MemTotal:")).split()[1]))
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers in ("", "memory"):
                base = root / "sys/fs/cgroup" / controllers
                limits += _limits_above(base, path, "memory.limit_in_bytes" if controllers else "memory.max")
    return min(limits, default=None)


def _limits_above(base: Path, path: str, name: str) -> list[int]:
    """Return the limits of a group and of those above it. In a container only the last of them may be visible."""
    limits = []
    for group in [Path(path), *Path(path).parents]:
        with contextlib.suppress(OSError, ValueError):  # no such group here, or "max"
            limits.append(int((base / str(group).lstrip("/") / name).read_text()))
    return limits
