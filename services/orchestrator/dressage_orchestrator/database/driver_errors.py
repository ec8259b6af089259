"""Which errors of a database driver are retryable, which mean damage, and which are faults of ours.

SQLite reports a full disk and a misspelt column as the same exception class, so the result code decides, not the class.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

import sqlalchemy as sa
from dressage.errors import DressageError, FailedPrecondition, Unavailable

_POSTGRESQL_LOST = (sa.exc.OperationalError, sa.exc.InterfaceError, sa.exc.InternalError)
_READ_ONLY_TRANSACTION = "25006"
_PRIMARY = 0xFF  # an extended result code holds its primary code in its lowest byte

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
"""What to do, by the primary result codes that another attempt may not meet again."""

_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT})
_KEEPS_CONNECTION = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL})


class DatabaseLost(Unavailable):
    """The database did not answer; what was under way may be done again."""

    default_reason = "DATABASE_UNAVAILABLE"


def domain_error(error: sa.exc.SQLAlchemyError, *, read_only: bool = False) -> DressageError | None:
    """Classify an error of SQLAlchemy.

    :param read_only: the error met a read-only transaction: a refused write is then a fault of ours.
    :return: `DatabaseLost` if a later attempt may succeed, `FailedPrecondition` if the file is damaged, None for
        programming errors, which are to be raised as they are.
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
    """Describe an outage in the driver's own words.

    :param remedy: what to do about it, an imperative sentence without its full stop.
    """
    return DatabaseLost(f"cannot use the database: {_words(error)}. {remedy}.")


def ends_connection(error: BaseException | None) -> bool:
    """Whether a connection of SQLite that met this error must not be used again.

    A file that could only be opened for reading stays read-only for as long as it is open, even once it is writable; and
    a file that was moved away is not the one at the path any more.
    """
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return False
    primary = code & _PRIMARY
    return (primary in _REMEDIES or primary in _DAMAGED) and primary not in _KEEPS_CONNECTION


def is_transient(error: BaseException | None) -> bool:
    """Whether SQLite reported something that another attempt may not meet again."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & _PRIMARY in _REMEDIES


def _sqlite_error(error: sa.exc.DBAPIError, orig: sqlite3.Error, *, read_only: bool) -> DressageError | None:
    code = getattr(orig, "sqlite_errorcode", None)
    if code is None or (read_only and code == sqlite3.SQLITE_READONLY):
        return None  # `query_only` refuses a write with just this code; a file system that does has an extended one
    primary = code & _PRIMARY
    if primary in _DAMAGED:
        message = (
            f"the database file is damaged: {_words(error)}. Stop the server, keep a copy of the data folder, and restore "
            "a backup, or salvage the file with `sqlite3 dressage.db .recover`."
        )
        return FailedPrecondition(message, reason="DATABASE_DAMAGED")
    remedy = _REMEDIES.get(primary)
    return None if remedy is None else lost(error, remedy)


def _words(error: sa.exc.SQLAlchemyError) -> str:
    # The driver's own words, without SQLAlchemy's, which show the statement; neither holds the password.
    lines = str(getattr(error, "orig", None) or error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
