"""Allowed commands of the system calls that are many calls in one, for the seccomp filter.

They are what CPython, the C library, numpy, numba, JAX, torch and MuJoCo use. The numbers are the same on both machines, as in
the kernel's headers (``linux/fcntl.h``, ``asm-generic/ioctls.h``, ``linux/prctl.h``, ``asm-generic/mman-common.h``).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

FCNTL: Mapping[str, int] = MappingProxyType(
    {"DUPFD": 0, "GETFD": 1, "SETFD": 2, "GETFL": 3, "SETFL": 4, "DUPFD_CLOEXEC": 1030, "GETPIPE_SZ": 1032}
)
"""No locks and leases, which stop other openers of a file and use memory of the kernel. No SETOWN and SETSIG: asynchronous I/O
can send any signal to any process of the same user. No larger pipes, for which each user has a limit."""

IOCTL: Mapping[str, int] = MappingProxyType(
    {
        "TCGETS": 0x5401, "TCGETS2": 0x802C542A, "TIOCGWINSZ": 0x5413, "FIONREAD": 0x541B, "FIONBIO": 0x5421,
        "FIOCLEX": 0x5451, "FIONCLEX": 0x5450,
    }
)  # fmt: skip
"""No flags of files: to change them needs no descriptor for writing."""
GPU_IOCTL: Mapping[str, int] = MappingProxyType({"UVM_INITIALIZE": 0x30000001, "UVM_DEINITIALIZE": 0x30000002})
"""Of NVIDIA's unified memory, besides its numbers up to `GPU_IOCTL_LAST`."""
GPU_IOCTL_TYPE = ord("F") << 8
"""Type of all requests of NVIDIA's other devices."""
GPU_IOCTL_LAST = 0xFF

PRCTL: Mapping[str, int] = MappingProxyType(
    {
        "GET_DUMPABLE": 3, "SET_NAME": 15, "GET_NAME": 16, "GET_SECCOMP": 21, "CAPBSET_READ": 23, "GET_TIMERSLACK": 30,
        "SET_NO_NEW_PRIVS": 38, "GET_NO_NEW_PRIVS": 39, "SET_THP_DISABLE": 41, "GET_THP_DISABLE": 42, "SVE_GET_VL": 51,
        "GET_SPECULATION_CTRL": 52, "GET_TAGGED_ADDR_CTRL": 56, "SME_GET_VL": 64, "SET_VMA": 0x53564D41,
    }
)  # fmt: skip
"""No SET_PDEATHSIG, by which a process outlives its parent, no SET_DUMPABLE, by which it hides its files from it, and no
SET_PTRACER, by which another process may trace it."""

MADVISE: Mapping[str, int] = MappingProxyType(
    {
        "NORMAL": 0, "RANDOM": 1, "SEQUENTIAL": 2, "WILLNEED": 3, "DONTNEED": 4, "FREE": 8, "DONTFORK": 10, "DOFORK": 11,
        "HUGEPAGE": 14, "NOHUGEPAGE": 15, "DONTDUMP": 16, "DODUMP": 17, "WIPEONFORK": 18, "KEEPONFORK": 19,
        "POPULATE_READ": 22, "POPULATE_WRITE": 23, "COLLAPSE": 25, "GUARD_INSTALL": 102, "GUARD_REMOVE": 103,
    }
)  # fmt: skip
"""No MERGEABLE, which shares pages with neighbours, and no PAGEOUT, which takes pages of shared files from them."""

FADVISE: Mapping[str, int] = MappingProxyType({"NORMAL": 0, "RANDOM": 1, "SEQUENTIAL": 2, "WILLNEED": 3, "NOREUSE": 5})
"""No DONTNEED, which takes pages of shared files from neighbours."""
CLOSE_RANGE: Mapping[str, int] = MappingProxyType({"CLOSE": 0, "CLOEXEC": 4})
"""No UNSHARE: descriptors of a thread of its own would hide files from the parent."""
FALLOCATE: Mapping[str, int] = MappingProxyType({"EXTEND": 0})
"""No KEEP_SIZE: it allocates beyond the limit of a file's size."""
