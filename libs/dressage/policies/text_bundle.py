"""Reading and writing bundles whose files are texts: a folder, or one ``.zip`` file with the same names."""

from __future__ import annotations

import io
import os
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from dressage.errors import InvalidArgument, NotFound
from dressage.policies.bundle import write_file

MAX_BYTES = 1 << 20
"""Largest file of such a bundle."""


def save_texts(path: str | os.PathLike[str], files: Mapping[str, str]) -> Path:
    """Write files as a folder, or as one file if the name ends in ``.zip``.

    :returns: the folder or the file.
    """
    target = Path(path)
    if target.suffix == ".zip":
        target.parent.mkdir(parents=True, exist_ok=True)
        write_file(target, zip_texts(files))
        return target
    target.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        write_file(target / name, text.encode())
    return target


def zip_texts(files: Mapping[str, str]) -> bytes:
    """Return files as the contents of a ``.zip`` file."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return buffer.getvalue()


def read_folder(folder: Path, names: Sequence[str]) -> list[bytes]:
    """Return the contents of files.

    :raises NotFound: if one is missing.
    :raises InvalidArgument: if one cannot be read or is too large.
    """
    try:
        return [_read(folder / name) for name in names]
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFound(f"no policy bundle in {folder}: {Path(error.filename).name} is missing") from error
    except OSError as error:
        name = Path(error.filename).name
        raise InvalidArgument(f"{error.filename}: cannot be read ({error.strerror})", field=name) from error


def read_zip(data: bytes, names: Sequence[str], *, name: str, kind: str) -> list[bytes]:
    """Return the contents of files in a ``.zip`` file.

    :param name: how errors name it.
    :param kind: what it should be, for errors.
    :raises InvalidArgument: where it is no such file, or a file is too large.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for member in names:
                _check_size(member, archive.getinfo(member).file_size)
            return [archive.read(member) for member in names]
    except (zipfile.BadZipFile, KeyError, NotImplementedError, RuntimeError, zlib.error) as error:
        message = f"{name}: not a {kind} of Dressage ({error}); expected a .zip file that `save` wrote"
        raise InvalidArgument(message, field=name) from error


def has_file(path: str | os.PathLike[str], name: str) -> bool:
    """Return whether a path is a bundle with this file: its folder, one of its files, or a ``.zip`` file."""
    place = Path(path)
    if place.suffix == ".zip" and place.is_file():
        return zip_has_file(place.read_bytes(), name)
    return ((place if place.is_dir() else place.parent) / name).is_file()


def zip_has_file(data: bytes, name: str) -> bool:
    """Return whether these are the contents of a ``.zip`` file with this file."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return name in archive.namelist()
    except zipfile.BadZipFile:
        return False


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    _check_size(path.name, len(data))
    return data


def _check_size(name: str, size: int) -> None:
    if size > MAX_BYTES:
        value = f"more than {MAX_BYTES} bytes"
        field = name if "." in name else f"card.json {name}"
        raise InvalidArgument(field=field, value=value, expected=f"at most {MAX_BYTES} bytes")
