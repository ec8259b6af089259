"""Retention keeps what is in use, whatever the mixture of sessions, references and ages."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from dressage.api.v1 import maintenance_service_pb2 as pb
from dressage.api.v1 import session_pb2 as v1
from dressage.artifacts import DirectoryStore
from dressage.errors import FailedPrecondition, Unavailable
from dressage_orchestrator.database import benchmarks, executors, idempotency, retention, sessions
from dressage_orchestrator.database.engine import Database, sqlite_url
from dressage_orchestrator.database.idempotency import RequestKey
from dressage_orchestrator.database.tables import BENCHMARKS, METADATA, SESSIONS
from dressage_orchestrator.launch.local import LocalLauncher
from dressage_orchestrator.retention import Policy, Retention
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.orchestrator.simulated_use import Hand, put, use_benchmark, use_session

START = datetime(2026, 1, 1, tzinfo=UTC)
POLICY = Policy(deleted=30, ended=None, history=10, events=20, requests=30, unreferenced=30)
ENDED, RUNNING = v1.SESSION_STATE_SUCCEEDED, v1.SESSION_STATE_RUNNING


class History:
    """Stands for DBOS, which the tests of the running server use."""

    def __init__(self) -> None:
        self.deleted: list[str] = []
        self.refused: set[str] = set()

    def check_launched(self) -> None: ...

    def delete_history(self, session: str) -> int:
        if session in self.refused:
            raise FailedPrecondition("a workflow has not ended", reason="WORKFLOW_RUNNING")
        self.deleted.append(session)
        return 1


class House:
    """A database, a store, logs and a clock."""

    def __init__(self, folder: Path, policy: Policy = POLICY) -> None:
        self.clock = Hand(START)
        self.database = Database(sqlite_url(folder / "d.db"), clock=self.clock)
        self.store = DirectoryStore(folder / "artifacts")
        self.logs = folder / "logs"
        self.history = History()
        launcher = LocalLauncher(log_folder=self.logs, on_result=None, max_parallel=1)  # type: ignore[arg-type]
        parts: Any = {"workflows": self.history, "launcher": lambda: launcher}
        self.retention = Retention(policy, database=self.database, store=self.store, **parts)

    def add(self, session: str, state: v1.SessionState.ValueType = ENDED, *, notes: str = "") -> None:
        with self.database.begin() as tx:
            use_session(tx, self.store, self.logs, session, state=state, notes=notes)

    def delete(self, session: str) -> None:
        with self.database.begin() as tx:
            sessions.delete(tx, session, grace_seconds=POLICY.deleted * 86_400)

    def collect(self, *, days: float, validate_only: bool = False) -> list[tuple[str, str]]:
        """Collect so many days after the start; what was removed, as kind and name."""
        self.clock.now = START + timedelta(days=days)
        parts = self.retention.collect(validate_only=validate_only)
        return [(pb.GarbageKind.Name(part.kind).removeprefix("GARBAGE_KIND_"), part.name) for part in parts]

    def rows_of(self, session: str) -> dict[str, int]:
        """Tables with rows that contain the session's name or id, and how many."""
        counts: dict[str, int] = {}
        with self.database.read() as tx:
            for table in METADATA.tables.values():
                rows = [row for row in tx.execute(sa.select(table)) if session in map(_first_name, row)]
                counts |= {table.name: len(rows)} if rows else {}
        return counts

    def artifacts(self) -> set[str]:
        return {info.key for info in self.store.list()}


def _first_name(value: object) -> str:
    return value.removeprefix("sessions/").partition("/")[0] if isinstance(value, str) else ""


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with opened(tmp_path) as house:
        yield house


@contextmanager
def opened(folder: Path, policy: Policy = POLICY) -> Iterator[House]:
    house = House(folder, policy)
    try:
        yield house
    finally:
        house.database.close()


def test_a_deleted_session_leaves_nothing_after_its_grace(house: House) -> None:
    house.add("gone")
    house.add("kept")
    everything = {key for key in house.artifacts() if key.startswith("sessions/kept/")}
    house.delete("gone")
    before = house.rows_of("gone")
    assert set(before) == {table.name for table in METADATA.tables.values()} - {
        "benchmarks", "charges", "counters", "executors", "leases", "shared_secrets", "speeds", "stamps"
    }  # fmt: skip
    assert ("DELETED_SESSION", "sessions/gone") not in house.collect(days=29, validate_only=True)
    assert ("DELETED_SESSION", "sessions/gone") in house.collect(days=31, validate_only=True)
    assert house.rows_of("gone") == before and house.history.deleted == []

    assert ("DELETED_SESSION", "sessions/gone") in house.collect(days=31)
    assert house.rows_of("gone") == {} and house.artifacts() == everything and "gone" in house.history.deleted
    assert [path.name for path in house.logs.iterdir()] == []  # the kept session's history was removed as well
    assert house.rows_of("kept")["sessions"] == 1 and house.collect(days=31) == []


def test_ended_sessions_lose_history_and_events_but_no_results(house: House) -> None:
    house.add("old")
    whole = house.rows_of("old")
    artifacts = house.artifacts()
    assert house.collect(days=9) == []
    assert house.collect(days=11) == [("HISTORY", "sessions/old")]
    assert house.history.deleted == ["old"] and list(house.logs.iterdir()) == []
    lost = {name for name, count in whole.items() if house.rows_of("old").get(name, 0) < count}
    assert lost == {"idempotency_keys", "reports", "report_sequences"}
    assert house.rows_of("old")["idempotency_keys"] == 1  # the one that all epochs share
    assert house.collect(days=21) == [("EVENTS", "sessions/old")]
    assert house.rows_of("old")["events"] == 1
    assert house.collect(days=22) == [] and house.artifacts() == artifacts


def test_a_running_session_loses_nothing(house: House) -> None:
    house.add("busy", RUNNING)
    before, keys = house.rows_of("busy"), house.artifacts()
    house.delete("busy")  # with force; it has not ended yet
    assert house.collect(days=300) == [("REQUEST_IDS", "")]
    assert {**house.rows_of("busy"), "request_ids": 1} == before and house.artifacts() == keys


def test_an_undeleted_session_is_kept_and_a_claimed_one_is_not(house: House) -> None:
    house.add("back")
    house.delete("back")
    with house.database.begin() as tx:
        sessions.change(tx, "back", lambda stored: stored.ClearField("delete_time"))
    assert ("DELETED_SESSION", "sessions/back") not in house.collect(days=100)
    house.delete("back")
    house.history.refused = {"back"}
    with pytest.raises(FailedPrecondition):
        house.collect(days=200)
    with house.database.read() as tx:
        assert retention.is_claimed(tx, "back")  # and the next collection continues
    house.history.refused = set()
    assert ("DELETED_SESSION", "sessions/back") in house.collect(days=200)


def test_a_resumed_session_has_a_history_again(house: House) -> None:
    house.add("again")
    assert house.collect(days=11) == [("HISTORY", "sessions/again")]
    with house.database.begin() as tx:
        sessions.change(tx, "again", lambda stored: setattr(stored, "state", RUNNING))
    assert ("EVENTS", "sessions/again") not in house.collect(days=100)
    with house.database.begin() as tx:
        sessions.change(tx, "again", lambda stored: setattr(stored, "state", ENDED))
    assert ("HISTORY", "sessions/again") in house.collect(days=200)


def test_a_store_that_fails_delays_only_its_own_part(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.add("first")
    house.add("second")
    house.delete("first")
    house.delete("second")
    delete = DirectoryStore.delete_prefix

    def failing(store: DirectoryStore, prefix: str) -> int:
        if prefix == "sessions/first/":
            raise Unavailable("the store is away")
        return delete(store, prefix)

    monkeypatch.setattr(DirectoryStore, "delete_prefix", failing)
    with pytest.raises(Unavailable, match="away"):
        house.collect(days=31)
    assert house.rows_of("second") == {} and house.rows_of("first")["sessions"] == 1
    monkeypatch.undo()
    assert ("DELETED_SESSION", "sessions/first") in house.collect(days=31)


def test_ended_sessions_are_deleted_where_the_policy_says_so(tmp_path: Path) -> None:
    policy = Policy(deleted=5, ended=40, history=10, events=20, requests=30, unreferenced=30)
    with opened(tmp_path, policy) as house:
        house.add("old")
        house.add("busy", RUNNING)
        assert ("ENDED_SESSION", "sessions/old") not in house.collect(days=39)
        assert house.collect(days=41) == [("ENDED_SESSION", "sessions/old")]
        assert ("DELETED_SESSION", "sessions/old") in house.collect(days=47)
        assert house.rows_of("busy")["sessions"] == 1


def created(request_id: str) -> RequestKey:
    return RequestKey("", "CreateSession", request_id)


def test_request_ids_of_benchmarks_under_way_are_kept(house: House) -> None:
    with house.database.begin() as tx:
        use_benchmark(tx, "b-1", ["x"], ended=False)
        for name in ("benchmarks/b-1/1", "benchmarks/b-2/1"):
            idempotency.record_request(tx, created(name), v1.Session(), "sessions/x")
    house.collect(days=31)
    with house.database.begin() as tx:
        assert idempotency.find_request(tx, created("benchmarks/b-1/1"), v1.Session()) == "sessions/x"
        assert idempotency.find_request(tx, created("benchmarks/b-2/1"), v1.Session()) is None


def test_a_benchmark_that_continues_meanwhile_is_kept(house: House) -> None:
    with house.database.begin() as tx:
        use_benchmark(tx, "b-1", [], ended=True)
        benchmarks.change(tx, "benchmarks/b-1", lambda entry: entry.ClearField("end_time"))
        assert retention.delete_benchmark(tx, "benchmarks/b-1") == 0
        assert benchmarks.pending(tx) == ["benchmarks/b-1"]


def test_one_of_several_servers_holds_the_lease(house: House) -> None:

    with house.database.begin() as tx:
        first, second = executors.register(tx, "one"), executors.register(tx, "two")
        assert executors.begin_turn(tx, "retention", first, seconds=60)
        assert not executors.begin_turn(tx, "retention", second, seconds=60)
        assert not executors.begin_turn(tx, "retention", first, seconds=60)
    house.clock.now += timedelta(seconds=61)
    with house.database.begin() as tx:
        assert not executors.begin_turn(tx, "retention", second, seconds=60)  # due, but the first one is alive
        assert executors.begin_turn(tx, "retention", first, seconds=60)
        executors.expire(tx, first)
        assert not executors.begin_turn(tx, "retention", second, seconds=60)  # takes over; not due yet
    house.clock.now += timedelta(seconds=61)
    with house.database.begin() as tx:
        assert executors.begin_turn(tx, "retention", second, seconds=60)
        assert not executors.begin_turn(tx, "retention", first, seconds=60)


FATES = st.sampled_from(["running", "ended", "deleted", "deleted late", "missing", "missing late"])
NAMES = ["a", "a-b", "ab", "b", "c1"]


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a database without rows, because its migrations take longer than an example."""
    path = tmp_path_factory.mktemp("empty") / "d.db"
    Database(sqlite_url(path), clock=Hand(START)).close()
    return path


@settings(max_examples=15, deadline=None)
@given(
    fates=st.lists(FATES, min_size=len(NAMES), max_size=len(NAMES)),
    references=st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)), max_size=4),
    benchmark=st.tuples(st.lists(st.sampled_from(NAMES), max_size=2), st.booleans()),
)
def test_nothing_in_use_is_ever_removed(
    empty: Path, fates: list[str], references: list[tuple[str, str]], benchmark: tuple[list[str], bool]
) -> None:
    """Compare with a restatement over names: late fates are too young for removal at the time of the collection."""
    with tempfile.TemporaryDirectory() as folder, opened(Path(shutil.copy(empty, folder)).parent) as house:
        fate = dict(zip(NAMES, fates, strict=True))
        texts = {
            name: " ".join(f"as in sessions/{to}/iterations/1" for by, to in references if by == name) for name in NAMES
        }
        for name in NAMES:
            if fate[name].startswith("missing"):
                late = START + timedelta(days=50 if fate[name].endswith("late") else 0)
                put(house.store, f"sessions/{name}/iterations/1/reward.py", late)
            else:
                house.add(name, RUNNING if fate[name] == "running" else ENDED, notes=texts[name])
        put(house.store, "shared/thing", START)
        with house.database.begin() as tx:
            use_benchmark(tx, "b-1", benchmark[0], ended=benchmark[1])
        for days, group in ((0, "deleted"), (50, "deleted late")):
            house.clock.now = START + timedelta(days=days)
            for name in (name for name in NAMES if fate[name] == group):
                house.delete(name)

        kept = {name for name in NAMES if fate[name] in ("running", "ended", "deleted late", "missing late")}
        kept |= set() if benchmark[1] else set(benchmark[0])
        for _ in NAMES:  # what is kept keeps what it refers to; artifacts without a session refer to nothing
            kept |= {to for by, to in references if by in kept and not fate[by].startswith("missing")}
        expected = set(NAMES) - kept
        removed = {name.removeprefix("sessions/") for kind, name in house.collect(days=60) if kind in (
            "DELETED_SESSION", "ARTIFACTS"
        )}  # fmt: skip
        assert removed == expected
        left = {key.split("/")[1] for key in house.artifacts() if key.startswith("sessions/")}
        assert left == set(NAMES) - expected and house.store.exists("shared/thing")
        with house.database.read() as tx:
            rows = {row.id for row in tx.execute(sa.select(SESSIONS.c.id))}
            tables = len(tx.execute(sa.select(BENCHMARKS.c.id)).all())
        assert rows == {name for name in NAMES if not fate[name].startswith("missing")} - expected
        assert tables == (0 if benchmark[1] and not set(benchmark[0]) & rows else 1)
