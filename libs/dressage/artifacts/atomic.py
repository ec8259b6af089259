"""Atomic writes: after a crash, and for every reader, a file has its old contents or its new ones.

Files and the folders made for them are private to their owner: artifacts hold intents, code and replies.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

TEMPORARY_PREFIX = ".tmp-"
"""Prefix of temporary files; no key begins with it."""

_CHUNK = 1 << 20


PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700
"""Modes of files and folders that only their owner may read."""


def make_private_folder(folder: Path) -> None:
    """Make a folder and its missing parents, readable only by their owner; existing ones keep their modes."""
    if not folder.is_dir():
        if folder.parent != folder:
            make_private_folder(folder.parent)
        folder.mkdir(exist_ok=True, mode=PRIVATE_FOLDER)


def make_private_file(path: Path) -> None:
    """Create a file if it is missing, and make it readable only by its owner.

    :raises PermissionError: for a file of another user.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        os.fchmod(descriptor, PRIVATE_FILE)
    finally:
        os.close(descriptor)


def write(path: Path, fill: Callable[[BinaryIO], None], *, if_absent: bool = False, synced: bool = True) -> bool:
    """Fill a temporary file in the folder of ``path``, sync it, then rename it to ``path``.

    :param if_absent: do not replace an existing file (decided atomically, by a hard link).
    :param synced: False: without syncs. A power failure may then lose the file or its contents; a crash of the process may not.
    :return: whether the file was written.
    """
    make_private_folder(path.parent)
    # In the same folder: a rename from another file system is a copy, of which readers see a part.
    descriptor, name = tempfile.mkstemp(prefix=TEMPORARY_PREFIX, dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            fill(file)
            file.flush()
            # An explicit mode: a umask would also change what a caller's own program writes (decision 0054).
            os.fchmod(file.fileno(), PRIVATE_FILE)
            if synced:  # what was promised survives a power failure (decision 0053)
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


class SizeDiffers(Exception):
    """A file does not have the size that it was to have."""


def copy(source: Path, path: Path, *, if_absent: bool = False, size: int | None = None) -> bool:
    """Write the contents of another file; see `write`.

    :param size: in bytes, which the source must have; None: any.
    :raises SizeDiffers: before more than the size is written.
    """

    def fill(file: BinaryIO) -> None:
        left = size
        with source.open("rb") as opened:
            while data := opened.read(_CHUNK):
                if left is not None and len(data) > left:
                    raise SizeDiffers
                file.write(data)
                left = None if left is None else left - len(data)
        if left:
            raise SizeDiffers

    return write(path, fill, if_absent=if_absent)


def _sync_directory(directory: Path) -> None:
    # Without this, a power failure may lose the rename although the contents are on disk.
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
