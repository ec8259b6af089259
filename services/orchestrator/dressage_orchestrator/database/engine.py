"""Transactions and notifications of changes.

A `Transaction` collects the topics that it touches (`sessions/{s}`, a run's name). After its commit, and only then, the
database calls the listener with them. Topics are hints: subscribers also poll.
"""

from __future__ import annotations

import hashlib
import math
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from dressage.artifacts.atomic import make_private_file
from dressage.errors import Aborted, InvalidArgument

from dressage_orchestrator.clock import Clock, system_clock
from dressage_orchestrator.database.driver_errors import DatabaseLost as DatabaseLost
from dressage_orchestrator.database.driver_errors import domain_error, ends_connection, is_transient, lost
from dressage_orchestrator.database.migrate import migrate, require_current
from dressage_orchestrator.database.queue_order import QueueOrder
from dressage_orchestrator.database.tables import EXECUTORS

_BUSY_SECONDS = 5.0
"""Time that a writer waits for another one. A request with two transactions responds within a client's deadline of 20 s;
workflows and background loops retry after a timeout."""

_CONNECT_SECONDS = 5
_STATEMENT_SECONDS = 30
_POOL_SIZE = 8
_PING_SECONDS = 2.0
"""Idle time after which a connection to PostgreSQL is tried before it is used."""
_WORKFLOWS = 4
"""Transactions of workflows at a time, see `Database.workflow_turn`."""
_QUEUE_SECONDS = 600.0

IDLE_SECONDS = 8
"""PostgreSQL aborts a transaction after this idle time. It is shorter than the lease of a server, so that no transaction of a
suspended server can commit after the server has expired."""


class ExecutorFenced(Aborted):
    """Another server has expired this one, which must not write any more."""

    default_reason = "EXECUTOR_FENCED"


class ReadTransaction:
    """A read-only transaction, which sees one state of the database."""

    def __init__(self, connection: sa.Connection, clock: Clock, queue: QueueOrder) -> None:
        self.connection = connection
        self.queue = queue
        self.now = clock()

    def execute(self, statement: Any, *args: Any) -> Any:
        """Run a statement."""
        return self.connection.execute(statement, *args)


class Transaction(ReadTransaction):
    """A transaction that may write and collects the topics that it touches."""

    def __init__(self, connection: sa.Connection, clock: Clock, queue: QueueOrder) -> None:
        super().__init__(connection, clock, queue)
        self.touched: set[str] = set()
        self.written: dict[tuple[str, ...], tuple[bytes, int]] = {}
        """Messages that this transaction wrote, and their versions, by table and key: a second change need not read again."""
        self._locked: set[str] = set()

    def touch(self, topic: str) -> None:
        """Notify the topic's subscribers after the commit."""
        self.touched.add(topic)

    def lock(self, name: str) -> None:
        """Lock a name until the end of the transaction.

        A transaction that reads before it writes must lock first. On SQLite a transaction locks the whole database. The
        order of several locks is: request ids, then a session, then others.
        """
        if name not in self._locked and self.connection.dialect.name == "postgresql":
            # Not `hash`, whose values differ between the processes that share the lock.
            key = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), signed=True)
            self.connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": key})
            self._locked.add(name)


class Database:
    """The engine behind the repository modules.

    :param url: an SQLAlchemy URL of an SQLite file or of PostgreSQL (``postgresql://user:password@host:port/name``).
    :param upgrade: create or upgrade the tables; False: reject older ones.
    :param patience: seconds that `begin` and `read` wait for a database that is unavailable.
    :raises FailedPrecondition: when the database was written by another version, or its file is damaged.
    :raises DatabaseLost: when the database cannot be used now.

    Set before use: ``listener``, called with the touched topics after each commit, from the committing thread; and on a
    shared database ``executor``, this server's id, which fences transactions after the server has expired.
    """

    def __init__(self, url: str, *, clock: Clock = system_clock, upgrade: bool = True, patience: float = 5.0) -> None:
        self.clock = clock
        self.queue = QueueOrder()
        self.listener: Callable[[set[str]], None] = lambda topics: None
        self.executor: str | None = None
        self._patience = patience
        self._workflows = threading.BoundedSemaphore(_WORKFLOWS)
        self._wal = Path()  # of SQLite
        self._unsynced = threading.Event()
        try:
            self._engine, self._reader, self._deferred = _make_engines(url)
        except (sa.exc.ArgumentError, sa.exc.NoSuchModuleError) as error:
            raise InvalidArgument(field="database_url", value="(hidden)", expected="an SQLAlchemy URL") from error
        except OSError as error:
            remedy = "Check that the data folder exists and that the server may write to it"
            raise DatabaseLost(f"cannot use the database: unable to open database file. {remedy}.") from error
        # SQLite has one writer at a time, and waits by polling at intervals of up to 100 ms without an order. Here threads of
        # this process wait for each other in order, without holding a connection.
        self._writer = None if self.shared else threading.Lock()
        if not self.shared:
            self._wal = Path(f"{self._engine.url.database}-wal")
        try:
            self._connect(self._engine).close()
            if upgrade:
                migrate(self._engine, workflow_url=url if self.shared else None, clock=clock)
            else:
                require_current(self._engine)
        except sa.exc.DBAPIError as error:
            self.close()
            translated = lost(error) if self.shared else domain_error(error)
            if translated is None:
                raise
            raise translated from error

    @property
    def shared(self) -> bool:
        """Whether several servers may use it at once."""
        return self._engine.dialect.name == "postgresql"

    @contextmanager
    def begin(self, *, synced: bool = True) -> Iterator[Transaction]:
        """Run a transaction: committed at the end, rolled back on an error.

        :param synced: whether a power failure after the commit loses nothing. Otherwise the commit is safe from the next one
            that is synced, or from `sync`, whichever comes first; without them a power failure undoes the latest ones. SQLite
            only: PostgreSQL syncs every commit.
        :raises DatabaseLost: when the database does not answer, is locked, or its disk is full; nothing was committed, except
            on PostgreSQL if the connection was lost during the commit.
        :raises FailedPrecondition: when the database's file is damaged.
        :raises ExecutorFenced: when this server has expired.
        """
        with self._writing(), _translate_errors():
            connection = self._connect(self._engine if synced else self._deferred)
            with connection, connection.begin():
                transaction = Transaction(connection, self.clock, self.queue)
                # A server that was suspended may have lost its sessions to another one (decision 0017).
                self._check_fence(transaction)
                yield transaction
            if not synced and not self.shared:
                self._unsynced.set()
        if transaction.touched:
            self.listener(transaction.touched)

    def sync(self) -> None:
        """Make all commits safe from a power failure, also those that were not synced.

        SQLite appends commits to one log in their order and does no more than this when it syncs one.

        :raises DatabaseLost: when the disk refuses.
        """
        if not self._unsynced.is_set():
            return
        self._unsynced.clear()  # before: a commit meanwhile sets it again
        try:
            descriptor = os.open(self._wal, os.O_RDWR)
            try:
                os.fdatasync(descriptor)
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            return  # the last connection was closed, which writes the log into the database and syncs it
        except OSError as error:
            self._unsynced.set()
            message = (
                f"cannot use the database: {error.strerror}. Check the disk of the data folder and its free space."
            )
            raise DatabaseLost(message) from error

    @contextmanager
    def workflow_turn(self) -> Iterator[None]:
        """Wait until fewer than 4 other workflows use the database; each transaction of a workflow takes a turn.

        Otherwise a thousand workflows, each with a thread, would keep all connections of the pool and the interpreter's lock
        from the requests. More of them at a time would not be faster: they share one core.

        :raises DatabaseLost: after ten minutes.
        """
        if not self._workflows.acquire(timeout=_QUEUE_SECONDS):
            raise DatabaseLost(f"no turn at the database within {_QUEUE_SECONDS:g} s")
        try:
            yield
        finally:
            self._workflows.release()

    @contextmanager
    def read(self) -> Iterator[ReadTransaction]:
        """Run a read-only transaction on one state of the database; it neither waits for writers nor blocks them.

        :raises DatabaseLost: when the database does not answer.
        :raises FailedPrecondition: when the database's file is damaged.
        :raises ExecutorFenced: when this server has expired.
        """
        with _translate_errors(read_only=True):
            connection = self._connect(self._reader)
            with connection, connection.begin():
                transaction = ReadTransaction(connection, self.clock, self.queue)
                self._check_fence(transaction)
                yield transaction

    def close(self) -> None:
        """Close all connections."""
        self._reader.dispose()
        self._deferred.dispose()
        self._engine.dispose()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        if self._writer is None:
            yield
            return
        if not self._writer.acquire(timeout=_BUSY_SECONDS):
            raise DatabaseLost(f"cannot use the database: another transaction has held it for {_BUSY_SECONDS:g} s")
        try:
            yield
        finally:
            self._writer.release()

    def _connect(self, engine: sa.Engine) -> sa.Connection:
        deadline = time.monotonic() + self._patience
        while True:
            try:
                return engine.connect()
            except sa.exc.SQLAlchemyError as error:
                translated = domain_error(error)
                if translated is None:
                    raise
                if not isinstance(translated, DatabaseLost) or time.monotonic() > deadline:
                    raise translated from error
                time.sleep(0.2)

    def _check_fence(self, tx: ReadTransaction) -> None:
        if self.executor is None:
            return
        match = (EXECUTORS.c.id == self.executor, EXECUTORS.c.expired.is_(False))
        if tx.execute(sa.select(EXECUTORS.c.id).where(*match)).one_or_none() is None:
            raise ExecutorFenced(f"{self.executor} has expired; another server has taken over")


def sqlite_url(path: Path) -> str:
    """The URL of an SQLite file."""
    return f"sqlite:///{path}"


@contextmanager
def _translate_errors(*, read_only: bool = False) -> Iterator[None]:
    """Convert errors of the driver to domain errors; programming errors are raised unchanged."""
    try:
        yield
    except sa.exc.IntegrityError as error:
        raise Aborted("a concurrent change was committed first; try again", reason="CONTENTION") from error
    except sa.exc.SQLAlchemyError as error:
        translated = domain_error(error, read_only=read_only)
        if translated is None:
            raise
        raise translated from error


def _make_engines(url: str) -> tuple[sa.Engine, sa.Engine, sa.Engine]:
    """Create the engines for writing, for reading, and for writing without a sync of each commit."""
    parsed = sa.make_url(url)
    backend = parsed.get_backend_name()
    if backend == "postgresql":
        engine = _make_postgresql(parsed)
        reader: sa.Engine = engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        return engine, reader, engine
    if backend != "sqlite":
        raise InvalidArgument(field="database_url", value=backend, expected="a URL of sqlite or postgresql")
    if parsed.database in (None, "", ":memory:"):
        expected = "a file (sqlite:///path): in memory each connection would have a separate database"
        raise InvalidArgument(field="database_url", value=url, expected=expected)
    make_private_file(Path(str(parsed.database)))  # SQLite's other files get the mode of this one
    # Two transactions that read and then write would deadlock, so the write lock is acquired at the beginning.
    pragmas = ("journal_mode=WAL", "foreign_keys=ON")
    # Answered requests and recorded steps are promises: a power failure must not undo them (decision 0053).
    writer = _make_sqlite(parsed, begin="BEGIN IMMEDIATE", pragmas=("synchronous=FULL", *pragmas))
    sqlite_reader = _make_sqlite(parsed, begin="BEGIN DEFERRED", pragmas=("query_only=ON",))
    return (
        writer,
        sqlite_reader,
        # Rows of a step: `sync` syncs them once, before the step is recorded. A sync of each took half a minute a session.
        _make_sqlite(parsed, begin="BEGIN IMMEDIATE", pragmas=("synchronous=NORMAL", *pragmas)),
    )


def _make_postgresql(url: sa.URL) -> sa.Engine:
    options = {
        "idle_in_transaction_session_timeout": f"{IDLE_SECONDS}s",
        "statement_timeout": f"{_STATEMENT_SECONDS}s",
    }
    arguments = " ".join(f"-c {name}={value}" for name, value in options.items())
    engine = sa.create_engine(
        url.set(drivername="postgresql+psycopg"),
        pool_size=_POOL_SIZE,
        max_overflow=_POOL_SIZE,
        connect_args={"connect_timeout": _CONNECT_SECONDS, "options": arguments, "application_name": "dressage"},
    )

    # `pool_pre_ping` would ask before each transaction, a fifth of the round trips of a small one.
    @sa.event.listens_for(engine, "checkin")
    def _mark_use(_: Any, record: Any) -> None:
        record.info["used"] = time.monotonic()

    @sa.event.listens_for(engine, "checkout")
    def _ping(connection: Any, record: Any, _: Any) -> None:
        if time.monotonic() - record.info.get("used", math.inf) < _PING_SECONDS:
            return
        try:
            engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error as error:
            raise sa.exc.InvalidatePoolError from error  # the pool connects again

    return engine


def _make_sqlite(url: sa.URL, *, begin: str, pragmas: tuple[str, ...]) -> sa.Engine:
    """Create an engine of SQLite with these pragmas and this statement at the beginning of transactions."""
    engine = sa.create_engine(
        url,
        connect_args={"timeout": _BUSY_SECONDS, "check_same_thread": False},
        pool_size=_POOL_SIZE,
        max_overflow=_POOL_SIZE,
        pool_timeout=_BUSY_SECONDS,
    )

    @sa.event.listens_for(engine, "connect")
    def _prepare(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # disables the driver's own BEGIN
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}")

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql(begin)

    @sa.event.listens_for(engine, "handle_error")
    def _drop(context: sa.engine.ExceptionContext) -> None:
        if ends_connection(context.original_exception):
            context.is_disconnect = True  # all connections of the pool are reopened

    return engine


_WORKFLOW_BUSY_MILLISECONDS = 5_000  # DBOS retries after that, with pauses
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
        connection.execute(f"PRAGMA busy_timeout={_WORKFLOW_BUSY_MILLISECONDS}")
        connection.execute("PRAGMA journal_mode=WAL")  # polling by DBOS does not wait for writers
        # A recorded step is not repeated. The rows that it changed are synced before it is recorded (`Database.sync`).
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")

    @sa.event.listens_for(engine, "handle_error")
    def _repeat(context: sa.engine.ExceptionContext) -> None:
        # DBOS retries after locks and lost connections. After a full disk the workflow's thread would end, and its row would
        # remain PENDING until the server restarts.
        if is_transient(context.original_exception):
            context.is_disconnect = True  # `dbos._sys_db.db_retry` then retries, as on PostgreSQL

    return engine


def _unixepoch(modifier: str) -> float | None:
    """Return the seconds since 1970, as ``unixepoch('subsec')`` of newer versions does."""
    return round(time.time(), 3) if modifier == "subsec" else None
