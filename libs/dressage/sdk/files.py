"""Reads files that a user names."""

from __future__ import annotations

from pathlib import Path

from dressage import errors

_MAX_SOURCE_BYTES = 262_144


def read_source(path: Path, *, field: str) -> str:
    """Return the text of a source file.

    :raises InvalidArgument: if it cannot be read, is not UTF-8, exceeds 256 KiB or is empty.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise errors.InvalidArgument(
            field=field, problem=f"cannot be read: {error.strerror}", value=str(path), expected="a readable file"
        ) from error
    if len(data) > _MAX_SOURCE_BYTES:
        raise errors.InvalidArgument(
            field=field, problem="too large", value=len(data), expected=f"at most {_MAX_SOURCE_BYTES} bytes"
        )
    try:
        text = data.decode("utf-8-sig")  # some editors write a byte order mark
    except UnicodeDecodeError as error:
        raise errors.InvalidArgument(
            field=field, problem="not UTF-8", value=str(path), expected="UTF-8 text"
        ) from error
    if not text.strip():  # an empty field of a message means that it is not set
        raise errors.InvalidArgument(
            field=field, problem="empty file", value=str(path), expected="a file that is not empty"
        )
    return text
