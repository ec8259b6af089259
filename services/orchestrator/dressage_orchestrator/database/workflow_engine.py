"""The engine of the file that DBOS records workflows in, on SQLite.

DBOS repeats what met a lock or a lost connection, but not what met a full disk: the workflow's thread ends, and its row
stays PENDING until the server starts again. Here such errors count as lost connections.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from dressage_orchestrator.database.driver_errors import is_transient

_BUSY_MILLISECONDS = 5_000  # DBOS repeats after that, with pauses
_POOL_SIZE = 8


def make_workflow_engine(url: str) -> sa.Engine:
    """Make an engine for the setting ``system_database_engine`` of DBOS; the caller disposes of it after DBOS has ended.

    :param url: of an SQLite file.
    """
    # Parameters hold what steps returned; they do not belong into logs.
    engine = sa.create_engine(url, hide_parameters=True, pool_size=_POOL_SIZE, max_overflow=_POOL_SIZE)

    @sa.event.listens_for(engine, "connect")
    def _prepare(connection: Any, _: Any) -> None:
        connection.isolation_level = "IMMEDIATE"  # as DBOS sets it for engines of its own
        connection.execute(f"PRAGMA busy_timeout={_BUSY_MILLISECONDS}")
        connection.execute("PRAGMA journal_mode=WAL")  # so that DBOS's polling does not wait for writers
        connection.execute("PRAGMA foreign_keys=ON")

    @sa.event.listens_for(engine, "handle_error")
    def _repeat(context: sa.engine.ExceptionContext) -> None:
        if is_transient(context.original_exception):
            context.is_disconnect = True  # which `dbos._sys_db.db_retry` waits out, as on PostgreSQL

    return engine
