"""Transactions, and telling those who wait that something changed.

A `Transaction` collects the topics it touched (`sessions/{s}`, a run's name); after its commit, and only then, the
database calls the listener with them. Topics are hints: whoever waits also looks by itself now and then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from dressage.errors import InvalidArgument, Unavailable

from dressage_orchestrator.clock import Clock, system_clock
from dressage_orchestrator.database.tables import METADATA

_BUSY_SECONDS = 30.0


class Transaction:
    """One transaction: its connection, its moment, and what it touched."""

    def __init__(self, connection: sa.Connection, clock: Clock) -> None:
        self.connection = connection
        self.now = clock()
        self.touched: set[str] = set()

    def execute(self, statement: Any, *args: Any) -> Any:
        """Runs a statement."""
        return self.connection.execute(statement, *args)

    def touch(self, topic: str) -> None:
        """Has listeners told of the topic once this is committed."""
        self.touched.add(topic)


class Database:
    """The engine behind the repository modules.

    :param url: an SQLAlchemy URL of SQLite or PostgreSQL.
    :param listener: called with the touched topics after each commit, from the committing thread.
    """

    def __init__(self, url: str, *, clock: Clock = system_clock) -> None:
        self.clock = clock
        self.listener: Callable[[set[str]], None] = lambda topics: None
        try:
            self._engine = _make_engine(url)
            METADATA.create_all(self._engine)
        except sa.exc.ArgumentError as error:
            raise InvalidArgument(field="database_url", value="(hidden)", expected="an SQLAlchemy URL") from error
        except sa.exc.OperationalError as error:
            raise Unavailable(f"cannot open the database: {error.orig}", reason="DATABASE_UNAVAILABLE") from error

    @contextmanager
    def begin(self) -> Iterator[Transaction]:
        """A transaction: committed at the end, rolled back on an error."""
        with self._engine.begin() as connection:
            transaction = Transaction(connection, self.clock)
            yield transaction
        if transaction.touched:
            self.listener(transaction.touched)

    def close(self) -> None:
        """Closes all connections."""
        self._engine.dispose()


def sqlite_url(path: Path) -> str:
    """The URL of an SQLite file."""
    return f"sqlite:///{path}"


def _make_engine(url: str) -> sa.Engine:
    if not url.startswith("sqlite"):
        return sa.create_engine(url, pool_pre_ping=True)
    engine = sa.create_engine(url, connect_args={"timeout": _BUSY_SECONDS, "check_same_thread": False})

    @sa.event.listens_for(engine, "connect")
    def _prepare(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # so that the BEGIN below is ours, not the driver's
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA foreign_keys=ON")

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        # A transaction that reads first and then writes must hold the lock from its beginning, or two of them deadlock.
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine
