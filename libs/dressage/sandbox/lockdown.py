"""Locks the current process down, before any import that could start a thread.

Runs in the child only, and imports only a few modules of the standard library.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dressage.sandbox import landlock, seccomp

_PR_SET_PDEATHSIG = 1
_PR_CAPBSET_DROP = 24
_CAPSET = {"x86_64": 126, "aarch64": 91}
_CAPABILITY_VERSION_3 = 0x20080522
_DATA_SLACK = 1 << 30
_PENDING_SIGNALS = 1024

_LIBRARIES = (
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/etc/ld.so.cache",
    "/usr/share/zoneinfo",
)
_KERNEL = (
    "/proc/self",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/sys/devices/system/cpu",
    "/dev/urandom",
)


class _State:
    """Whether this process is a sandboxed one."""

    locked_down = False


def is_locked_down() -> bool:
    """Return whether this process is a sandboxed one, so that it may load code of others."""
    return _State.locked_down


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the thread that started it ends.

    :raises SystemExit: the parent has ended already.
    """
    if platform.system() == "Linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        raise SystemExit("the parent process is gone")


def drop_capabilities() -> None:
    """Give up every capability, so that root inside is an ordinary user that cannot raise its own limits."""
    number = _CAPSET.get(platform.machine())
    if platform.system() != "Linux" or number is None:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in range(64):
        if libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            break  # past the last one, or already without the right to drop
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    if libc.syscall(number, header, (ctypes.c_uint32 * 6)()) != 0:
        raise OSError(ctypes.get_errno(), "capset failed")


def set_limits(limits: Mapping[str, Any]) -> None:
    """Set the kernel's resource limits.

    RLIMIT_NPROC is not set: it counts all processes of the user and does not apply to root. The seccomp filter refuses new
    processes, and the parent counts threads. RLIMIT_DATA refuses private memory well above the limit at once, before
    polling would detect it; its slack covers thread stacks and memory that is reserved but not used. RLIMIT_SIGPENDING
    compares with the signals and timers of all processes of the user: one process must not use up those of the others.
    """
    bounds: list[tuple[int, int]] = [
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, int(limits["file_bytes"])),
        (resource.RLIMIT_NOFILE, int(limits["open_files"])),
        (resource.RLIMIT_DATA, int(limits["memory_bytes"]) + _DATA_SLACK + (int(limits["processes"]) << 23)),
    ]
    if hasattr(resource, "RLIMIT_SIGPENDING"):
        bounds.append((resource.RLIMIT_SIGPENDING, _PENDING_SIGNALS))
    if limits["address_space_bytes"] is not None:
        bounds.append((resource.RLIMIT_AS, int(limits["address_space_bytes"])))
    for which, value in bounds:
        hard = resource.getrlimit(which)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        # The hard limit, too: a process may raise a soft one by itself.
        resource.setrlimit(which, (value, value))
    if limits["cpu_seconds"] is not None:
        seconds = int(limits["cpu_seconds"])
        # SIGXCPU identifies the cause; SIGKILL, two seconds later, ends a program that catches it.
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 2))


def prefer_for_oom_kill() -> None:
    """Ask the kernel to end this process before others when the machine runs out of memory."""
    try:
        Path("/proc/self/oom_score_adj").write_text("1000")
    except OSError as error:
        # It protects other processes and is no security barrier; containers may forbid it.
        print(f"oom_score_adj could not be raised: {error}", file=sys.stderr)


def readable_paths(import_path: Sequence[str]) -> list[Path]:
    """Return the paths that a Python program reads: interpreter, packages, system libraries, parts of /proc and /sys."""
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}
    standard = [Path(prefix) / name for prefix in sorted(prefixes) for name in ("lib", "lib64")]
    return [*standard, *map(Path, import_path), *map(Path, _LIBRARIES), *map(Path, _KERNEL)]


def lock_down(config: Mapping[str, Any]) -> None:
    """Apply everything in ``config`` (see `dressage.sandbox.child`), in the order in which it can be applied.

    :raises OSError: a restriction failed; the caller must end the process.
    """
    die_with_parent(int(config["parent"]))
    # Before Landlock, behind which /proc can only be read.
    prefer_for_oom_kill()
    if config["cpus"] is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, set(config["cpus"]))
    set_limits(config["limits"])
    os.umask(0o077)
    os.chdir(config["scratch"])
    drop_capabilities()
    if config["unsandboxed"]:
        print("warning: running without Landlock and seccomp, as allowed", file=sys.stderr)
        _State.locked_down = True
        return
    paths = [*readable_paths(config["import_path"]), *map(Path, config["read_only"])]
    devices = [Path("/dev/null"), *map(Path, config["devices"])]
    hidden = [Path(path) for path in config["hidden"]]
    landlock.restrict(scratch=Path(config["scratch"]), read_only=paths, devices=devices, hidden=hidden)
    seccomp.install(gpu=bool(config["devices"]))
    _State.locked_down = True
