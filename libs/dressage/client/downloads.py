"""Artifacts onto this machine's disk: whole files only, and never outside the folder that was named.

Each file is written under a temporary name in the same folder and renamed when its size is right, so an interrupted
download leaves nothing that looks like a policy. Keys come from a server, so they are checked like any input.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator
from pathlib import Path, PurePosixPath

from dressage import errors


def relative_path(key: str, prefix: str) -> PurePosixPath | None:
    """The path of an artifact below the folder that its prefix is downloaded to; None if it is not below the prefix.

    A prefix that is the key itself keeps the file's own name. `sessions/ab` does not take `sessions/abc/x` along.

    :raises InvalidArgument: if the key would leave the folder.
    """
    folder = prefix.rstrip("/") + "/"
    if key == prefix:
        rest = PurePosixPath(key).name
    elif key.startswith(folder):
        rest = key.removeprefix(folder)
    else:
        return None
    path = PurePosixPath(rest)
    if not rest or path.is_absolute() or ".." in path.parts or "\\" in rest or "\0" in rest:
        raise errors.InvalidArgument(field="artifact key", value=key, expected="a relative path without '..'")
    return path


async def write_whole(chunks: AsyncIterator[bytes], target: Path, *, size: int) -> None:
    """Writes chunks to a file, which appears under its name only when all bytes are there.

    :raises Unavailable: if another number of bytes came than the artifact has.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        with temporary.open("xb") as file:
            async for chunk in chunks:
                file.write(chunk)
            written = file.tell()
        if written != size:
            raise errors.Unavailable(f"{target.name}: got {written} of {size} bytes; download it again")
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
