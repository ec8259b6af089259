"""Writing a file so that a reader, or a crash, sees the old contents or the new and nothing between."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

TEMPORARY_PREFIX = ".tmp-"
"""Names of files not yet in place begin so; no key does."""


def write(path: Path, fill: Callable[[BinaryIO], None], *, if_absent: bool = False) -> bool:
    """Fills a temporary file beside ``path``, makes it durable, then moves it into place.

    :param if_absent: leave a file that is there as it is (decided atomically, by a hard link).
    :return: whether the file was written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=TEMPORARY_PREFIX, dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            fill(file)
            file.flush()
            os.fchmod(file.fileno(), 0o644)
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
    _sync_directory(path.parent)
    return True


def write_bytes(path: Path, data: bytes, *, if_absent: bool = False) -> bool:
    """`write` of the given bytes."""

    def fill(file: BinaryIO) -> None:
        file.write(data)

    return write(path, fill, if_absent=if_absent)


def copy(source: Path, path: Path, *, if_absent: bool = False) -> bool:
    """`write` of another file's contents."""

    def fill(file: BinaryIO) -> None:
        with source.open("rb") as opened:
            shutil.copyfileobj(opened, file, length=1 << 20)

    return write(path, fill, if_absent=if_absent)


def _sync_directory(directory: Path) -> None:
    # Without this a power cut may forget the rename although the file's bytes are on disk.
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
