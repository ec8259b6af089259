"""An error of SQLite in any statement of a session, of any table, in both databases: the session ends as it would without.

Sessions of the method `reward`, whose checkpoints child workflows judge; the other methods are in
`test_orchestrator_database_methods.py`.
"""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb
from dressage_orchestrator.database.store import SessionStore

from tests.fakes.specs import reward_session
from tests.integration.orchestrator.database_faults import Faults, ended, repeated, shorten_pauses
from tests.integration.orchestrator.fakes import JUDGE, watch
from tests.integration.orchestrator.stack import Stack


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_pauses(monkeypatch)


def spec() -> v1.SessionSpec:
    return reward_session(
        intent="run",
        environment="environments/HalfCheetah-v5",
        seeds=1,
        steps_per_member=1000,
        max_iterations=2,
        reward_source="# good # curve=0.2\n",  # checkpoints are judged by child workflows
        judge_source=JUDGE,
    )


async def whole_session(stack: Stack, faults: Faults) -> v1.Session:
    stack.options = {"max_run_failures": 100}  # the scripted trainer ends where a real one redials
    with faults.injected():
        await stack.start()
        with faults.raising():
            async with asyncio.timeout(100):
                created = await repeated(stack, spec())
                await ended(stack, created.name)
    await watch(stack.sessions, created.name)
    session: v1.Session = await stack.sessions.GetSession(pb.GetSessionRequest(name=created.name))
    return session


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
    session = await whole_session(stack, faults)
    assert session.state == v1.SESSION_STATE_SUCCEEDED, session.state_reason
    faults.check()
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
        created = await repeated(stack, spec())
        async with asyncio.timeout(seconds + 90):
            await ended(stack, created.name)
        session = await stack.sessions.GetSession(pb.GetSessionRequest(name=created.name))
        assert session.state == v1.SESSION_STATE_SUCCEEDED, session.state_reason
        assert session.end_time.ToMicroseconds() - session.start_time.ToMicroseconds() > 1e6 * seconds - 1e6
    finally:
        await stack.stop()
        await stack.neighbours.stop()
        threads[0].join(60)
