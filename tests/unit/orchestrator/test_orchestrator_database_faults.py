"""Faults of the database, injected for real: a full disk, a lock of another process, a read-only file, a damaged one.

The property: while the fault lasts an operation fails with the retryable kind; once it is gone the same operation succeeds
on the same `Database`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import sqlalchemy as sa
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import FailedPrecondition, InvalidArgument
from dressage.serving.errors import to_status
from dressage_orchestrator.database import engine as engine_module
from dressage_orchestrator.database import sessions
from dressage_orchestrator.database.engine import Database, DatabaseLost, make_workflow_engine, sqlite_url
from dressage_orchestrator.database.tables import SESSIONS
from google.rpc import code_pb2

from tests.servers.postgres import postgres
from tests.unit.orchestrator.databases import count, create, opened

BUSY_SECONDS = 0.5
HOLD_LOCK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
if sys.argv[2] == "EXCLUSIVE":
    connection.execute("PRAGMA locking_mode=EXCLUSIVE")
connection.execute("BEGIN EXCLUSIVE")
connection.execute("CREATE TABLE other (x)")
print("locked", flush=True)
sys.stdin.read()
connection.execute("ROLLBACK")
connection.close()
"""
WORKFLOWS = """
import os, sys, threading
from dbos import DBOS, SetWorkflowID
from dressage_orchestrator.database.engine import make_workflow_engine
url = f"sqlite:///{sys.argv[1]}/workflows.db"
engine = make_workflow_engine(url)
inside, go, calls = threading.Event(), threading.Event(), []

@DBOS.workflow()
def work(size):
    DBOS.run_step({"name": "first"}, lambda: 1)
    inside.set()
    go.wait(60)
    DBOS.run_step({"name": "large"}, lambda: calls.append(1) or "x" * size)
    return "y" * size

DBOS(config={"name": "dressage", "system_database_url": url, "system_database_engine": engine, "log_level": "WARNING"})
DBOS.launch()
with SetWorkflowID("w"):
    handle = DBOS.start_workflow(work, 100_000)
assert inside.wait(60)
print("inside", flush=True)
sys.stdin.readline()
go.set()
print(len(handle.get_result()), len(calls), DBOS.get_workflow_status("w").status, flush=True)
DBOS.destroy()
engine.dispose()
"""
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "_BUSY_SECONDS", BUSY_SECONDS)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount: {mounted.stderr.decode()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = opened(tmp_path)
    yield database
    database.close()


def fill(folder: Path) -> Path:
    """A file that takes all the room that is left."""
    path = folder / "fill"
    file = os.open(path, os.O_CREAT | os.O_WRONLY)
    with suppress(OSError):
        while True:
            os.write(file, b"0" * 4096)
    os.close(file)
    assert shutil.disk_usage(folder).free == 0
    return path


@contextmanager
def held_lock(path: Path, *, mode: str = "IMMEDIATE") -> Iterator[None]:
    """Another process in the middle of a write."""
    arguments = [sys.executable, "-c", HOLD_LOCK, str(path), mode]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == b"locked\n"
        yield
        process.stdin.close()
        assert process.wait(10) == 0


@root_only
def test_full_disk_at_commit_is_retryable(small_disk: Path) -> None:
    database = opened(small_disk)
    create(database, "before")
    filler = fill(small_disk)
    entered = []

    def attempt() -> None:
        with database.begin() as tx:
            # More than the log can take, less than a connection keeps in memory: pages are written by COMMIT.
            sessions.create(tx, "s", v1.SessionSpec(intent="x" * 500_000))
            entered.append(True)

    with pytest.raises(DatabaseLost, match=r"database or disk is full\. Free space"):
        attempt()
    assert entered == [True] and count(database) == 1
    filler.unlink()
    attempt()
    assert count(database) == 2
    database.close()


@root_only
def test_full_disk_in_a_statement_is_retryable(small_disk: Path) -> None:
    database = opened(small_disk)
    filler = fill(small_disk)
    stages: list[str] = []

    def attempt(size: int) -> None:
        with database.begin() as tx:
            tx.execute(sa.text("PRAGMA cache_size=5"))  # so that pages go to the log before COMMIT
            try:
                sessions.create(tx, "s", v1.SessionSpec(intent="x" * size))
            except sa.exc.OperationalError:
                stages.append("statement")
                raise

    with pytest.raises(DatabaseLost, match="database or disk is full"):
        attempt(1_000_000)
    assert stages == ["statement"] and count(database) == 0
    filler.unlink()
    attempt(100_000)
    assert count(database) == 1
    database.close()


@root_only
def test_full_disk_at_the_first_connection_is_retryable(small_disk: Path) -> None:
    filler = fill(small_disk)
    with pytest.raises(DatabaseLost):
        opened(small_disk)
    filler.unlink()
    database = opened(small_disk)
    create(database, "s")
    assert count(database) == 1
    database.close()


def test_lock_of_another_process_is_retryable_and_readers_pass(database: Database, tmp_path: Path) -> None:
    create(database, "before")
    with held_lock(tmp_path / "d.db"):
        begun = time.monotonic()
        assert count(database) == 1
        assert time.monotonic() - begun < BUSY_SECONDS / 2
        with pytest.raises(DatabaseLost, match=r"database is locked\. Close the other program") as raised:
            create(database, "s")
        assert time.monotonic() - begun < 4 * BUSY_SECONDS
        assert to_status(raised.value).code == code_pb2.UNAVAILABLE
    create(database, "s")
    assert count(database) == 2


def test_exclusive_lock_makes_even_reads_retryable(tmp_path: Path) -> None:
    database = opened(tmp_path)
    create(database, "s")
    database.close()  # an exclusive lock is not to be had while another has the file open
    with held_lock(tmp_path / "d.db", mode="EXCLUSIVE"):
        with pytest.raises(DatabaseLost, match="locked"):
            count(database)
        with pytest.raises(DatabaseLost, match="locked"):
            opened(tmp_path)
    assert count(database) == 1
    database.close()


def test_writers_of_this_process_wait_for_each_other_for_a_while(database: Database) -> None:
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with database.begin() as tx:
            sessions.create(tx, "a", v1.SessionSpec(intent="a"))
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    assert entered.wait(10)
    with pytest.raises(DatabaseLost, match="another transaction"):
        create(database, "b")
    begun = time.monotonic()
    assert count(database) == 0  # not yet committed, and not waited for
    assert time.monotonic() - begun < BUSY_SECONDS / 2
    waiting = threading.Thread(target=create, args=(database, "b"))
    waiting.start()
    leave.set()
    thread.join(10)
    waiting.join(10)
    assert count(database) == 2


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_reader_sees_one_state_and_blocks_no_writer(kind: str, tmp_path: Path) -> None:
    with opened_on(kind, tmp_path) as database:
        create(database, "a")
        with database.read() as tx:
            assert sum(sessions.counts(tx).values()) == 1
            begun = time.monotonic()
            create(database, "b")
            assert time.monotonic() - begun < BUSY_SECONDS
            assert sum(sessions.counts(tx).values()) == 1
        assert count(database) == 2


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_write_in_a_reading_transaction_is_an_error(kind: str, tmp_path: Path) -> None:
    with opened_on(kind, tmp_path) as database:
        create(database, "a")
        for statement in (sa.delete(SESSIONS), sa.update(SESSIONS).values(state=1), sa.text("CREATE TABLE x (y INT)")):
            with pytest.raises(sa.exc.DBAPIError, match=r"readonly|read-only"), database.read() as tx:
                tx.execute(statement)
        assert count(database) == 1
        create(database, "b")
        assert count(database) == 2


@contextmanager
def opened_on(kind: str, folder: Path) -> Iterator[Database]:
    if kind == "sqlite":
        database = opened(folder)
        yield database
        database.close()
        return
    with postgres() as server:
        database = Database(server.database())
        yield database
        database.close()


@pytest.mark.parametrize("statement", ["SELECT * FROM no_such", "SELECT no_such FROM sessions", "SELEC 1"])
def test_programming_errors_are_not_retryable(database: Database, statement: str) -> None:
    for transaction in (database.begin, database.read):
        with pytest.raises(sa.exc.OperationalError), transaction() as tx:
            tx.execute(sa.text(statement))


@root_only
def test_read_only_file_is_retryable_and_reopened(tmp_path: Path) -> None:
    path = tmp_path / "d.db"
    database = opened(tmp_path)
    create(database, "before")
    database.close()
    bind = subprocess.run(["mount", "--bind", str(path), str(path)], capture_output=True)
    if bind.returncode != 0:
        pytest.skip(f"cannot mount: {bind.stderr.decode()}")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", str(path)], check=True)
        assert count(database) == 1
        for _ in range(2):
            with pytest.raises(DatabaseLost, match=r"readonly database\. Make the file"):
                create(database, "s")
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)
    create(database, "s")
    assert count(database) == 2
    database.close()


def test_missing_folder_is_retryable(tmp_path: Path) -> None:
    with pytest.raises(DatabaseLost, match=r"unable to open database file\. Check that the data folder"):
        opened(tmp_path / "none")
    (tmp_path / "none").mkdir()
    opened(tmp_path / "none").close()


@pytest.mark.parametrize(("offset", "words"), [(0, "not a database"), (4096, "malformed")])
def test_damaged_file_is_not_retryable(tmp_path: Path, offset: int, words: str) -> None:
    path = tmp_path / "d.db"
    database = opened(tmp_path)
    create(database, "s")
    database.close()
    backup = path.read_bytes()
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(os.urandom(1) + b"\xff" * (len(backup) - offset - 1))
    for operation in (lambda: count(database), lambda: create(database, "t")):
        with pytest.raises(FailedPrecondition, match=f"damaged: .*{words}") as raised:
            operation()
        assert raised.value.reason == "DATABASE_DAMAGED"
    path.write_bytes(backup)
    create(database, "t")
    assert count(database) == 2
    database.close()


@root_only
def test_full_disk_delays_a_workflow_and_does_not_end_it(small_disk: Path) -> None:
    arguments = [sys.executable, "-c", WORKFLOWS, str(small_disk)]
    pipe = subprocess.PIPE
    with subprocess.Popen(arguments, text=True, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdout is not None and process.stdin is not None and process.stderr is not None
        assert process.stdout.readline() == "inside\n"
        filler = fill(small_disk)
        process.stdin.write("go\n")
        process.stdin.flush()
        warning = next(line for line in process.stderr if "database or disk is full" in line)
        assert "Database connection failed" in warning  # DBOS's word for what it does again
        filler.unlink()
        rest, errors = process.communicate(timeout=60)
    assert rest.split() == ["100000", "1", "SUCCESS"], errors
    assert "xxxx" not in errors  # no log shows what steps returned


def test_databases_in_memory_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="a file"):
        Database("sqlite://")


def test_commits_of_both_databases_are_synced(tmp_path: Path) -> None:
    """A promise survives a power failure; rows of a step in progress need not."""
    sessions_db, steps = (
        Database(sqlite_url(tmp_path / "d.db")),
        make_workflow_engine(sqlite_url(tmp_path / "workflows.db")),
    )
    with sessions_db.begin() as tx, steps.connect() as connection:
        levels = [each.exec_driver_sql("PRAGMA synchronous").scalar_one() for each in (tx.connection, connection)]
    assert levels == [2, 2]  # FULL
    with sessions_db.begin(synced=False) as tx:
        assert tx.connection.exec_driver_sql("PRAGMA synchronous").scalar_one() == 1  # NORMAL
    sessions_db.close()
    steps.dispose()


def test_tables_of_dbos_get_times_from_old_versions_of_sqlite(tmp_path: Path) -> None:
    """Debian 12 has SQLite 3.40, whose own function has no ``subsec``; DBOS relies on it on Python 3.12 and newer."""
    engine = make_workflow_engine(sqlite_url(tmp_path / "workflows.db"))
    try:
        with engine.begin() as connection:
            connection.exec_driver_sql(
                "CREATE TABLE t (id INTEGER, at INTEGER NOT NULL DEFAULT (unixepoch('subsec') * 1000))"
            )
            connection.exec_driver_sql("INSERT INTO t (id) VALUES (1)")
            (written,) = connection.exec_driver_sql("SELECT at FROM t").scalars()
    finally:
        engine.dispose()
    assert abs(written / 1000 - time.time()) < 60
