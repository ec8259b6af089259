"""Time in which nothing works on a session is neither time worked nor part of its wall-clock budget."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from dressage.api.v1 import session_pb2 as v1
from dressage.sdk.texts import seconds_worked
from dressage_orchestrator.clock import timestamp
from dressage_orchestrator.database import workflows
from dressage_orchestrator.database.engine import Database, sqlite_url
from dressage_orchestrator.database.store import SessionStore
from dressage_orchestrator.lifecycle import budget

from tests.unit.orchestrator.leases import add_session


class Clock:
    now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def database(tmp_path: Path, clock: Clock) -> Iterator[Database]:
    database = Database(sqlite_url(tmp_path / "d.db"), clock=clock)
    with database.begin() as tx:
        add_session(tx, "s")
    yield database
    database.close()


@pytest.fixture
def store(database: Database) -> SessionStore:
    return SessionStore(database, "s", 0, retry=lambda work: work())


def test_the_time_without_a_server_is_idle(store: SessionStore, clock: Clock) -> None:
    clock.advance(5)
    assert store.begin().idle_seconds == 0  # it waited, but had not started
    clock.advance(20)
    store.request_approval(1, key="a")
    clock.advance(30)
    assert store.begin().idle_seconds == 0  # the wait for the approval is counted when it ends
    store.end_approval(1, since=clock.now.timestamp() - 30, key="b", note="go")
    clock.advance(1000)
    session = store.begin()
    assert (session.idle_seconds, session.approval_wait_seconds) == (1000, 30)
    session.end_time.CopyFrom(timestamp(clock.now + timedelta(seconds=7)))
    assert seconds_worked(session) == 27


def test_downtime_within_an_epoch_is_idle_and_counted_once(
    database: Database, store: SessionStore, clock: Clock
) -> None:
    def after(*names: str) -> v1.Session:
        workflows.end_downtime(database, names)
        return store.get()

    clock.advance(5)
    assert after("s").idle_seconds == 0  # it is pending
    store.begin()
    clock.advance(20)
    store.request_approval(1, key="a")
    clock.advance(100)
    assert after("s").idle_seconds == 0  # it waits for an approval
    store.end_approval(1, since=clock.now.timestamp() - 100, key="b", note="go")
    clock.advance(1000)
    assert after("unknown", "s").idle_seconds == 1000
    assert after("s").idle_seconds == 1000
    clock.advance(7)
    assert after("s").idle_seconds == 1007
    assert store.begin().idle_seconds == 1007  # its step is repeated after a kill before it was recorded


def test_idle_time_does_not_use_up_the_wall_clock_budget(clock: Clock) -> None:
    session = v1.Session(idle_seconds=3600)
    session.spec.budget.wall_time.FromSeconds(60)
    session.start_time.CopyFrom(timestamp(clock.now))
    end = clock.now + timedelta(seconds=3660)
    assert not budget.wall_time_exhausted(session, now=end - timedelta(seconds=1))
    assert budget.wall_time_exhausted(session, now=end)
