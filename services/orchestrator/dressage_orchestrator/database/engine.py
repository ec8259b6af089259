"""Transactions, and telling those who wait that something changed.

A `Transaction` collects the topics it touched (`sessions/{s}`, a run's name); after its commit, and only then, the
database calls the listener with them. Topics are hints: whoever waits also looks by itself now and then.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from dressage.errors import Aborted, InvalidArgument, Unavailable

from dressage_orchestrator.clock import Clock, system_clock
from dressage_orchestrator.database.migrate import migrate, require_current
from dressage_orchestrator.database.tables import EXECUTORS

_BUSY_SECONDS = 30.0
_CONNECT_SECONDS = 5
_STATEMENT_SECONDS = 30
_POOL_SIZE = 8

IDLE_SECONDS = 8
"""PostgreSQL ends a transaction that does nothing for so long: less than the time after which a server that stands still
is given up, so that none of its transactions can commit afterwards."""

_LOST = (sa.exc.OperationalError, sa.exc.InterfaceError, sa.exc.InternalError, sa.exc.TimeoutError)


class DatabaseLost(Unavailable):
    """The database did not answer; what was under way may be done again."""

    default_reason = "DATABASE_UNAVAILABLE"


class Fenced(Aborted):
    """This server was given up for dead by another: it must do nothing more."""

    default_reason = "EXECUTOR_FENCED"


class Transaction:
    """One transaction: its connection, its moment, and what it touched."""

    def __init__(self, connection: sa.Connection, clock: Clock) -> None:
        self.connection = connection
        self.now = clock()
        self.touched: set[str] = set()
        self._locked: set[str] = set()

    def execute(self, statement: Any, *args: Any) -> Any:
        """Runs a statement."""
        return self.connection.execute(statement, *args)

    def touch(self, topic: str) -> None:
        """Has listeners told of the topic once this is committed."""
        self.touched.add(topic)

    def lock(self, name: str) -> None:
        """Holds back other transactions that lock the same name until this one ends.

        What reads before it writes locks first. On SQLite a transaction has the whole database for itself anyway.
        Order, where there are several: request ids, then a session, then the rest.
        """
        if name not in self._locked and self.connection.dialect.name == "postgresql":
            key = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), signed=True)
            self.connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": key})
            self._locked.add(name)


class Database:
    """The engine behind the repository modules.

    :param url: an SQLAlchemy URL of SQLite or PostgreSQL (``postgresql://user:password@host:port/name``).
    :param upgrade: make the tables, or bring them to this version; False: refuse older ones.
    :param patience: seconds that `begin` waits for a database that cannot be reached.
    :raises FailedPrecondition: when the database was written by a newer version.

    Set before use: ``listener``, called with the touched topics after each commit, from the committing thread; and on a
    shared database ``executor``, this server's id, without which it may do nothing once it was given up for dead.
    """

    def __init__(self, url: str, *, clock: Clock = system_clock, upgrade: bool = True, patience: float = 5.0) -> None:
        self.clock = clock
        self.listener: Callable[[set[str]], None] = lambda topics: None
        self.executor: str | None = None
        self._patience = patience
        try:
            self._engine = _make_engine(url)
        except (sa.exc.ArgumentError, sa.exc.NoSuchModuleError) as error:
            raise InvalidArgument(field="database_url", value="(hidden)", expected="an SQLAlchemy URL") from error
        try:
            self._connect().close()
            if upgrade:
                migrate(self._engine, workflow_url=url if self.shared else None)
            else:
                require_current(self._engine)
        except sa.exc.DBAPIError as error:
            raise _lost(error) from error

    @property
    def shared(self) -> bool:
        """Whether several servers may use it at once."""
        return self._engine.dialect.name == "postgresql"

    @contextmanager
    def begin(self) -> Iterator[Transaction]:
        """A transaction: committed at the end, rolled back on an error.

        :raises DatabaseLost: when the database does not answer.
        :raises Fenced: when this server was given up for dead.
        """
        connection = self._connect()
        try:
            with connection, connection.begin():
                transaction = Transaction(connection, self.clock)
                self._check_fence(transaction)
                yield transaction
        except sa.exc.IntegrityError as error:
            raise Aborted("another change came first; try again", reason="CONTENTION") from error
        except _LOST as error:
            if not self.shared:
                raise
            raise _lost(error) from error
        if transaction.touched:
            self.listener(transaction.touched)

    def close(self) -> None:
        """Closes all connections."""
        self._engine.dispose()

    def _connect(self) -> sa.Connection:
        deadline = time.monotonic() + self._patience
        while True:
            try:
                return self._engine.connect()
            except _LOST as error:
                if time.monotonic() > deadline:
                    raise _lost(error) from error
                time.sleep(0.2)

    def _check_fence(self, tx: Transaction) -> None:
        if self.executor is None:
            return
        where = (EXECUTORS.c.id == self.executor, EXECUTORS.c.dead.is_(False))
        if tx.execute(sa.select(EXECUTORS.c.id).where(*where)).one_or_none() is None:
            raise Fenced(f"another server has taken over from {self.executor}")


def sqlite_url(path: Path) -> str:
    """The URL of an SQLite file."""
    return f"sqlite:///{path}"


def _lost(error: Exception) -> DatabaseLost:
    # The driver's own words, without SQLAlchemy's, which show the statement; neither holds the password.
    said = str(getattr(error, "orig", None) or error).strip().splitlines()
    return DatabaseLost(f"cannot use the database: {said[0] if said else type(error).__name__} (see DATABASE_URL)")


def _make_engine(url: str) -> sa.Engine:
    parsed = sa.make_url(url)
    backend = parsed.get_backend_name()
    if backend == "postgresql":
        options = {
            "idle_in_transaction_session_timeout": f"{IDLE_SECONDS}s",
            "statement_timeout": f"{_STATEMENT_SECONDS}s",
        }
        told = " ".join(f"-c {name}={value}" for name, value in options.items())
        return sa.create_engine(
            parsed.set(drivername="postgresql+psycopg"),
            pool_pre_ping=True,
            pool_size=_POOL_SIZE,
            max_overflow=_POOL_SIZE,
            connect_args={"connect_timeout": _CONNECT_SECONDS, "options": told, "application_name": "dressage"},
        )
    if backend != "sqlite":
        raise InvalidArgument(field="database_url", value=backend, expected="a URL of sqlite or postgresql")
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
