"""Brings a database to the tables of this version: `python -m dressage_orchestrator migrate`, or at a server's start.

Any number of servers may try at once: on PostgreSQL one of them holds an advisory lock and the others find it done; on
SQLite the data folder has one server. A database of a newer version is left alone and refused.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from dressage.errors import FailedPrecondition, Unavailable

LOCK_KEY = 0x64726573_73616765
"""Of the PostgreSQL advisory lock that migrations are made under: the letters of the project's name."""

_LOCK_SECONDS = 300.0
_LOCK_POLL_SECONDS = 0.25


def migrate(engine: sa.Engine, *, workflow_url: str | None = None) -> str:
    """Makes or changes the tables as far as needed.

    :param workflow_url: of DBOS's tables on PostgreSQL, to bring them up to date under the same lock.
    :return: the schema's revision.
    :raises FailedPrecondition: when the database was written by a newer version.
    """
    config = _config()
    for talkative in ("alembic", "dbos"):
        logging.getLogger(talkative).setLevel(logging.WARNING)
    with _alone(engine):
        with engine.begin() as connection:
            _refuse_newer(connection, config)
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
        if workflow_url is not None:
            from dbos import DBOS

            DBOS.migrate(workflow_url)
    return newest()


def require_current(engine: sa.Engine) -> None:
    """Sees that the tables are this version's, changing nothing.

    :raises FailedPrecondition: when they are older or newer, with what to do.
    """
    config = _config()
    with engine.begin() as connection:
        _refuse_newer(connection, config)
        found = MigrationContext.configure(connection).get_current_revision()
    if found != newest():
        message = (
            f"the database has schema {found or 'none'}, this version needs {newest()}: "
            "run `python -m dressage_orchestrator migrate` first"
        )
        raise FailedPrecondition(message, reason="DATABASE_OLDER")


def newest() -> str:
    """The revision that this version knows as the last."""
    head = ScriptDirectory.from_config(_config()).get_current_head()
    assert head is not None
    return head


def _config() -> Config:
    config = Config()
    folder = Path(__file__).with_name("migrations")
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    return config


def _refuse_newer(connection: sa.Connection, config: Config) -> None:
    found = MigrationContext.configure(connection).get_current_revision()
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if found is not None and found not in known:
        message = (
            f"the database has schema {found}, which this version does not know (it knows up to {max(known)}): "
            "run the version that wrote it, or a newer one, or restore a backup made before the upgrade"
        )
        raise FailedPrecondition(message, reason="DATABASE_NEWER")


@contextmanager
def _alone(engine: sa.Engine) -> Iterator[None]:
    if engine.dialect.name != "postgresql":
        yield
        return
    # The lock is the connection's, not a transaction's, and nobody waits for it inside of a statement: DBOS makes
    # indexes concurrently, and such an index waits for every transaction and every statement that began before it.
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        deadline = time.monotonic() + _LOCK_SECONDS
        while not connection.execute(sa.text("SELECT pg_try_advisory_lock(:key)"), {"key": LOCK_KEY}).scalar_one():
            if time.monotonic() > deadline:
                message = f"another server has been changing the database's tables for {_LOCK_SECONDS} s; see its log"
                raise Unavailable(message, reason="DATABASE_LOCKED")
            time.sleep(_LOCK_POLL_SECONDS)
        try:
            yield
        finally:
            connection.execute(sa.text("SELECT pg_advisory_unlock(:key)"), {"key": LOCK_KEY})
