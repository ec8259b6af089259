"""Atomic writes: after a crash, and for every reader, a file has its old contents or its new ones."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

TEMPORARY_PREFIX = ".tmp-"
"""Prefix of temporary files; no key begins with it."""


def write(path: Path, fill: Callable[[BinaryIO], None], *, if_absent: bool = False, synced: bool = True) -> bool:
    """Fill a temporary file in the folder of ``path``, sync it, then rename it to ``path``.

    :param if_absent: do not replace an existing file (decided atomically, by a hard link).
    :param synced: False: without syncs. A power failure may then lose the file or its contents; a crash of the process may not.
    :return: whether the file was written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=TEMPORARY_PREFIX, dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            fill(file)
            file.flush()
            os.fchmod(file.fileno(), 0o644)
            if synced:
                os.fsync(file.fileno())
        if if_absent:
            try:
                os.link(name, path)
            except FileExistsError:
                return False
        else:
            os.replace(name, path)
    finally:
        if os.path.exists(name):
            os.unlink(name)
    if synced:
        _sync_directory(path.parent)
    return True


def write_bytes(path: Path, data: bytes, *, if_absent: bool = False, synced: bool = True) -> bool:
    """Write the given bytes; see `write`."""

    def fill(file: BinaryIO) -> None:
        file.write(data)

    return write(path, fill, if_absent=if_absent, synced=synced)


def copy(source: Path, path: Path, *, if_absent: bool = False) -> bool:
    """Write the contents of another file; see `write`."""

    def fill(file: BinaryIO) -> None:
        with source.open("rb") as opened:
            shutil.copyfileobj(opened, file, length=1 << 20)

    return write(path, fill, if_absent=if_absent)


def _sync_directory(directory: Path) -> None:
    # Without this, a power failure may lose the rename although the contents are on disk.
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
