"""Scratch folders of sandboxed processes: their size, and their removal.

A process owns its folder, so what is in there is as hostile as its code: folders nested deeper than a path may be long,
folders that cannot be read, files that claim more bytes than they use.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

_MAX_FILES = 20_000
_MAX_DEPTH = 64


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
                        facts = entry.stat(follow_symlinks=False)
                        total += max(facts.st_blocks * 512, facts.st_size)
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
