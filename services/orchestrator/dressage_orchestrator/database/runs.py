"""Runs, their members and their assignments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from dressage.api.internal.v1 import run_service_pb2 as work
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import NotFound

from dressage_orchestrator import names
from dressage_orchestrator.clock import micros, timestamp
from dressage_orchestrator.database import events, executors
from dressage_orchestrator.database.engine import ReadTransaction, Transaction
from dressage_orchestrator.database.rows import swap
from dressage_orchestrator.database.tables import ASSIGNMENTS, EXECUTORS, MEMBERS, RUNS, SPEEDS

ENDED = frozenset({v1.RUN_STATE_SUCCEEDED, v1.RUN_STATE_FAILED, v1.RUN_STATE_CANCELLED})
"""States that a run leaves only when its session is resumed."""

LIVE = frozenset({v1.RUN_STATE_QUEUED, v1.RUN_STATE_STARTING, v1.RUN_STATE_RUNNING})
"""States in which a run has or wants a trainer."""

_SPEED_WEIGHT = 0.3


@dataclass(frozen=True)
class RunRow:
    """A run with what the API does not show of it."""

    run: v1.Run
    session: str
    iteration: int
    failures: int
    closed: bool
    checkpoint: str
    code_fault: bool

    @property
    def ended(self) -> bool:
        """Whether it is in a state for good."""
        return self.run.state in ENDED


def _row(found: Any) -> RunRow:
    return RunRow(
        run=v1.Run.FromString(found.data),
        session=found.session,
        iteration=found.iteration,
        failures=found.failures,
        closed=found.closed,
        checkpoint=found.checkpoint,
        code_fault=found.code_fault,
    )


def create(tx: Transaction, run: v1.Run, assignments: Sequence[work.Assignment], *, closed: bool = True) -> None:
    """Stores a new run, QUEUED, with its members and assignments. One of that name is left as it is."""
    lock(tx, run.name)
    if tx.execute(sa.select(RUNS.c.name).where(RUNS.c.name == run.name)).one_or_none() is not None:
        return
    parts = names.parse_run(run.name)
    stored = v1.Run()
    stored.CopyFrom(run)
    stored.ClearField("members")
    stored.state = v1.RUN_STATE_QUEUED
    stored.create_time.CopyFrom(timestamp(tx.now))
    key = {"name": run.name, "session": parts.session, "iteration": parts.iteration}
    row = {"data": stored.SerializeToString(), "state": stored.state, "attempt": 0, "failures": 0, "closed": closed}
    more = {"checkpoint": "", "code_fault": False, "progress_micros": 0, "version": 1, "create_micros": micros(tx.now)}
    tx.execute(sa.insert(RUNS).values(**key, **row, **more))
    for position, member in enumerate(run.members):
        ids = {"run": run.name, "id": member.name.rpartition("/")[2], "position": position}
        tx.execute(sa.insert(MEMBERS).values(**ids, data=member.SerializeToString()))
    add_assignments(tx, run.name, assignments)
    _tell(tx, parts, stored)


def add_assignments(tx: Transaction, run: str, assignments: Sequence[work.Assignment]) -> None:
    """Adds work to a run; assignments whose id is there already are left as they are."""
    lock(tx, run)
    known = {row.id for row in tx.execute(sa.select(ASSIGNMENTS.c.id).where(ASSIGNMENTS.c.run == run))}
    for entry in assignments:
        if entry.id not in known:
            row = {"run": run, "id": entry.id, "data": entry.SerializeToString(), "done": False}
            tx.execute(sa.insert(ASSIGNMENTS).values(**row))
    tx.touch(run)


def find(tx: ReadTransaction, name: str) -> RunRow | None:
    """A run without its members; None if there is none."""
    found = tx.execute(sa.select(RUNS).where(RUNS.c.name == name)).one_or_none()
    return None if found is None else _row(found)


def get(tx: ReadTransaction, name: str) -> RunRow:
    """A run with its members.

    :raises NotFound: when there is none.
    """
    row = find(tx, name)
    if row is None:
        raise NotFound(f"no run {name!r}", reason="RUN_NOT_FOUND", metadata={"run": name})
    row.run.members.extend(members(tx, name))
    return row


def members(tx: ReadTransaction, run: str) -> list[v1.Member]:
    """A run's members in order."""
    query = sa.select(MEMBERS.c.data).where(MEMBERS.c.run == run).order_by(MEMBERS.c.position)
    return [v1.Member.FromString(row.data) for row in tx.execute(query)]


def page(
    tx: ReadTransaction, session: str, *, iteration: int | None, after: tuple[int, str] | None, limit: int
) -> list[tuple[v1.Run, tuple[int, str]]]:
    """A session's runs with members, oldest first, each with its position."""
    query = sa.select(RUNS).where(RUNS.c.session == session)
    if iteration is not None:
        query = query.where(RUNS.c.iteration == iteration)
    if after is not None:
        later = sa.and_(RUNS.c.create_micros == after[0], RUNS.c.name > after[1])
        query = query.where(sa.or_(RUNS.c.create_micros > after[0], later))
    rows = tx.execute(query.order_by(RUNS.c.create_micros, RUNS.c.name).limit(limit)).all()
    return [(get(tx, row.name).run, (row.create_micros, row.name)) for row in rows]


def live(tx: ReadTransaction, session: str | None = None) -> list[RunRow]:
    """Runs that have or want a trainer, oldest first; of one session if given."""
    query = sa.select(RUNS).where(RUNS.c.state.in_(sorted(LIVE)))
    if session is not None:
        query = query.where(RUNS.c.session == session)
    return [_row(row) for row in tx.execute(query.order_by(RUNS.c.create_micros, RUNS.c.name))]


def counts(tx: ReadTransaction) -> dict[tuple[str, int], int]:
    """How many runs that have not ended are in each pool and state."""
    found: dict[tuple[str, int], int] = {}
    for row in live(tx):
        key = (row.run.pool, row.run.state)
        found[key] = found.get(key, 0) + 1
    return found


def change(tx: Transaction, name: str, edit: Callable[[v1.Run], dict[str, Any] | None]) -> v1.Run:
    """Changes a run by compare-and-swap; a change of state or attempt appends its event.

    :param edit: changes the message; may return further columns to write.
    :raises NotFound: when there is none.
    """
    lock(tx, name)
    before: list[tuple[int, int]] = [(0, 0)]
    extra: dict[str, Any] = {}

    def apply(message: v1.Run, _: Any) -> None:
        before[0] = (message.state, message.attempt)
        extra.clear()
        extra.update(edit(message) or {})

    def columns(message: v1.Run) -> dict[str, Any]:
        return {"state": message.state, "attempt": message.attempt, **extra}

    swapped = swap(tx, RUNS, {"name": name}, v1.Run, apply, columns)
    if swapped is None:
        raise NotFound(f"no run {name!r}", reason="RUN_NOT_FOUND", metadata={"run": name})
    message = swapped[0]
    # A run is queued before its first attempt is: that attempt's being queued is no news.
    first_attempt = before[0] == (v1.RUN_STATE_QUEUED, 0) and message.state == v1.RUN_STATE_QUEUED
    if (message.state, message.attempt) != before[0] and not first_attempt:
        _tell(tx, names.parse_run(name), message)
    tx.touch(name)
    return message


def end(
    tx: Transaction, name: str, state: v1.RunState.ValueType, failure: v1.Failure | None = None, *, fault: bool = False
) -> None:
    """Ends a run that has not ended; does nothing to one that has.

    :param fault: whether the generated code is to blame.
    """

    def edit(run: v1.Run) -> dict[str, Any]:
        if run.state in ENDED:
            return {}
        run.state = state
        run.end_time.CopyFrom(timestamp(tx.now))
        if failure is not None:
            run.failure.CopyFrom(failure)
        return {"code_fault": fault}

    change(tx, name, edit)


def change_member(tx: Transaction, run: str, member: str, edit: Callable[[v1.Member], None]) -> v1.Member:
    """Changes a member.

    :raises NotFound: when there is none.
    """
    lock(tx, run)
    where = (MEMBERS.c.run == run, MEMBERS.c.id == member)
    found = tx.execute(sa.select(MEMBERS.c.data).where(*where)).one_or_none()
    if found is None:
        raise NotFound(f"run {run!r} has no member {member!r}", reason="MEMBER_NOT_FOUND")
    message = v1.Member.FromString(found.data)
    edit(message)
    tx.execute(sa.update(MEMBERS).where(*where).values(data=message.SerializeToString()))
    return message


def open_assignments(tx: ReadTransaction, run: str) -> list[work.Assignment]:
    """Assignments that are not done, in order."""
    where = (ASSIGNMENTS.c.run == run, ASSIGNMENTS.c.done.is_(False))
    rows = tx.execute(sa.select(ASSIGNMENTS.c.data).where(*where).order_by(ASSIGNMENTS.c.id))
    return [work.Assignment.FromString(row.data) for row in rows]


def finish_assignment(tx: Transaction, run: str, assignment: int) -> None:
    """Marks an assignment as done."""
    lock(tx, run)
    where = (ASSIGNMENTS.c.run == run, ASSIGNMENTS.c.id == assignment)
    tx.execute(sa.update(ASSIGNMENTS).where(*where).values(done=True))
    tx.touch(run)


def env_steps(tx: ReadTransaction, session: str) -> int:
    """Environment steps that a session's members trained."""
    query = sa.select(MEMBERS.c.data).join(RUNS, RUNS.c.name == MEMBERS.c.run).where(RUNS.c.session == session)
    return sum(v1.Member.FromString(row.data).env_steps for row in tx.execute(query))


def remember_speed(tx: Transaction, kind: str, pool: str, steps_per_second: float) -> None:
    """Keeps a running mean of how fast runs of a kind (`durations.kind_of_run`) went here, for estimates."""
    tx.lock("speeds")
    where = (SPEEDS.c.environment == kind, SPEEDS.c.pool == pool)
    old = tx.execute(sa.select(SPEEDS.c.steps_per_second).where(*where)).one_or_none()
    if old is None:
        row = {"environment": kind, "pool": pool, "steps_per_second": steps_per_second}
        tx.execute(sa.insert(SPEEDS).values(**row))
        return
    blended = (1 - _SPEED_WEIGHT) * old.steps_per_second + _SPEED_WEIGHT * steps_per_second
    tx.execute(sa.update(SPEEDS).where(*where).values(steps_per_second=blended))


def speed(tx: ReadTransaction, kind: str, pool: str) -> float | None:
    """Environment steps per second of earlier runs of a kind; None if there were none."""
    where = (SPEEDS.c.environment == kind, SPEEDS.c.pool == pool)
    found = tx.execute(sa.select(SPEEDS.c.steps_per_second).where(*where)).one_or_none()
    return None if found is None else float(found.steps_per_second)


def claim(tx: Transaction, name: str, executor: str) -> bool:
    """Has the executor see to the run from now on, unless a living one does; whether it does now."""
    lock(tx, name)
    holder = tx.execute(sa.select(RUNS.c.claimed_by).where(RUNS.c.name == name)).scalar_one_or_none()
    if holder is None:
        return False
    if holder == executor:
        return True
    if holder and executors.alive(tx, holder):
        return False
    tx.execute(sa.update(RUNS).where(RUNS.c.name == name).values(claimed_by=executor))
    return True


def claimed(tx: ReadTransaction, executor: str) -> list[RunRow]:
    """Runs that have or want a trainer and that the executor sees to."""
    where = (RUNS.c.claimed_by == executor, RUNS.c.state.in_(sorted(LIVE)))
    return [_row(row) for row in tx.execute(sa.select(RUNS).where(*where))]


def orphans(tx: ReadTransaction) -> list[str]:
    """Names of runs that have or want a trainer and whose executor is no longer among the living."""
    living = sa.select(EXECUTORS.c.id).where(EXECUTORS.c.dead.is_(False))
    where = (RUNS.c.state.in_(sorted(LIVE)), RUNS.c.claimed_by != "", RUNS.c.claimed_by.not_in(living))
    return [row.name for row in tx.execute(sa.select(RUNS.c.name).where(*where).order_by(RUNS.c.create_micros))]


def lock(tx: Transaction, run: str) -> None:
    """Holds back others who change anything of the run's session."""
    tx.lock(names.session_name(names.parse_run(run).session))


def _tell(tx: Transaction, parts: names.RunParts, run: v1.Run) -> None:
    told = ev.RunChanged(run=run.name, state=run.state, attempt=run.attempt)
    if run.HasField("failure"):
        told.failure.CopyFrom(run.failure)
    events.append(tx, parts.session, ev.Event(run_changed=told), iteration=parts.iteration)
    tx.touch(run.name)
