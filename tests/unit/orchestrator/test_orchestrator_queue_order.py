"""The queue of sessions against a plain restatement: its order, its places and who is admitted, on two servers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from dressage.api.v1 import session_pb2 as v1
from dressage_orchestrator.database import queue, sessions, workflows
from dressage_orchestrator.database.engine import Database, sqlite_url
from dressage_orchestrator.database.queue_order import QueueChanges, QueueOrder
from hypothesis import given, settings
from hypothesis import strategies as st

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Plain:
    """The queue, restated without memory: everything is sorted and counted anew."""

    since: dict[str, int] = field(default_factory=dict)
    cancelled: set[str] = field(default_factory=set)
    running: list[str] = field(default_factory=list)

    def order(self) -> list[str]:
        return sorted(self.since, key=lambda session: (self.since[session], session))

    def ranks(self) -> dict[str, tuple[int, int]]:
        return {session: (place, len(self.since)) for place, session in enumerate(self.order(), start=1)}

    def admit(self, limit: int, held: set[str]) -> list[str]:
        admitted, running = [], sum(1 for session in self.running if session not in held)
        for session in self.order():
            if session in held:
                continue
            if session not in self.cancelled:
                if limit and running >= limit:
                    continue
                running += 1
            admitted.append(session)
        self.running += admitted
        for session in admitted:
            del self.since[session]
        return admitted


def rank(session: v1.Session) -> tuple[int, int]:
    return session.queue.place, session.queue.length


class Servers:
    """Two servers on one file: a database whose order in memory is that of one or the other, and a clock that the test sets."""

    def __init__(self, file: Path) -> None:
        self.passed = timedelta()
        self.orders = (QueueOrder(), QueueOrder())
        self.database = Database(sqlite_url(file), clock=lambda: BEGIN + self.passed)

    def forget(self) -> None:
        """Begin anew, without sessions."""
        self.orders, self.passed = (QueueOrder(), QueueOrder()), timedelta()
        with self.database.begin() as tx:
            for table in ("sessions", "events", "counters"):
                tx.connection.exec_driver_sql(f"DELETE FROM {table}")

    def on(self, number: int) -> Database:
        """The database as one of the servers has it."""
        self.database.queue = self.orders[number]
        return self.database

    def roll_back(self, number: int, limit: int) -> None:
        """Change the queue in a transaction that is not committed."""
        with self.on(number).begin() as tx:
            sessions.create(tx, "lost", v1.SessionSpec(intent="run"))
            queue.enter(tx, "lost")
            workflows.admit(tx, limit)
            raise ZeroDivisionError


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    servers = Servers(tmp_path_factory.mktemp("queue") / "d.db")
    yield servers
    servers.database.close()


STEP = st.tuples(
    st.sampled_from(["enter", "enter", "enter_and_admit", "roll_back", "admit", "cancel", "end", "look"]),
    st.integers(0, 1),
    st.integers(-2, 3),
    st.integers(0, 9),
)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(limit=st.integers(0, 3), steps=st.lists(STEP, max_size=20), held=st.sets(st.integers(0, 9), max_size=3))
def test_places_and_admission_equal_a_plain_restatement(
    servers: Servers, limit: int, steps: list[tuple[str, int, int, int]], held: set[int]
):
    servers.forget()
    plain, count = Plain(), itertools.count()
    hold = {f"s{number}" for number in held}
    for action, server, seconds, choice in steps:
        database = servers.on(server)
        servers.passed += timedelta(seconds=seconds)
        if action.startswith("enter"):
            # Ids whose order is not that of their creation, so that the id decides ties of time.
            session = f"s{(next(count) * 7) % 101}"
            plain.since[session] = round((BEGIN + servers.passed).timestamp() * 1e6)
            with database.begin() as tx:
                sessions.create(tx, session, v1.SessionSpec(intent="run"))
                queue.enter(tx, session)
                if action == "enter_and_admit":
                    assert [entry for entry, _ in workflows.admit(tx, limit, held_sessions=hold)] == plain.admit(
                        limit, hold
                    )
                if session in plain.since:  # a transaction sees its own changes
                    assert rank(sessions.get(tx, session)) == plain.ranks()[session]
        elif action == "roll_back":
            with pytest.raises(ZeroDivisionError):
                servers.roll_back(server, limit)
        elif action == "admit":
            with database.begin() as tx:
                assert [entry for entry, _ in workflows.admit(tx, limit, held_sessions=hold)] == plain.admit(
                    limit, hold
                )
        elif action == "cancel" and plain.since:
            session = plain.order()[choice % len(plain.since)]
            plain.cancelled.add(session)
            with database.begin() as tx:
                sessions.request_cancel(tx, session, "no longer needed")
        elif action == "end" and plain.running:
            session = plain.running.pop(choice % len(plain.running))
            with database.begin() as tx:
                sessions.change(tx, session, lambda entry: setattr(entry, "state", v1.SESSION_STATE_FAILED))
        with database.read() as tx:  # the other server has read fewer of the changes
            page = sessions.page(tx, limit=100, before=None, show_deleted=False, state=0)
            listed = [entry for entry, _ in page.entries]
            assert all(entry.queue == sessions.get(tx, entry.name.partition("/")[2]).queue for entry in listed[:5])
        places = {entry.name.partition("/")[2]: rank(entry) for entry in listed if entry.HasField("queue")}
        assert places == plain.ranks()


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    entries=st.dictionaries(st.text("ab", min_size=1, max_size=3), st.integers(1, 5), max_size=10),
    later=st.dictionaries(st.text("ab", min_size=1, max_size=3), st.integers(0, 5), max_size=10),
)
def test_pending_changes_rank_as_applied_ones(entries: dict[str, int], later: dict[str, int]):
    order = QueueOrder()
    order.apply(QueueChanges(1, entries, whole=True))
    merged = {session: since for session, since in {**entries, **later}.items() if since}
    keys = sorted((since, session) for session, since in merged.items())
    ranks = {session: (place, len(keys)) for place, (_, session) in enumerate(keys, start=1)}
    assert {session: order.rank((since, session), later) for session, since in merged.items()} == ranks
    order.apply(QueueChanges(2, later))
    order.apply(QueueChanges(1, entries, whole=True))  # what a thread has read earlier does not replace it
    assert {session: order.rank_of(session) for session in merged} == ranks
    assert all(order.rank_of(session) is None for session in later.keys() - merged.keys())


def test_a_place_reads_what_changed_and_not_the_queue(servers: Servers):
    servers.forget()
    database = servers.on(0)
    with database.begin() as tx:
        for number in range(200):
            sessions.create(tx, f"s{number:03}", v1.SessionSpec(intent="run"))
            queue.enter(tx, f"s{number:03}")
    with database.read() as tx:
        assert rank(sessions.get(tx, "s150")) == (151, 200)
    with database.begin() as tx:
        assert [session for session, _ in workflows.admit(tx, 1)] == ["s000"]
    with database.read() as tx:
        assert queue.refresh(tx) == QueueChanges(201, {"s000": 0})
    with database.read() as tx:
        assert queue.refresh(tx).entries == {}
        assert rank(sessions.get(tx, "s150")) == (150, 199)


def test_a_row_that_was_removed_leaves_the_order(servers: Servers, monkeypatch: pytest.MonkeyPatch):
    servers.forget()
    for name in ("sa", "sb"):
        with servers.on(0).begin() as tx:
            sessions.create(tx, name, v1.SessionSpec(intent="run"))
            queue.enter(tx, name)
    with servers.on(0).read() as tx:
        assert sessions.get(tx, "sb").queue.length == 2
    with servers.on(1).begin() as tx:
        workflows.admit(tx, 1)
        tx.connection.exec_driver_sql("DELETE FROM sessions WHERE id = 'sa'")
    monkeypatch.setattr(queue, "_WHOLE_SECONDS", 0.0)
    with servers.on(0).read() as tx:
        assert sessions.get(tx, "sb").queue.length == 1
