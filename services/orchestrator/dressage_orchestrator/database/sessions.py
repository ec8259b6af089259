"""Rows of sessions, iterations and notes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import AlreadyExists, NotFound
from google.protobuf.timestamp_pb2 import Timestamp

from dressage_orchestrator import resource_names
from dressage_orchestrator.clock import micros, timestamp
from dressage_orchestrator.database import events, idempotency, pages, queue, summaries
from dressage_orchestrator.database.engine import ReadTransaction, Transaction
from dressage_orchestrator.database.pages import Page
from dressage_orchestrator.database.tables import CHARGES, DIRECTIONS, ITERATIONS, NOTES, SESSIONS
from dressage_orchestrator.database.transactions import swap

ENDED = frozenset(
    {
        v1.SESSION_STATE_SUCCEEDED,
        v1.SESSION_STATE_EXHAUSTED,
        v1.SESSION_STATE_FAILED,
        v1.SESSION_STATE_CANCELLED,
    }
)
"""Final states; only a resume leaves them."""

ACTIVE = frozenset({v1.SESSION_STATE_PENDING, v1.SESSION_STATE_RUNNING})
"""States of a session that has not ended."""

ENDED_TOPIC = "sessions/ended"
"""The topic of sessions that end; what waits for their place subscribes to it."""

_ITERATIONS_AT_ONCE = 100

# Built once: to build a statement takes longer than to execute it.
_THIS = SESSIONS.c.id == sa.bindparam("session")
_GET = sa.select(SESSIONS).where(_THIS)
_CHANGE_TOKEN = (
    SESSIONS.c.version,
    SESSIONS.c.last_sequence,
    SESSIONS.c.cancel_reason,
    sa.select(sa.func.count()).where(DIRECTIONS.c.session == SESSIONS.c.id).scalar_subquery(),
)
_CHANGES = sa.select(SESSIONS.c.id, *_CHANGE_TOKEN).where(
    SESSIONS.c.state.in_(sorted(ACTIVE)), SESSIONS.c.queued_micros == 0
)
_CHANGE = sa.select(*_CHANGE_TOKEN).where(_THIS)
_CANCEL_REASON = sa.select(SESSIONS.c.cancel_reason).where(_THIS)
_OWNER = sa.select(SESSIONS.c.owner).where(_THIS)
_ITERATIONS_OF = ITERATIONS.c.session == sa.bindparam("session")
_ITERATION = sa.select(ITERATIONS.c.data).where(_ITERATIONS_OF, ITERATIONS.c.number == sa.bindparam("number"))
_ITERATIONS = (
    sa.select(ITERATIONS.c.data)
    .where(_ITERATIONS_OF, ITERATIONS.c.number > sa.bindparam("after"))
    .order_by(ITERATIONS.c.number)
    .limit(sa.bindparam("limit", type_=sa.Integer))
)
_INSERT_ITERATION = sa.insert(ITERATIONS)


def _missing(session: str) -> NotFound:
    return NotFound(f"no session {session!r}", reason="SESSION_NOT_FOUND", metadata={"session": session})


def create(
    tx: Transaction, session: str, spec: v1.SessionSpec, *, method: str = "reward", goal: str = "", owner: str = ""
) -> v1.Session:
    """Store a new session, PENDING.

    :param method: name of the method.
    :param owner: name of the principal that it belongs to.
    :param goal: the score required to succeed, as text.
    :raises AlreadyExists: when the id is taken.
    """
    tx.lock(resource_names.session_name(session))
    if tx.execute(sa.select(SESSIONS.c.id).where(SESSIONS.c.id == session)).one_or_none() is not None:
        raise AlreadyExists(f"session {session!r} exists; choose another id", reason="SESSION_EXISTS")
    message = v1.Session(name=resource_names.session_name(session), spec=spec, state=v1.SESSION_STATE_PENDING)
    message.method, message.goal, message.owner = method, goal, owner
    message.create_time.CopyFrom(timestamp(tx.now))
    message.update_time.CopyFrom(timestamp(tx.now))
    row = {"id": session, "data": message.SerializeToString(), "state": message.state, "deleted": False, "version": 1}
    row["summary"] = summaries.of_session(message)
    tx.execute(
        sa.insert(SESSIONS).values(**row, create_micros=micros(tx.now), last_sequence=0, owner=owner, method=method)
    )
    events.append(tx, session, ev.Event(state_changed=ev.StateChanged(state=message.state)))
    message.etag = "1"
    return message


def _read(row: Any) -> v1.Session:
    message = v1.Session.FromString(row.data)
    message.etag = str(row.version)
    return message


def get(tx: ReadTransaction, session: str) -> v1.Session:
    """Read a session, including deleted ones, with its place in the queue.

    :raises NotFound: when there is none.
    """
    row = tx.execute(_GET, {"session": session}).one_or_none()
    if row is None:
        raise _missing(session)
    message = _read(row)
    if row.queued_micros:
        message.queue.CopyFrom(queue.places(tx)(session, row.queued_micros))
    return message


def page(
    tx: ReadTransaction,
    *,
    limit: int,
    before: tuple[int, str] | None,
    show_deleted: bool,
    state: int,
    deleted_of: str | None = None,
    whole: bool = False,
) -> Page[tuple[v1.Session, tuple[int, str]]]:
    """List sessions, newest first, each with its position.

    :param before: position after which the page begins.
    :param state: list only sessions in this state; 0: all.
    :param deleted_of: list only this owner's deleted sessions; None: everybody's.
    :param whole: with all fields; otherwise with those of a summary.
    """
    message = SESSIONS.c.data if whole else SESSIONS.c.summary
    query = sa.select(
        message.label("data"), SESSIONS.c.id, SESSIONS.c.version, SESSIONS.c.create_micros, SESSIONS.c.queued_micros
    )
    if not show_deleted:
        query = query.where(SESSIONS.c.deleted.is_(False))
    elif deleted_of is not None:
        query = query.where(sa.or_(SESSIONS.c.deleted.is_(False), SESSIONS.c.owner == deleted_of))
    if state:
        query = query.where(SESSIONS.c.state == state)
    if before is not None:
        older = sa.and_(SESSIONS.c.create_micros == before[0], SESSIONS.c.id < before[1])
        query = query.where(sa.or_(SESSIONS.c.create_micros < before[0], older))
    newest_first = query.order_by(SESSIONS.c.create_micros.desc(), SESSIONS.c.id.desc())
    rows, more = pages.read(tx, newest_first, sa.func.length(message), limit=limit)
    place = queue.places(tx) if any(row.queued_micros for row in rows) else None
    entries = []
    for row in rows:
        entry = _read(row)
        if place is not None and row.queued_micros:
            entry.queue.CopyFrom(place(row.id, row.queued_micros))
        entries.append((entry, (row.create_micros, row.id)))
    return Page(entries, more)


def in_states(tx: ReadTransaction, states: frozenset[int], *, queued: bool = False) -> list[v1.Session]:
    """List sessions in any of the states.

    :param queued: whether to include those that wait for admission.
    """
    query = sa.select(SESSIONS).where(SESSIONS.c.state.in_(sorted(states)))
    return [_read(row) for row in tx.execute(query if queued else query.where(SESSIONS.c.queued_micros == 0))]


def owner(tx: ReadTransaction, session: str) -> str | None:
    """Name of the principal that owns a session; None if there is no such session."""
    row = tx.execute(_OWNER, {"session": session}).one_or_none()
    return None if row is None else str(row.owner)


def of_owner(tx: ReadTransaction, owner: str) -> list[v1.Session]:
    """List the summaries of a principal's sessions, also of deleted ones."""
    query = sa.select(SESSIONS.c.summary).where(SESSIONS.c.owner == owner)
    return [v1.Session.FromString(row.summary) for row in tx.execute(query)]


def artifact_bytes(tx: ReadTransaction, owner: str) -> int:
    """Bytes that are stored for a principal's sessions, also deleted ones: their rows exist as long as their artifacts."""
    query = sa.select(sa.func.sum(SESSIONS.c.artifact_bytes)).where(SESSIONS.c.owner == owner)
    return int(tx.execute(query).scalar_one() or 0)


def add_artifact_bytes(tx: Transaction, session: str, size: int) -> None:
    """Count bytes that a trainer is about to store for a session, or less than 0 that were deleted."""
    total = SESSIONS.c.artifact_bytes + size
    tx.execute(sa.update(SESSIONS).where(SESSIONS.c.id == session).values(artifact_bytes=total))


def count_artifact(tx: Transaction, session: str, key: str, size: int) -> None:
    """Count an artifact of this server, once for each key."""
    if idempotency.record(tx, session, f"all/stored/{hashlib.sha256(key.encode()).hexdigest()}"):
        add_artifact_bytes(tx, session, size)


@dataclass(frozen=True)
class Access:
    """What decides who may read a session.

    :param owner: name of a principal.
    """

    owner: str
    deleted: bool


def access_of(tx: ReadTransaction, names: Collection[str]) -> dict[str, Access]:
    """Read what decides who may read sessions, by their ids; unknown ones are left out."""
    query = sa.select(SESSIONS.c.id, SESSIONS.c.owner, SESSIONS.c.deleted).where(SESSIONS.c.id.in_(sorted(names)))
    return {row.id: Access(row.owner, row.deleted) for row in tx.execute(query)}


def counts(tx: ReadTransaction) -> dict[int, int]:
    """Count the sessions in each state, without deleted ones."""
    query = sa.select(SESSIONS.c.state, sa.func.count()).where(SESSIONS.c.deleted.is_(False)).group_by(SESSIONS.c.state)
    return {int(state): int(count) for state, count in tx.execute(query)}


def change(tx: Transaction, session: str, edit: Callable[[v1.Session], None]) -> v1.Session:
    """Change a session by compare-and-swap; a change of state appends its event.

    :raises NotFound: when there is none.
    """
    tx.lock(resource_names.session_name(session))
    before = [0]

    def apply(message: v1.Session) -> None:
        before[0] = message.state
        edit(message)
        message.ClearField("etag")
        # Computed when it is read: stored, each admission would rewrite every waiting session (decision 0056).
        message.ClearField("queue")
        message.update_time.CopyFrom(timestamp(tx.now))

    def columns(message: v1.Session) -> dict[str, Any]:
        # A session that was resumed has a new history, which retention removes again.
        kept = {} if message.state in ENDED else {"removed": 0}
        return {"state": message.state, "summary": summaries.of_session(message), **times(message), **kept}

    swapped = swap(tx, SESSIONS, {"id": session}, v1.Session, apply, columns)
    if swapped is None:
        raise _missing(session)
    message, version = swapped
    if message.state != before[0]:
        changed = ev.StateChanged(state=message.state, reason=message.state_reason)
        events.append(tx, session, ev.Event(state_changed=changed), iteration=message.current_iteration)
        if message.state in ENDED:
            tx.touch(ENDED_TOPIC)
    tx.touch(message.name)
    message.etag = str(version)
    return message


def end_idle(message: v1.Session, *, since: Timestamp, now: datetime) -> None:
    """Count the time since ``since`` as idle, if the session has started.

    The wait for an approval is counted when it ends, also where no server ran meanwhile.
    """
    if message.HasField("start_time") and not message.awaiting_approval:
        begin = max(since.ToMicroseconds(), message.start_time.ToMicroseconds())
        message.idle_seconds += max(0.0, (micros(now) - begin) / 1e6)


def end_downtime(message: v1.Session, *, last: Timestamp, now: datetime) -> None:
    """Count the time since the session's last event or change as idle; a repeated call adds only the time since the first one.

    :param last: time of the last event.
    """
    since = max(last, message.update_time, key=lambda time: time.ToMicroseconds())
    end_idle(message, since=since, now=now)


def delete(tx: Transaction, session: str, *, grace_seconds: float) -> v1.Session:
    """Mark a session as deleted; its removal begins after the grace period.

    :raises NotFound: when there is none.
    """

    def edit(message: v1.Session) -> None:
        message.delete_time.CopyFrom(timestamp(tx.now))
        message.purge_time.CopyFrom(timestamp(tx.now + timedelta(seconds=grace_seconds)))

    return change(tx, session, edit)


def times(message: v1.Session) -> dict[str, Any]:
    """Columns of a session's deletion and end, from its message."""
    end = message.end_time if message.HasField("end_time") else message.update_time
    return {
        "deleted": message.HasField("delete_time"),
        "delete_micros": message.delete_time.ToMicroseconds(),
        "end_micros": end.ToMicroseconds() if message.state in ENDED else 0,
    }


def request_cancel(tx: Transaction, session: str, reason: str | None) -> None:
    """Record the request to cancel a session; None reverts it."""
    tx.lock(resource_names.session_name(session))
    tx.execute(sa.update(SESSIONS).where(SESSIONS.c.id == session).values(cancel_reason=reason))
    tx.touch(resource_names.session_name(session))


def cancel_reason(tx: ReadTransaction, session: str) -> str | None:
    """Reason of a requested cancellation; None if none is requested."""
    row = tx.execute(_CANCEL_REASON, {"session": session}).one_or_none()
    return None if row is None else row.cancel_reason


def change_token(tx: ReadTransaction, session: str) -> object:
    """A value that changes whenever the session, its events or its directions change."""
    row = tx.execute(_CHANGE, {"session": session}).one_or_none()
    return None if row is None else tuple(row)


def change_tokens(tx: ReadTransaction) -> dict[str, object]:
    """Return the `change_token` of each active session that does not wait in the queue, by its id."""
    return {row[0]: tuple(row[1:]) for row in tx.execute(_CHANGES)}


def upsert_iteration(tx: Transaction, session: str, number: int, edit: Callable[[v1.Iteration], None]) -> v1.Iteration:
    """Create or change an iteration; a change of phase appends its event and updates the session."""
    tx.lock(resource_names.session_name(session))
    key = {"session": session, "number": number}
    before = [0]

    def apply(message: v1.Iteration) -> None:
        before[0] = message.phase
        edit(message)

    swapped = swap(tx, ITERATIONS, key, v1.Iteration, apply, lambda _: {})
    if swapped is None:
        message = v1.Iteration(name=resource_names.iteration_name(session, number), number=number)
        message.create_time.CopyFrom(timestamp(tx.now))
        edit(message)
        tx.execute(_INSERT_ITERATION, {**key, "data": message.SerializeToString(), "version": 1})
    else:
        message = swapped[0]
    if message.phase != before[0]:
        events.append(tx, session, ev.Event(phase_changed=ev.PhaseChanged(phase=message.phase)), iteration=number)
        change(tx, session, lambda s: _show(s, number, message.phase))
    return message


def _show(session: v1.Session, number: int, phase: v1.Phase.ValueType) -> None:
    session.current_iteration = number
    session.phase = phase


def iteration(tx: ReadTransaction, session: str, number: int) -> v1.Iteration:
    """Read an iteration.

    :raises NotFound: when there is none.
    """
    row = tx.execute(_ITERATION, {"session": session, "number": number}).one_or_none()
    if row is None:
        raise NotFound(f"session {session!r} has no iteration {number}", reason="ITERATION_NOT_FOUND")
    return v1.Iteration.FromString(row.data)


def iterations(tx: ReadTransaction, session: str, *, after: int = 0, limit: int = 10_000) -> list[v1.Iteration]:
    """List iterations with numbers greater than ``after``, in order."""
    rows = tx.execute(_ITERATIONS, {"session": session, "after": after, "limit": limit})
    return [v1.Iteration.FromString(row.data) for row in rows]


def iteration_page(tx: ReadTransaction, session: str, *, after: int, limit: int) -> Page[v1.Iteration]:
    """List a page of the iterations with numbers greater than ``after``, in order."""
    query = sa.select(ITERATIONS.c.data).where(ITERATIONS.c.session == session, ITERATIONS.c.number > after)
    rows, more = pages.read(tx, query.order_by(ITERATIONS.c.number), sa.func.length(ITERATIONS.c.data), limit=limit)
    return Page([v1.Iteration.FromString(row.data) for row in rows], more)


def each_iteration(tx: ReadTransaction, session: str) -> Iterator[v1.Iteration]:
    """Yield the iterations in order, without holding all of them."""
    after, more = 0, True
    while more:
        entries, more = iteration_page(tx, session, after=after, limit=_ITERATIONS_AT_ONCE)
        yield from entries
        after = entries[-1].number if entries else after


def add_note(tx: Transaction, session: str, text: str, *, set_: Sequence[str] = ()) -> None:
    """Store a person's note for the next revision and append its event; without text only the event.

    :param set_: other fields that the person set.
    """
    tx.lock(resource_names.session_name(session))
    if text:
        count = tx.execute(sa.select(sa.func.count()).where(NOTES.c.session == session)).scalar_one()
        tx.execute(sa.insert(NOTES).values(session=session, number=count + 1, text=text))
    events.append(tx, session, ev.Event(note_added=ev.NoteAdded(note=text, set=set_)))


def take_notes(tx: Transaction, session: str, number: int) -> list[str]:
    """Take the notes for iteration ``number``: those that it took before and those that no iteration has taken."""
    tx.lock(resource_names.session_name(session))
    available = sa.and_(NOTES.c.session == session, sa.or_(NOTES.c.iteration.is_(None), NOTES.c.iteration == number))
    texts = [row.text for row in tx.execute(sa.select(NOTES.c.text).where(available).order_by(NOTES.c.number))]
    if texts:
        tx.execute(sa.update(NOTES).where(available).values(iteration=number))
    return texts


_CHARGES_KEPT = timedelta(days=60)
"""Longer than any quota counts."""


def record_charge(tx: Transaction, principal: str, key: str, dollars: float) -> None:
    """Record a charge, and forget old ones; a repeated key changes nothing, because its reply came from the journal."""
    tx.lock(f"charge/{key}")
    tx.execute(sa.delete(CHARGES).where(CHARGES.c.create_micros < micros(tx.now - _CHARGES_KEPT)))
    if tx.execute(sa.select(CHARGES.c.key).where(CHARGES.c.key == key)).one_or_none() is None:
        row = {"key": key, "principal": principal, "dollars": dollars, "create_micros": micros(tx.now)}
        tx.execute(sa.insert(CHARGES).values(**row))


def charged_dollars(tx: ReadTransaction, *, since: datetime, principal: str | None = None) -> float:
    """Sum of the charges since a time.

    :param principal: only those of this principal.
    """
    query = sa.select(sa.func.sum(CHARGES.c.dollars)).where(CHARGES.c.create_micros >= micros(since))
    if principal is not None:
        query = query.where(CHARGES.c.principal == principal)
    return float(tx.execute(query).scalar_one() or 0.0)
