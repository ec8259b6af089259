"""Classifies errors of the database drivers as retryable, as damage, or as programming errors.

SQLite raises the same exception class for a full disk and a misspelt column, so errors are classified by the result code.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

import sqlalchemy as sa
from dressage.errors import DressageError, FailedPrecondition, Unavailable

_POSTGRESQL_LOST = (sa.exc.OperationalError, sa.exc.InterfaceError, sa.exc.InternalError)
_READ_ONLY_TRANSACTION = "25006"
_PRIMARY = 0xFF  # the lowest byte of an extended result code is its primary code

_REMEDIES: Mapping[int, str] = {
    sqlite3.SQLITE_BUSY: "Close the other program that has the file open",
    sqlite3.SQLITE_LOCKED: "Close the other program that has the file open",
    sqlite3.SQLITE_PROTOCOL: "Close the other program that has the file open",
    sqlite3.SQLITE_FULL: "Free space on the volume of the data folder",
    sqlite3.SQLITE_IOERR: "Check the disk of the data folder and its free space",
    sqlite3.SQLITE_CANTOPEN: "Check that the data folder exists and that the server may write to it",
    sqlite3.SQLITE_PERM: "Check that the data folder exists and that the server may write to it",
    sqlite3.SQLITE_READONLY: "Make the file and its folder writable for the server",
}
"""Remedies by the primary result codes of retryable errors."""

_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT})
_KEEPS_CONNECTION = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL})


class DatabaseLost(Unavailable):
    """The database is unavailable; the operation may be retried."""

    default_reason = "DATABASE_UNAVAILABLE"


def domain_error(error: sa.exc.SQLAlchemyError, *, read_only: bool = False) -> DressageError | None:
    """Classify an error of SQLAlchemy.

    :param read_only: whether the transaction was read-only; a rejected write is then a programming error.
    :return: `DatabaseLost` if a retry may succeed, `FailedPrecondition` if the file is damaged, None for programming errors,
        which the caller raises unchanged.
    """
    if isinstance(error, sa.exc.TimeoutError):
        return lost(error, "Too many requests wait for a connection; try again later")
    if not isinstance(error, sa.exc.DBAPIError):
        return None
    if isinstance(error.orig, sqlite3.Error):
        return _sqlite_error(error, error.orig, read_only=read_only)
    if read_only and getattr(error.orig, "sqlstate", None) == _READ_ONLY_TRANSACTION:
        return None
    return lost(error) if isinstance(error, _POSTGRESQL_LOST) else None


def lost(error: sa.exc.SQLAlchemyError, remedy: str = "See DATABASE_URL") -> DatabaseLost:
    """Convert an error of the driver to `DatabaseLost`.

    :param remedy: what to do about it, an imperative sentence without a full stop.
    """
    return DatabaseLost(f"cannot use the database: {_driver_message(error)}. {remedy}.")


def ends_connection(error: BaseException | None) -> bool:
    """Whether a connection to SQLite must be closed after this error.

    A file that was opened read-only stays read-only until it is closed, even if it becomes writable; and the open file may no
    longer be the one at its path.
    """
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return False
    primary = code & _PRIMARY
    return (primary in _REMEDIES or primary in _DAMAGED) and primary not in _KEEPS_CONNECTION


def is_transient(error: BaseException | None) -> bool:
    """Whether SQLite reported an error that a retry may not meet."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & _PRIMARY in _REMEDIES


def _sqlite_error(error: sa.exc.DBAPIError, orig: sqlite3.Error, *, read_only: bool) -> DressageError | None:
    code = getattr(orig, "sqlite_errorcode", None)
    if code is None or (read_only and code == sqlite3.SQLITE_READONLY):
        return None  # `query_only` rejects a write with the primary code; a read-only file system has an extended one
    primary = code & _PRIMARY
    if primary in _DAMAGED:
        message = (
            f"the database file is damaged: {_driver_message(error)}. Stop the server, keep a copy of the data folder, "
            "and restore a backup, or salvage the file with `sqlite3 dressage.db .recover`."
        )
        return FailedPrecondition(message, reason="DATABASE_DAMAGED")
    remedy = _REMEDIES.get(primary)
    return None if remedy is None else lost(error, remedy)


def _driver_message(error: sa.exc.SQLAlchemyError) -> str:
    # The message of the driver, without that of SQLAlchemy, which contains the statement; neither contains the password.
    lines = str(getattr(error, "orig", None) or error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
