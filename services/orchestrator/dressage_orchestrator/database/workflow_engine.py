"""The engine of DBOS's database on SQLite.

DBOS retries after locks and lost connections, but not after a full disk: the workflow's thread ends, and its row remains
PENDING until the server restarts. This engine reports such errors as lost connections.
"""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from dressage.artifacts.atomic import make_private_file

from dressage_orchestrator.database.driver_errors import is_transient

_BUSY_MILLISECONDS = 5_000  # DBOS retries after that, with pauses
POOL_SIZE = 4
"""Connections of DBOS, on PostgreSQL too. SQLite has one writer at a time. Further threads wait in the pool, in their order.
More connections would poll its lock, and some do not get it within the limit while fifty sessions run."""

POOL_SECONDS = 600.0
_SUBSECONDS = (3, 42)
"""The first version of SQLite whose ``unixepoch`` has ``subsec``. Debian 12 and Ubuntu 22.04 have older ones, and DBOS's
tables use it on Python 3.12 and newer."""


def make_workflow_engine(url: str) -> sa.Engine:
    """Create an engine for DBOS's setting ``system_database_engine``; the caller disposes of it after DBOS has ended.

    :param url: URL of an SQLite file.
    """
    make_private_file(Path(str(sa.make_url(url).database)))
    # Parameters contain results of steps, which must not be logged.
    engine = sa.create_engine(url, hide_parameters=True, pool_size=POOL_SIZE, max_overflow=0, pool_timeout=POOL_SECONDS)

    @sa.event.listens_for(engine, "connect")
    def _prepare(connection: Any, _: Any) -> None:
        if sqlite3.sqlite_version_info < _SUBSECONDS:
            connection.create_function("unixepoch", 1, _unixepoch)
        connection.isolation_level = "IMMEDIATE"  # as in the engines that DBOS creates
        connection.execute(f"PRAGMA busy_timeout={_BUSY_MILLISECONDS}")
        connection.execute("PRAGMA journal_mode=WAL")  # polling by DBOS does not wait for writers
        # A recorded step is not repeated. The rows that it changed are synced before it is recorded (`Database.sync`).
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")

    @sa.event.listens_for(engine, "handle_error")
    def _repeat(context: sa.engine.ExceptionContext) -> None:
        if is_transient(context.original_exception):
            context.is_disconnect = True  # `dbos._sys_db.db_retry` then retries, as on PostgreSQL

    return engine


def _unixepoch(modifier: str) -> float | None:
    """Return the seconds since 1970, as ``unixepoch('subsec')`` of newer versions does."""
    return round(time.time(), 3) if modifier == "subsec" else None
