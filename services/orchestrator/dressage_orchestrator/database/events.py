"""Events: numbered in each session without gaps, written in the transaction of the change that they describe."""

from __future__ import annotations

import sqlalchemy as sa
from dressage.api.v1 import event_pb2 as ev
from dressage.errors import NotFound

from dressage_orchestrator import resource_names
from dressage_orchestrator.clock import timestamp
from dressage_orchestrator.database.engine import ReadTransaction, Transaction
from dressage_orchestrator.database.tables import EVENTS, SESSIONS


def append(tx: Transaction, session: str, event: ev.Event, *, iteration: int = 0) -> int:
    """Number and store an event.

    The session's row is updated first, which locks it against other writers until this transaction ends. Numbers therefore
    follow the order of commits, without gaps.

    :return: the event's number.
    :raises NotFound: when the session does not exist.
    """
    tx.lock(resource_names.session_name(session))
    step = sa.update(SESSIONS).where(SESSIONS.c.id == session).values(last_sequence=SESSIONS.c.last_sequence + 1)
    row = tx.execute(step.returning(SESSIONS.c.last_sequence)).one_or_none()
    if row is None:
        raise NotFound(f"no session {session!r}", reason="SESSION_NOT_FOUND")
    event.sequence = row.last_sequence
    event.session = resource_names.session_name(session)
    event.iteration = iteration
    event.time.CopyFrom(timestamp(tx.now))
    tx.execute(sa.insert(EVENTS).values(session=session, sequence=event.sequence, data=event.SerializeToString()))
    tx.touch(resource_names.session_name(session))
    return int(event.sequence)


def after(tx: ReadTransaction, session: str, sequence: int, *, limit: int = 200) -> list[ev.Event]:
    """List events with numbers greater than ``sequence``, in order."""
    query = sa.select(EVENTS.c.data).where(EVENTS.c.session == session, EVENTS.c.sequence > sequence)
    rows = tx.execute(query.order_by(EVENTS.c.sequence).limit(limit))
    return [ev.Event.FromString(row.data) for row in rows]
