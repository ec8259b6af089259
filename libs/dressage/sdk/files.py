"""Reading the files that a person names."""

from __future__ import annotations

from pathlib import Path

from dressage import errors

_MAX_SOURCE_BYTES = 262_144


def read_source(path: Path, *, field: str) -> str:
    """The text of a source file.

    :raises InvalidArgument: if it cannot be read, is not UTF-8, exceeds 256 KiB or has nothing in it but white space.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise errors.InvalidArgument(
            field=field, value=str(path), expected=f"a file that can be read ({error.strerror})"
        ) from error
    if len(data) > _MAX_SOURCE_BYTES:
        raise errors.InvalidArgument(field=field, value=f"{len(data)} bytes", expected=f"at most {_MAX_SOURCE_BYTES}")
    try:
        text = data.decode("utf-8-sig")  # some editors begin a file with a mark of its encoding
    except UnicodeDecodeError as error:
        raise errors.InvalidArgument(field=field, value=str(path), expected="UTF-8 text") from error
    if not text.strip():  # an empty text in a message is one that was not given
        raise errors.InvalidArgument(field=field, value=str(path), expected="a file that is not empty")
    return text
