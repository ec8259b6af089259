"""Migrates a database to the schema of this version, with `python -m dressage_orchestrator migrate` or at server start.

Servers may migrate concurrently: on PostgreSQL an advisory lock serialises them, on SQLite the data folder has one server. A
database of another version is rejected and not changed.
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

from dressage_orchestrator.clock import Clock, micros, system_clock
from dressage_orchestrator.database import stamp

LOCK_KEY = 0x64726573_73616765
"""Key of the PostgreSQL advisory lock for migrations: the letters of the project's name."""

_LOCK_SECONDS = 300.0
_LOCK_POLL_SECONDS = 0.25


def migrate(engine: sa.Engine, *, workflow_url: str | None = None, clock: Clock = system_clock) -> str:
    """Create or upgrade the tables.

    :param workflow_url: URL of DBOS's tables on PostgreSQL, which are migrated under the same lock.
    :return: the schema's revision.
    :raises FailedPrecondition: when the database was written by another version.
    """
    config = _config()
    for logger in ("alembic", "dbos"):
        logging.getLogger(logger).setLevel(logging.WARNING)
    with _migration_lock(engine):
        with engine.begin() as connection:
            _reject_newer(connection, config)
            new = stamp.is_new(connection)
            if not new:
                stamp.require_same(connection)
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            if new:
                stamp.write(connection, now=micros(clock()))
        if workflow_url is not None:
            from dbos import DBOS

            DBOS.migrate(workflow_url)
    return newest()


def require_current(engine: sa.Engine) -> None:
    """Check that the schema is that of this version.

    :raises FailedPrecondition: when it is older or newer, with a remedy.
    """
    config = _config()
    with engine.begin() as connection:
        _reject_newer(connection, config)
        revision = MigrationContext.configure(connection).get_current_revision()
    if revision != newest():
        message = (
            f"the database has schema {revision or 'none'}, this version requires {newest()}: "
            "run `python -m dressage_orchestrator migrate` first"
        )
        raise FailedPrecondition(message, reason="DATABASE_OLDER")
    with engine.begin() as connection:
        stamp.require_same(connection)


def newest() -> str:
    """Latest schema revision of this version."""
    head = ScriptDirectory.from_config(_config()).get_current_head()
    assert head is not None
    return head


def _config() -> Config:
    config = Config()
    folder = Path(__file__).with_name("migrations")
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    return config


def _reject_newer(connection: sa.Connection, config: Config) -> None:
    revision = MigrationContext.configure(connection).get_current_revision()
    revisions = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if revision is not None and revision not in revisions:
        message = (
            f"the database has schema {revision}, which is newer than this version (latest schema {max(revisions)}): "
            "run the version that wrote it or a newer one, or restore a backup from before the upgrade"
        )
        raise FailedPrecondition(message, reason="DATABASE_NEWER")


@contextmanager
def _migration_lock(engine: sa.Engine) -> Iterator[None]:
    if engine.dialect.name != "postgresql":
        yield
        return
    # A session-level lock, acquired by polling: DBOS creates indexes concurrently, and this waits for all transactions and
    # statements that began earlier, so no server may wait for the lock inside of either.
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        deadline = time.monotonic() + _LOCK_SECONDS
        while not connection.execute(sa.text("SELECT pg_try_advisory_lock(:key)"), {"key": LOCK_KEY}).scalar_one():
            if time.monotonic() > deadline:
                message = f"another server has been migrating the database for {_LOCK_SECONDS} s; see its log"
                raise Unavailable(message, reason="DATABASE_LOCKED")
            time.sleep(_LOCK_POLL_SECONDS)
        try:
            yield
        finally:
            connection.execute(sa.text("SELECT pg_advisory_unlock(:key)"), {"key": LOCK_KEY})
