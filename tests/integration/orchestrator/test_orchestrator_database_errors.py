"""An error of SQLite in any statement of a session, of any table, in both databases: the session ends as it would without."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb
from dressage_orchestrator import wiring
from dressage_orchestrator.database.store import SessionStore
from dressage_orchestrator.lifecycle import context as context_module

from tests.fakes.specs import reward_session
from tests.integration.orchestrator.fakes import JUDGE, watch
from tests.integration.orchestrator.stack import Stack

_TABLE = re.compile(
    r"^\s*(INSERT (?:OR \w+ )?INTO|UPDATE|DELETE FROM|SELECT\b.*?\bFROM)\s+\"?(?:main\.)?\"?(\w+)", re.I | re.S
)


class Faults:
    """Raises an error of SQLite at the n-th execution of each kind of statement, and before the n-th commit after it.

    :param code: result code of SQLite.
    :param occurrence: n; with ``every``, each n-th statement of any kind fails.
    """

    def __init__(self, code: int, occurrence: int, *, every: bool = False) -> None:
        self.code, self.occurrence, self.every = code, occurrence, every
        self.counts: Counter[tuple[str, str, str]] = Counter()
        self.raised: list[tuple[str, str, str]] = []
        self.active = False
        self._lock = threading.Lock()

    def at(self, key: tuple[str, str, str]) -> None:
        with self._lock:
            if not self.active:
                return
            counted = ("", "", "") if self.every else key
            self.counts[counted] += 1
            count = self.counts[counted]
            if count % self.occurrence if self.every else count != self.occurrence:
                return
            self.raised.append(key)
        error = sqlite3.OperationalError(
            "database is locked" if self.code == sqlite3.SQLITE_BUSY else "an injected fault"
        )
        error.sqlite_errorcode = self.code
        raise error

    def connection(self, name: str) -> type[sqlite3.Connection]:
        faults = self

        class Cursor(sqlite3.Cursor):
            def execute(self, statement: str, *arguments: Any) -> Any:
                match = _TABLE.match(statement)
                if match:
                    key = (name, match.group(1).split()[0].upper(), match.group(2).lower())
                    faults.at(key)
                    if key[1] != "SELECT":
                        self.connection.wrote = key[2]  # type: ignore[attr-defined]
                return super().execute(statement, *arguments)

        class Connection(sqlite3.Connection):
            wrote = ""

            def cursor(self, *_: Any, **__: Any) -> Any:
                return super().cursor(Cursor)

            def commit(self) -> None:
                if self.wrote:
                    table, self.wrote = self.wrote, ""
                    try:
                        faults.at((name, "COMMIT", table))
                    except sqlite3.OperationalError:
                        self.rollback()  # as SQLite does with an error that ends the transaction
                        raise
                super().commit()

        return Connection

    @staticmethod
    def children(path: Path) -> list[str]:
        """States of the child workflows, which judge checkpoints."""
        with closing(sqlite3.connect(path)) as database:
            rows = database.execute("SELECT status FROM workflow_status WHERE name = 'judge_checkpoints'")
            return [status for (status,) in rows]

    @contextmanager
    def injected(self) -> Iterator[None]:
        def connect(dialect: Any, record: Any, arguments: Any, parameters: Any) -> None:
            if dialect.name == "sqlite":
                parameters["factory"] = self.connection(str(arguments[0]).rpartition("/")[2])

        sa.event.listen(sa.engine.Engine, "do_connect", connect)
        try:
            yield
        finally:
            sa.event.remove(sa.engine.Engine, "do_connect", connect)


class Impatient:
    """The module `time` with short sleeps, for the pauses of DBOS."""

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def sleep(self, seconds: float) -> None:
        time.sleep(min(seconds, 0.02))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiring, "_RECONCILE_SECONDS", 0.3)
    monkeypatch.setattr(context_module, "_LOST_SECONDS", 0.02)
    monkeypatch.setattr("dbos._sys_db.time", Impatient())


def spec(method: str) -> v1.SessionSpec:
    if method == "parameters":
        searched = v1.SessionSpec(intent="balance", environment="environments/CartPole-v1", max_iterations=2)
        searched.parameters.SetInParent()
        return searched
    return reward_session(
        intent="run",
        environment="environments/HalfCheetah-v5",
        seeds=1,
        steps_per_member=1000,
        max_iterations=2,
        reward_source="# good # curve=0.2\n",  # checkpoints are judged by child workflows
        judge_source=JUDGE,
    )


async def whole_session(stack: Stack, faults: Faults, method: str) -> v1.Session:
    stack.options = {"max_run_failures": 100}  # the scripted trainer ends where a real one redials
    with faults.injected():
        await stack.start()
        faults.active = True
        try:
            # A client repeats a request that the database refused.
            async with asyncio.timeout(100):
                created = await _repeated(stack, spec(method))
                await _ended(stack, created.name)
        finally:
            faults.active = False
    await watch(stack.sessions, created.name)
    session: v1.Session = await stack.sessions.GetSession(pb.GetSessionRequest(name=created.name))
    return session


async def _repeated(stack: Stack, requested: v1.SessionSpec) -> v1.Session:
    import grpc

    request = pb.CreateSessionRequest(spec=requested, session_id="faulty", request_id="one")
    while True:
        try:
            created: v1.Session = await stack.sessions.CreateSession(request)
            return created
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
            await asyncio.sleep(0.05)


async def _ended(stack: Stack, name: str) -> None:
    import grpc

    while True:
        try:
            session = await stack.sessions.GetSession(pb.GetSessionRequest(name=name))
            if session.HasField("end_time") and session.state not in (
                v1.SESSION_STATE_PENDING,
                v1.SESSION_STATE_RUNNING,
            ):
                return
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
        await asyncio.sleep(0.2)


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("code", "occurrence"),
    [
        (sqlite3.SQLITE_FULL, 1),
        pytest.param(sqlite3.SQLITE_FULL, 2, marks=pytest.mark.slow),
        pytest.param(sqlite3.SQLITE_BUSY, 1, marks=pytest.mark.slow),
        pytest.param(sqlite3.SQLITE_BUSY, 3, marks=pytest.mark.slow),
        pytest.param(sqlite3.SQLITE_IOERR, 1, marks=pytest.mark.slow),
        pytest.param(sqlite3.SQLITE_IOERR, 5, marks=pytest.mark.slow),
        pytest.param(sqlite3.SQLITE_FULL, -149, marks=pytest.mark.slow),
        pytest.param(sqlite3.SQLITE_BUSY, -61, marks=pytest.mark.slow),
    ],
)
async def test_no_statement_of_a_session_may_fail_it(stack: Stack, code: int, occurrence: int) -> None:
    faults = Faults(code, abs(occurrence), every=occurrence < 0)
    session = await whole_session(stack, faults, "reward")
    assert session.state == v1.SESSION_STATE_SUCCEEDED, session.state_reason
    kinds = {(name, kind) for name, kind, _ in faults.raised}
    if occurrence > 0:
        assert {name for name, _ in kinds} == {"dressage.db", "workflows.db"}
        assert {kind for _, kind in kinds} >= {"INSERT", "UPDATE", "SELECT", "COMMIT"} and len(faults.raised) >= 30
    assert faults.raised
    children = faults.children(stack.folder / "workflows.db")
    assert children and set(children) == {"SUCCESS"}, children
    events = await watch(stack.sessions, session.name)
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert [event.WhichOneof("payload") for event in events].count("session_ended") <= 1


HOLD = """
import sqlite3, sys
held = [sqlite3.connect(path, timeout=30, isolation_level=None) for path in sys.argv[1:]]
for connection in held:
    connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.readline()
"""


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Another process holds the write locks of both databases."""
    paths = [str(folder / name) for name in ("dressage.db", "workflows.db")]
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", HOLD, *paths], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        yield
        process.communicate("\n", timeout=10)


@contextmanager
def filled(folder: Path) -> Iterator[None]:
    """The disk of the folder has no free block."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(1 << 16))
    with filler.open("ab", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"0")
    yield
    filler.unlink()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount: {mounted.stderr.decode()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("obstacle", "seconds"),
    [(held, 3.0), (filled, 3.0), pytest.param(held, 33.0, marks=pytest.mark.slow)],
    ids=["lock", "disk", "long-lock"],
)
async def test_a_session_ends_once_a_real_obstacle_is_gone(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, obstacle: Any, seconds: float
) -> None:
    monkeypatch.setenv("DRESSAGE_TRAINER_GO", str(tmp_path / "go"))
    begun, threads = threading.Event(), []
    end = SessionStore.end

    def hinder() -> None:
        with obstacle(small_disk):
            begun.set()
            time.sleep(seconds)

    def hindered(store: SessionStore, ending: Any) -> v1.Session:
        if not threads:
            threads.append(threading.Thread(target=hinder))
            threads[0].start()
            assert begun.wait(30)
        return end(store, ending)

    monkeypatch.setattr(SessionStore, "end", hindered)
    stack = Stack(small_disk)
    await stack.neighbours.start()
    try:
        await stack.start()
        created = await _repeated(stack, spec("reward"))
        async with asyncio.timeout(seconds + 90):
            await _ended(stack, created.name)
        session = await stack.sessions.GetSession(pb.GetSessionRequest(name=created.name))
        assert session.state == v1.SESSION_STATE_SUCCEEDED, session.state_reason
        assert session.end_time.ToMicroseconds() - session.start_time.ToMicroseconds() > 1e6 * seconds - 1e6
    finally:
        await stack.stop()
        await stack.neighbours.stop()
        threads[0].join(60)
