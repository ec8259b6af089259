"""Events: numbered in each session without gaps, written in the transaction of the change that they describe."""

from __future__ import annotations

import sqlalchemy as sa
from dressage.api.v1 import event_pb2 as ev
from dressage.errors import NotFound

from dressage_orchestrator import resource_names
from dressage_orchestrator.clock import timestamp
from dressage_orchestrator.database.engine import ReadTransaction, Transaction
from dressage_orchestrator.database.tables import EVENTS, SESSIONS

# Built once: to build a statement takes longer than to execute it.
_NUMBER = (
    sa.update(SESSIONS)
    .where(SESSIONS.c.id == sa.bindparam("session"))
    .values(last_sequence=SESSIONS.c.last_sequence + 1)
    .returning(SESSIONS.c.last_sequence)
)
_INSERT = sa.insert(EVENTS)
_AFTER = (
    sa.select(EVENTS.c.data)
    .where(EVENTS.c.session == sa.bindparam("session"), EVENTS.c.sequence > sa.bindparam("after"))
    .order_by(EVENTS.c.sequence)
    .limit(sa.bindparam("limit", type_=sa.Integer))
)
_LAST = (
    sa.select(EVENTS.c.data)
    .where(EVENTS.c.session == sa.bindparam("session"))
    .order_by(EVENTS.c.sequence.desc())
    .limit(1)
)


def append(tx: Transaction, session: str, event: ev.Event, *, iteration: int = 0) -> int:
    """Number and store an event.

    The session's row is updated first, which locks it against other writers until this transaction ends. Numbers therefore
    follow the order of commits, without gaps.

    :return: the event's number.
    :raises NotFound: when the session does not exist.
    """
    tx.lock(resource_names.session_name(session))
    row = tx.execute(_NUMBER, {"session": session}).one_or_none()
    if row is None:
        raise NotFound(f"no session {session!r}", reason="SESSION_NOT_FOUND")
    event.sequence = row.last_sequence
    event.session = resource_names.session_name(session)
    event.iteration = iteration
    event.time.CopyFrom(timestamp(tx.now))
    tx.execute(_INSERT, {"session": session, "sequence": event.sequence, "data": event.SerializeToString()})
    tx.touch(resource_names.session_name(session))
    return int(event.sequence)


def last(tx: ReadTransaction, session: str) -> ev.Event | None:
    """Return the newest event of a session; None if there is none."""
    row = tx.execute(_LAST, {"session": session}).one_or_none()
    return None if row is None else ev.Event.FromString(row.data)


def after(tx: ReadTransaction, session: str, sequence: int, *, limit: int = 200) -> list[ev.Event]:
    """List events with numbers greater than ``sequence``, in order."""
    rows = tx.execute(_AFTER, {"session": session, "after": sequence, "limit": limit})
    return [ev.Event.FromString(row.data) for row in rows]
