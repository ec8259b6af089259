"""Restricts permanently, by the three system calls of Landlock, which files a process may open.

Everything that the running kernel can restrict is restricted (ABI 1 to 7); rules for folders and files then allow access.
Newer kernels have more rights; requesting only those of the detected ABI keeps one code path for all of them.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import stat
from collections.abc import Collection, Iterable
from pathlib import Path

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every architecture
_CREATE_RULESET_VERSION = 1
_RULE_PATH_BENEATH = 1
_PR_SET_NO_NEW_PRIVS = 38

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _REMOVE_DIR, _REMOVE_FILE = (1 << bit for bit in range(6))
_MAKE_DIR, _MAKE_REG = 1 << 7, 1 << 8
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_NET_BIND_TCP, _NET_CONNECT_TCP = 1 << 0, 1 << 1
_SCOPE_ABSTRACT_UNIX, _SCOPE_SIGNAL = 1 << 0, 1 << 1

_READ = _READ_FILE | _READ_DIR
# No links, sockets, pipes or device nodes: a trusted parent reads this folder later and must find plain files only.
_SCRATCH = _READ | _WRITE_FILE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG | _REFER | _TRUNCATE
_DEVICE = _READ_FILE | _WRITE_FILE | _IOCTL_DEV | _TRUNCATE
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV


class _Ruleset(ctypes.Structure):
    _fields_ = [
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    ]


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32)]


def abi() -> int:
    """Return the Landlock ABI of this kernel, 0 where there is none (older than 5.13, not built in, or not Linux)."""
    if platform.system() != "Linux":
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_CREATE_RULESET_VERSION))
    return max(int(version), 0)


def handled_rights(version: int) -> tuple[int, int, int]:
    """Return what ABI ``version`` can restrict: (file rights, network rights, scopes) as bit masks."""
    files = (1 << 13) - 1
    files |= _REFER if version >= 2 else 0
    files |= _TRUNCATE if version >= 3 else 0
    files |= _IOCTL_DEV if version >= 5 else 0
    network = _NET_BIND_TCP | _NET_CONNECT_TCP if version >= 4 else 0
    scopes = _SCOPE_ABSTRACT_UNIX | _SCOPE_SIGNAL if version >= 6 else 0
    return files, network, scopes


def _check(result: int, action: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{action} failed: {os.strerror(number)}")
    return result


def _add_rule(libc: ctypes.CDLL, ruleset: int, path: Path, access: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EACCES):
            return  # not every system has each of these paths
        raise
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            access &= _FILE_RIGHTS
        rule = _PathBeneath(access, descriptor)
        _check(
            libc.syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.byref(rule), 0),
            f"landlock_add_rule({path})",
        )
    finally:
        os.close(descriptor)


def _add_read_rules(
    libc: ctypes.CDLL, ruleset: int, path: Path, hidden: Collection[Path], above: Collection[Path]
) -> None:
    """Allow reading a path without the hidden ones below it.

    Rules only add rights. A folder that contains a hidden path is therefore only listed, which an import needs, and its
    entries get rules of their own. Links get none: the right of a file is that of the place it is in.

    :param path: without links, as the hidden ones; not below one of them.
    :param above: the folders that contain a hidden path. Sets, since every path of the package is looked up in them.
    """
    if path in hidden:
        return
    if path not in above:
        _add_rule(libc, ruleset, path, _READ)
        return
    _add_rule(libc, ruleset, path, _READ_DIR)
    with os.scandir(path) as entries:
        names = [entry.name for entry in entries if not entry.is_symlink()]
    for name in names:
        _add_read_rules(libc, ruleset, path / name, hidden, above)


def restrict(
    *, scratch: Path, read_only: Iterable[Path], devices: Iterable[Path] = (), hidden: Iterable[Path] = ()
) -> int:
    """Confine the calling thread, and all that it starts, to the given paths. Call it before any other thread exists.

    :param scratch: the one folder to read and write; plain files and folders only.
    :param read_only: files and folders to read; missing ones are skipped.
    :param devices: device files to read, write and control (a GPU's).
    :param hidden: files and folders whose files it may not read, although they are below those of ``read_only``.
    :returns: the ABI in force.
    :raises OSError: the kernel has no Landlock or refused.
    """
    version = abi()
    if version < 1:
        raise OSError(errno.ENOSYS, "this kernel has no Landlock")
    files, network, scopes = handled_rights(version)
    libc = ctypes.CDLL(None, use_errno=True)
    attributes = _Ruleset(files, network, scopes)
    # Older kernels have a shorter structure and accept zeros in the part beyond it.
    ruleset = _check(
        libc.syscall(_CREATE_RULESET, ctypes.byref(attributes), ctypes.c_size_t(ctypes.sizeof(attributes)), 0),
        "landlock_create_ruleset",
    )
    try:
        out_of_sight = frozenset(path.resolve() for path in hidden)
        above = frozenset(parent for path in out_of_sight for parent in path.parents)
        folders = frozenset(path.resolve() for path in read_only)
        for path in folders:
            # The rules of a folder above it cover a path, or hide it.
            if not (out_of_sight | folders).intersection(path.parents):
                _add_read_rules(libc, ruleset, path, out_of_sight, above)
        for path in devices:
            _add_rule(libc, ruleset, path, _DEVICE & files)
        _add_rule(libc, ruleset, scratch, _SCRATCH & files)
        # The kernel requires it of a process without privileges: a setuid program would escape the rules.
        if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_NO_NEW_PRIVS) failed")
        _check(libc.syscall(_RESTRICT_SELF, ruleset, 0), "landlock_restrict_self")
    finally:
        os.close(ruleset)
    return version
