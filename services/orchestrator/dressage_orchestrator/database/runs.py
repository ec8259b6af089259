"""Runs: leases of trainers. A session has at most one live run.

A run is released in the transaction that finds it without open assignments. An assignment that is added afterwards finds no
live run and gets a new one, so none is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import NotFound

from dressage_orchestrator import resource_names
from dressage_orchestrator.clock import micros, timestamp
from dressage_orchestrator.database import assignments, events, executors, pages
from dressage_orchestrator.database.engine import ReadTransaction, Transaction
from dressage_orchestrator.database.pages import Page
from dressage_orchestrator.database.tables import EXECUTORS, RUNS
from dressage_orchestrator.database.transactions import swap

ENDED = frozenset({v1.RUN_STATE_SUCCEEDED, v1.RUN_STATE_FAILED, v1.RUN_STATE_CANCELLED})
"""Final states of a run; later assignments get a new run."""

LIVE = frozenset({v1.RUN_STATE_QUEUED, v1.RUN_STATE_STARTING, v1.RUN_STATE_RUNNING})
"""States of a run that has or needs a trainer."""

MAX_CONDITIONS = 50

# Built once: to build a statement takes longer than to execute it.
_AT_ONCE = 500
"""Names in one query; SQLite limits the parameters of a statement."""
_FIND = sa.select(RUNS).where(RUNS.c.name == sa.bindparam("name"))
_LIVE = sa.select(RUNS).where(RUNS.c.state.in_(sorted(LIVE)))
_LIVE_OF = _LIVE.where(RUNS.c.session == sa.bindparam("session"))
_CLAIMED_BY = sa.select(RUNS.c.claimed_by).where(RUNS.c.name == sa.bindparam("name"))
_QUEUED_SINCE = sa.select(sa.func.min(RUNS.c.state_micros)).where(
    RUNS.c.pool == sa.bindparam("pool"),
    RUNS.c.state == v1.RUN_STATE_QUEUED,
    RUNS.c.session != sa.bindparam("session"),
)


@dataclass(frozen=True)
class RunRow:
    """A run with its internal columns.

    :param state_micros: time of the last change of state, microseconds since the epoch.
    :param counted_attempt: the newest attempt whose failure was counted.
    :param idle_micros: time since which it has no open assignment, microseconds since the epoch; 0 while it has one.
    :param release: whether to release it as soon as it has no open assignment.
    """

    run: v1.Run
    session: str
    number: int
    state_micros: int
    counted_attempt: int
    idle_micros: int
    release: bool

    @property
    def ended(self) -> bool:
        """Whether the state is final."""
        return self.run.state in ENDED


def _row(row: Any) -> RunRow:
    return RunRow(
        run=v1.Run.FromString(row.data),
        session=row.session,
        number=row.number,
        state_micros=row.state_micros,
        counted_attempt=row.counted_attempt,
        idle_micros=row.idle_micros,
        release=row.release,
    )


def create(tx: Transaction, session: str, *, pool: str, executor: str = "") -> RunRow:
    """Store the session's next run, QUEUED.

    :param executor: the server that starts its trainers.
    """
    tx.lock(resource_names.session_name(session))
    last = tx.execute(sa.select(sa.func.max(RUNS.c.number)).where(RUNS.c.session == session)).scalar_one()
    number = (last or 0) + 1
    run = v1.Run(name=resource_names.run_name(session, f"r{number}"), state=v1.RUN_STATE_QUEUED, pool=pool)
    run.create_time.CopyFrom(timestamp(tx.now))
    row = {"name": run.name, "session": session, "number": number, "pool": pool, "data": run.SerializeToString()}
    columns = {"state": run.state, "state_micros": micros(tx.now), "attempt": 0, "counted_attempt": 0, "idle_micros": 0}
    more = {"release": False, "claimed_by": executor, "version": 1}
    tx.execute(sa.insert(RUNS).values(**row, **columns, **more))
    _append_event(tx, session, run)
    tx.touch(queue_topic(pool))
    return RunRow(run, session, number, micros(tx.now), counted_attempt=0, idle_micros=0, release=False)


def queue_topic(pool: str) -> str:
    """The topic of runs that are queued for a trainer of the pool."""
    return f"queues/{pool}"


def find(tx: ReadTransaction, name: str) -> RunRow | None:
    """Read a run; None if there is none."""
    row = tx.execute(_FIND, {"name": name}).one_or_none()
    return None if row is None else _row(row)


def find_all(tx: ReadTransaction, names: Collection[str]) -> dict[str, RunRow]:
    """Read runs, by their names; those that do not exist are left out."""
    rows: dict[str, RunRow] = {}
    ordered = sorted(names)
    for first in range(0, len(ordered), _AT_ONCE):
        some = ordered[first : first + _AT_ONCE]
        rows |= {row.name: _row(row) for row in tx.execute(sa.select(RUNS).where(RUNS.c.name.in_(some)))}
    return rows


def get(tx: ReadTransaction, name: str) -> RunRow:
    """Read a run.

    :raises NotFound: when there is none.
    """
    row = find(tx, name)
    if row is None:
        raise _missing(name)
    return row


def page(tx: ReadTransaction, session: str, *, after: int = 0, limit: int) -> Page[RunRow]:
    """List a session's runs with numbers greater than ``after``, oldest first."""
    query = sa.select(RUNS).where(RUNS.c.session == session, RUNS.c.number > after).order_by(RUNS.c.number)
    rows, more = pages.read(tx, query, sa.func.length(RUNS.c.data), limit=limit)
    return Page([_row(row) for row in rows], more)


def live(tx: ReadTransaction, session: str | None = None) -> list[RunRow]:
    """List live runs, oldest first, of all sessions or of one."""
    result = tx.execute(_LIVE) if session is None else tx.execute(_LIVE_OF, {"session": session})
    rows = [_row(row) for row in result]
    return sorted(rows, key=lambda row: (row.run.create_time.ToMicroseconds(), row.run.name))


def live_of(tx: ReadTransaction, session: str) -> RunRow | None:
    """Read the session's live run; None if it has none."""
    rows = live(tx, session)
    return rows[-1] if rows else None


def change(tx: Transaction, name: str, edit: Callable[[v1.Run], dict[str, Any] | None]) -> v1.Run:
    """Change a run by compare-and-swap; a change of state or attempt appends its event.

    :param edit: changes the message; may return further columns to write.
    :raises NotFound: when there is none.
    """
    lock(tx, name)
    before = v1.Run()
    extra: dict[str, Any] = {}

    def apply(message: v1.Run) -> None:
        before.CopyFrom(message)
        extra.clear()
        extra.update(edit(message) or {})

    def columns(message: v1.Run) -> dict[str, Any]:
        moved = {"state_micros": micros(tx.now)} if message.state != before.state else {}
        return {"state": message.state, "attempt": message.attempt, **moved, **extra}

    swapped = swap(tx, RUNS, {"name": name}, v1.Run, apply, columns)
    if swapped is None:
        raise _missing(name)
    message = swapped[0]
    # The first attempt needs no event, because the creation of the run has appended one.
    first_attempt = (before.state, before.attempt) == (v1.RUN_STATE_QUEUED, 0) and message.state == v1.RUN_STATE_QUEUED
    if (message.state, message.attempt) != (before.state, before.attempt) and not first_attempt:
        _append_event(tx, resource_names.parse_run(name).session, message)
    if message.state == v1.RUN_STATE_QUEUED != before.state:
        tx.touch(queue_topic(message.pool))
    tx.touch(name)
    return message


def end(tx: Transaction, name: str, state: v1.RunState.ValueType, failure: v1.Failure | None = None) -> None:
    """End a run, unless it has ended."""

    def edit(run: v1.Run) -> None:
        if run.state in ENDED:
            return
        run.state = state
        run.assignment = ""
        run.end_time.CopyFrom(timestamp(tx.now))
        if failure is not None:
            run.failure.CopyFrom(failure)

    change(tx, name, edit)


def set_assignment(tx: Transaction, name: str, assignment: str) -> None:
    """Record the assignment that the run's trainer executes; empty: none."""
    row = get(tx, name)
    if row.ended or (row.run.assignment == assignment and bool(row.idle_micros) is not bool(assignment)):
        return

    def edit(run: v1.Run) -> dict[str, Any]:
        run.assignment = assignment
        return {"idle_micros": 0 if assignment else row.idle_micros or micros(tx.now)}

    change(tx, name, edit)


def release_if_idle(tx: Transaction, name: str, *, idle_seconds: float, queued_seconds: float) -> float | None:
    """End the run as SUCCEEDED if it has been idle long enough.

    A run is released after ``idle_seconds`` without an open assignment, or at once if its release was requested or the run of
    another session waits for a trainer of the same pool.

    :param queued_seconds: how long a run may be QUEUED although there is capacity for it.
    :return: seconds until it may be released; None if it has an open assignment or has ended, now or earlier.
    """
    lock(tx, name)
    row = get(tx, name)
    if row.ended or assignments.open_of(tx, row.session):
        return None
    if row.idle_micros == 0:
        now = micros(tx.now)
        change(tx, name, lambda _: {"idle_micros": now})
    seconds = seconds_idle_left(tx, row, idle_seconds=idle_seconds, queued_seconds=queued_seconds)
    if seconds > 0:
        return seconds
    end(tx, name, v1.RUN_STATE_SUCCEEDED)
    return None


def seconds_idle_left(tx: ReadTransaction, row: RunRow, *, idle_seconds: float, queued_seconds: float) -> float:
    """Seconds for which a run without an open assignment is kept (see `release_if_idle`); not positive: it is due."""
    if row.release:
        return 0.0
    now = micros(tx.now)
    due = (row.idle_micros or now) + round(idle_seconds * 1e6)
    since = tx.execute(_QUEUED_SINCE, {"pool": row.run.pool, "session": row.session}).scalar_one()
    if since is not None:
        due = min(due, since + round(queued_seconds * 1e6))
    return (due - now) / 1e6


def add_condition(tx: Transaction, name: str, kind: str, message: str, *, attempt: int = 0) -> None:
    """Add a condition to a run; only the newest `MAX_CONDITIONS` are kept.

    :param attempt: the attempt that is observed; 0: none alone.
    """

    def edit(run: v1.Run) -> None:
        del run.conditions[: max(0, len(run.conditions) + 1 - MAX_CONDITIONS)]
        run.conditions.add(type=kind, message=message, time=timestamp(tx.now), attempt=attempt)

    change(tx, name, edit)


def claim(tx: Transaction, name: str, executor: str) -> bool:
    """Claim the run for the executor, unless another live executor has claimed it; whether the executor now holds it."""
    lock(tx, name)
    holder = tx.execute(_CLAIMED_BY, {"name": name}).scalar_one_or_none()
    if holder is None:
        return False
    if holder == executor:
        return True
    if holder and executors.is_alive(tx, holder):
        return False
    tx.execute(sa.update(RUNS).where(RUNS.c.name == name).values(claimed_by=executor))
    return True


def of_executor(tx: ReadTransaction, executor: str) -> list[RunRow]:
    """List live runs that the executor has claimed."""
    match = (RUNS.c.claimed_by == executor, RUNS.c.state.in_(sorted(LIVE)))
    return [_row(row) for row in tx.execute(sa.select(RUNS).where(*match).order_by(RUNS.c.name))]


def orphans(tx: ReadTransaction) -> list[str]:
    """List names of live runs whose executor has expired, oldest first."""
    alive = sa.select(EXECUTORS.c.id).where(EXECUTORS.c.expired.is_(False))
    match = (RUNS.c.state.in_(sorted(LIVE)), RUNS.c.claimed_by != "", RUNS.c.claimed_by.not_in(alive))
    return [row.name for row in tx.execute(sa.select(RUNS.c.name).where(*match).order_by(RUNS.c.state_micros))]


def lock(tx: Transaction, run: str) -> None:
    """Lock the run's session against concurrent transactions."""
    tx.lock(resource_names.session_name(resource_names.parse_run(run).session))


def _missing(name: str) -> NotFound:
    return NotFound(f"no run {name!r}", reason="RUN_NOT_FOUND", metadata={"run": name})


def _append_event(tx: Transaction, session: str, run: v1.Run) -> None:
    changed = ev.RunChanged(run=run.name, state=run.state, attempt=run.attempt)
    if run.HasField("failure"):
        changed.failure.CopyFrom(run.failure)
    events.append(tx, session, ev.Event(run_changed=changed))
    tx.touch(run.name)
