"""Scratch folders of sandboxed processes: their size, and their removal.

A process owns its folder, so what is in there is as hostile as its code: folders nested deeper than a path may be long,
folders that cannot be read, files that claim more bytes than they use, files that were removed and stay open or mapped.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from dressage.sandbox.limits import Limits

_MAX_FILES = 20_000
_MAX_DEPTH = 64
_MAX_MAPS_BYTES = 16 << 20
"""Text of /proc/PID/maps that is read: the kernel allows 65,530 mappings, and a path may fill 4 KiB of each."""
_REMOVED = b" (deleted)\n"


def disk_usage(pid: int, folder: Path, limits: Limits) -> int:
    """Return the bytes of a process's files: those below its folder, and those that it removed and still uses.

    Removed files are counted first, so that a file which is removed meanwhile does not count twice.
    """
    removed = removed_size(pid, folder, limits)
    return removed + scratch_size(folder, limits.scratch_bytes - removed)


def removed_size(pid: int, folder: Path, limits: Limits) -> int:
    """Return the bytes of files of ``folder`` that have no name any more and that a process has open or mapped.

    Only a privileged reader sees the size of a file that is mapped but not open; for others it counts with
    ``limits.file_bytes``, as no file can be larger.
    """
    inside, read = os.fsencode(folder) + b"/", 0
    sizes: dict[int, int] = {}
    with contextlib.suppress(OSError), os.scandir(b"/proc/%d/fd" % pid) as descriptors:
        for entry in descriptors:
            with contextlib.suppress(OSError):  # closed meanwhile
                if os.readlink(entry.path).startswith(inside):
                    facts = os.stat(entry.path)
                    if stat.S_ISREG(facts.st_mode) and facts.st_nlink == 0:
                        sizes[facts.st_ino] = _file_size(facts)
    with contextlib.suppress(OSError), open(f"/proc/{pid}/maps", "rb") as maps:
        for line in maps:
            read += len(line)
            if read > _MAX_MAPS_BYTES:
                return limits.scratch_bytes + 1
            if line.endswith(_REMOVED):
                addresses, _, _, _, inode, path = line.split(None, 5)
                if path.startswith(inside) and int(inode) not in sizes:
                    sizes[int(inode)] = _mapped_size(pid, addresses.decode(), limits.file_bytes)
    return sum(sizes.values())


def _mapped_size(pid: int, addresses: str, otherwise: int) -> int:
    begin, end = (int(address, 16) for address in addresses.split("-"))
    try:
        return _file_size(os.stat(f"/proc/{pid}/map_files/{begin:x}-{end:x}"))
    except OSError:
        return otherwise


def _file_size(facts: os.stat_result) -> int:
    return max(facts.st_blocks * 512, facts.st_size)


def scratch_size(folder: Path, limit: int) -> int:
    """Return the bytes below ``folder``, counting up to ``limit`` or 20,000 entries.

    A file counts with its length or with its bytes on disk, whichever is more: a copy of a sparse file is as large as its
    length. A folder with more entries, deeper than 64 levels or that cannot be read exceeds any limit.
    """
    total = entries = 0
    pending = [(str(folder), 0)]
    while pending and total <= limit:
        path, depth = pending.pop()
        try:
            with os.scandir(path) as listing:
                for entry in listing:
                    entries += 1
                    if entries > _MAX_FILES or depth > _MAX_DEPTH:
                        return max(limit + 1, total)
                    if entry.is_dir(follow_symlinks=False):
                        pending.append((entry.path, depth + 1))
                    else:
                        total += _file_size(entry.stat(follow_symlinks=False))
        except FileNotFoundError:
            continue  # removed meanwhile
        except OSError:
            return max(limit + 1, total)
    return total


def remove_scratch(folder: Path) -> None:
    """Remove a folder with everything below it, however deep it is; what the system refuses to remove stays.

    Its process must have ended. Folders inside are moved up one by one, so that no path becomes long and nothing recurses.
    """
    top = str(folder)
    with contextlib.suppress(OSError):
        os.chmod(top, 0o700)
        number = 0
        while names := _entries(top):
            before = number
            for path in names:
                number = _remove_entry(top, path, number)
            if number == before and len(_entries(top)) >= len(names):
                return  # nothing can be removed
        os.rmdir(top)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as listing:
        return list(listing)


def _remove_entry(top: str, entry: os.DirEntry[str], number: int) -> int:
    """Remove a file, or a folder whose own folders are moved to ``top``; returns the last number used as a name."""
    with contextlib.suppress(OSError):
        if not entry.is_dir(follow_symlinks=False):
            os.unlink(entry.path)
            return number
        with contextlib.suppress(OSError):
            os.rmdir(entry.path)
            return number
        os.chmod(entry.path, 0o700)
        for inner in _entries(entry.path):
            if inner.is_dir(follow_symlinks=False):
                os.chmod(inner.path, 0o700)
                number += 1
                os.rename(inner.path, os.path.join(top, f".removed-{os.getpid()}-{number}"))
            else:
                os.unlink(inner.path)
        os.rmdir(entry.path)
    return number


@contextlib.contextmanager
def scratch_folder(parent: Path | None = None, *, prefix: str = "dressage-") -> Iterator[Path]:
    """Create a folder for a sandboxed process that is removed afterwards, whatever the process left in it."""
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    try:
        yield folder
    finally:
        remove_scratch(folder)
