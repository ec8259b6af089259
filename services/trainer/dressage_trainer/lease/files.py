"""Copy files out of a sandbox with checks, and transfer files to and from the store with grants.

A sandboxed process owns its scratch folder, so the files there are as hostile as the code. Each is opened without
following links, must be a regular file inside the folder and within a size limit, and is copied to a folder of the
supervisor before its name is used again.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from dressage.artifacts.store import Grant
from dressage.artifacts.transfer import download, upload
from dressage.errors import FailedPrecondition, NotFound, PermissionDenied, Unavailable
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, stop_after_delay, wait_random_exponential
from tenacity.stop import stop_base

MAX_FILE_BYTES = 1 << 30
_CHUNK = 1 << 20
# An expired URL is refused once, and the next one works: refusals in a row have another cause.
_REFUSALS = 6
_BATCH_BYTES = 64 << 20
_OUTAGE_SECONDS = 600.0
"""How long a store may be unavailable, as the orchestrator may: a training is worth more than the wait."""


def copy_from_sandbox(source: Path, root: Path, target: Path, *, max_bytes: int = MAX_FILE_BYTES) -> Path:
    """Copy a regular file out of a sandbox's folder.

    :param source: the file, below ``root``.
    :param root: the sandbox's scratch folder.
    :param target: where to copy it; its folder is created.
    :returns: ``target``.
    :raises NotFound: if there is no such file.
    :raises FailedPrecondition: if it is a link, a device, outside of the folder or too large.
    """
    try:
        relative = source.relative_to(root)
    except ValueError:
        raise FailedPrecondition(f"{source.name} is outside of the sandbox", reason="SANDBOX_FILE_REFUSED") from None
    descriptor = _open_below(root, relative.parts)
    with os.fdopen(descriptor, "rb") as reader:
        facts = os.fstat(reader.fileno())
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > max_bytes:
            message = f"{source.name} is no regular file of at most {max_bytes} bytes"
            raise FailedPrecondition(message, reason="SANDBOX_FILE_REFUSED")
        target.parent.mkdir(parents=True, exist_ok=True)
        # The file may grow after its size was read.
        left = max_bytes
        with target.open("wb") as writer:
            while left > 0 and (chunk := reader.read(min(_CHUNK, left))):
                writer.write(chunk)
                left -= len(chunk)
    return target


def _open_below(root: Path, parts: tuple[str, ...]) -> int:
    """Open a file part by part without following a link."""
    if not parts or ".." in parts:
        raise FailedPrecondition("a sandboxed process named a file outside its folder", reason="SANDBOX_FILE_REFUSED")
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in parts[:-1]:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = inner
        # O_NONBLOCK: to open a named pipe would wait for its writer.
        return os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except FileNotFoundError:
        raise NotFound(f"the sandboxed process wrote no {parts[-1]}", reason="SANDBOX_FILE_MISSING") from None
    except OSError as error:
        message = f"{parts[-1]} of the sandboxed process cannot be read: {error.strerror}"
        raise FailedPrecondition(message, reason="SANDBOX_FILE_REFUSED") from None
    finally:
        os.close(folder)


class GrantSource(Protocol):
    """Gives grants for files of an assignment, as `AssignmentContext` does."""

    async def grants(self, *, put: Mapping[str, int] | None = None, get: Sequence[str] = ()) -> dict[str, Grant]:
        """Return a grant by key."""


async def put_files(source: GrantSource, files: Mapping[str, Path]) -> None:
    """Upload files by key (relative to the assignment); each is retried by itself while the store is unavailable."""
    if not files:
        return
    sizes = {key: path.stat().st_size for key, path in files.items()}
    for batch in _batches(sizes):
        grants = await source.grants(put={key: sizes[key] for key in batch})
        for key in batch:
            async for attempt in _retrying():
                with attempt:
                    if attempt.retry_state.attempt_number > 1:  # a presigned URL may have expired meanwhile
                        grants.update(await source.grants(put={key: files[key].stat().st_size}))
                    await asyncio.to_thread(upload, grants[key], files[key])


def _batches(sizes: Mapping[str, int]) -> Iterator[list[str]]:
    """Yield keys whose files are uploaded within the short life of their grants."""
    batch: list[str] = []
    for key, size in sizes.items():
        if batch and sum(sizes[other] for other in batch) + size > _BATCH_BYTES:
            yield batch
            batch = []
        batch.append(key)
    yield batch


async def get_file(source: GrantSource, key: str, path: Path) -> Path:
    """Download one file.

    :param key: relative to the assignment, or a full one below its session.
    :raises NotFound: if there is none.
    """
    async for attempt in _retrying():
        with attempt:
            grants = await source.grants(get=[key])
            path.parent.mkdir(parents=True, exist_ok=True)
            await asyncio.to_thread(download, grants[key], path)
    return path


def _retrying() -> AsyncRetrying:
    return AsyncRetrying(
        # A store refuses a presigned URL that has expired: the next try asks for a new one.
        retry=retry_if_exception_type((Unavailable, PermissionDenied)),
        wait=wait_random_exponential(multiplier=0.5, max=10),
        stop=stop_after_delay(_OUTAGE_SECONDS) | _RefusedInARow(),  # an outage may end, refusals will not
        reraise=True,
    )


class _RefusedInARow(stop_base):
    """Stop after `_REFUSALS` refusals in a row; an outage between two restarts the count."""

    def __init__(self) -> None:
        self._refusals = 0

    def __call__(self, state: RetryCallState) -> bool:
        refused = state.outcome is not None and isinstance(state.outcome.exception(), PermissionDenied)
        self._refusals = self._refusals + 1 if refused else 0
        return self._refusals >= _REFUSALS
