"""Errors of the machine, which are no faults of this program: what is exhausted or damaged, and what to do."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator

from dressage.errors import DressageError, FailedPrecondition, ResourceExhausted

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_MEMORY_TEXTS = (
    "Cannot allocate memory",
    "can't start new thread",
    "failed to map segment",
    "std::bad_alloc",
    "out of memory",
)
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_PRIMARY = 0xFF  # the lowest byte of an extended result code is its primary code


def machine_error(error: BaseException) -> DressageError | None:
    """Convert an error that the machine caused, also where it caused another error; None for all others."""
    for each in _chain(error):
        if (converted := _convert(each)) is not None:
            return converted
    return None


def _convert(error: BaseException) -> DressageError | None:
    if isinstance(error, OSError) and error.errno in _FULL:
        place = f" at {error.filename}" if error.filename else ""
        message = f"the disk is full{place}. Free space, or choose another folder (--data-dir, TMPDIR)"
        return ResourceExhausted(message, reason="DISK_FULL")
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return ResourceExhausted("too many files are open. Raise the limit (ulimit -n)", reason="TOO_MANY_OPEN_FILES")
    if isinstance(error, OSError) and error.errno == errno.EROFS:
        place = f" at {error.filename}" if error.filename else ""
        message = f"the file system{place} is read-only. Choose another folder (--data-dir, TMPDIR)"
        return FailedPrecondition(message, reason="READ_ONLY_FILE_SYSTEM")
    if _is_memory(error):
        message = (
            "the process cannot get more memory or threads. Raise its limits (ulimit -v, ulimit -u, the container's memory) or "
            "end other programs"
        )
        return ResourceExhausted(message, reason="OUT_OF_MEMORY")
    if isinstance(error, sqlite3.Error):
        code = (getattr(error, "sqlite_errorcode", None) or 0) & _PRIMARY
        if code == sqlite3.SQLITE_FULL:
            return ResourceExhausted("the disk of the data folder is full. Free space", reason="DISK_FULL")
        if code in _DAMAGED:
            message = (
                f"a database of the data folder is damaged: {error}. `dressage doctor` names the file. Stop the server, keep a "
                "copy of the data folder, and restore a backup, or salvage the file with `sqlite3 FILE .recover`"
            )
            return FailedPrecondition(message, reason="DATABASE_DAMAGED")
    return None


def _is_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    # Of extension modules and of the interpreter, which have no class of error for it.
    return isinstance(error, ImportError | RuntimeError | OSError) and any(text in str(error) for text in _MEMORY_TEXTS)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, those of its group, and those that caused it, each once."""
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        waiting += [each.__context__, each.__cause__, getattr(each, "orig", None)]
        if isinstance(each, BaseExceptionGroup):
            waiting += each.exceptions
