"""The queue of sessions that wait for admission: their order and their places.

The order is that of the requests: the time of entry, then the id. A transaction that changes the queue takes the next number
under a lock and writes it into the rows that it changes. A server keeps the order in memory and reads only rows with later
numbers, so that a place costs neither a count nor a read of the queue (decision 0084).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

import sqlalchemy as sa
from dressage.api.v1 import session_pb2 as v1

from dressage_orchestrator.clock import micros
from dressage_orchestrator.database.engine import ReadTransaction, Transaction
from dressage_orchestrator.database.queue_order import Key, QueueChanges
from dressage_orchestrator.database.tables import COUNTERS, SESSIONS

QUEUE_TOPIC = "queue/sessions"
"""The topic of changes of the queue."""

_LOCK = "admission"
_NAME = "queue"
_BATCH = 100
_WHOLE_SECONDS = 60.0
"""Time after which the whole queue is read again: a row that left the queue and was removed meanwhile is in no difference."""
_REASON = "the server runs as many sessions as its setting max_running_sessions allows"

# Built once: to build a statement takes longer than to execute it.
_WAITS = SESSIONS.c.queued_micros > 0
_ORDER = (SESSIONS.c.queued_micros, SESSIONS.c.id)
_NUMBER = sa.select(COUNTERS.c.value).where(COUNTERS.c.name == _NAME)
_NEXT_NUMBER = (
    sa.update(COUNTERS)
    .where(COUNTERS.c.name == _NAME)
    .values(value=COUNTERS.c.value + 1)
    .returning(COUNTERS.c.value.label("number"))
)
_FIRST_NUMBER = sa.insert(COUNTERS).values(name=_NAME, value=1)
_SET = (
    sa.update(SESSIONS)
    .where(SESSIONS.c.id == sa.bindparam("session"))
    .values(queued_micros=sa.bindparam("since"), queue_change=sa.bindparam("number"))
)
_ANY_WAITS = sa.select(SESSIONS.c.id).where(_WAITS).limit(1)
_WHOLE = sa.select(*_ORDER).where(_WAITS)
_CHANGED = sa.select(*_ORDER).where(SESSIONS.c.queue_change > sa.bindparam("number"))
_CANCELLED = sa.select(*_ORDER).where(_WAITS, SESSIONS.c.cancel_reason.is_not(None))
_LAST = sa.tuple_(sa.bindparam("since", type_=sa.BigInteger), sa.bindparam("session", type_=sa.String))
_FIRST = (
    sa.select(*_ORDER)
    .where(sa.tuple_(*_ORDER) > _LAST)
    .where(_WAITS, SESSIONS.c.cancel_reason.is_(None))
    .order_by(*_ORDER)
    .limit(sa.bindparam("limit", type_=sa.Integer))
)


def lock(tx: Transaction) -> None:
    """Lock the queue, so that servers that share the database admit each session once (decision 0056)."""
    tx.lock(_LOCK)


def enter(tx: Transaction, session: str) -> None:
    """Let a session wait behind all others."""
    _set(tx, session, max(1, micros(tx.now)))


def leave(tx: Transaction, session: str) -> None:
    """Let a session wait no longer."""
    _set(tx, session, 0)


def _set(tx: Transaction, session: str, since: int) -> None:
    lock(tx)
    row = tx.execute(_NEXT_NUMBER).one_or_none()
    if row is None:
        tx.execute(_FIRST_NUMBER)
    tx.execute(_SET, {"session": session, "since": since, "number": 1 if row is None else row.number})
    tx.touch(QUEUE_TOPIC)


def anyone_waits(tx: ReadTransaction) -> bool:
    """Whether a session waits."""
    return tx.execute(_ANY_WAITS).one_or_none() is not None


def cancelled(tx: ReadTransaction) -> list[Key]:
    """The waiting sessions whose cancellation is requested."""
    return [(row.queued_micros, row.id) for row in tx.execute(_CANCELLED)]


def first(tx: ReadTransaction, count: int | None, *, held_sessions: Collection[str] = ()) -> list[Key]:
    """The first sessions of the queue whose cancellation is not requested.

    :param count: how many; None: all.
    :param held_sessions: sessions that are skipped.
    """
    keys: list[Key] = []
    last: Key = (0, "")
    while count is None or len(keys) < count:
        limit = _BATCH if count is None or held_sessions else count - len(keys)
        rows = tx.execute(_FIRST, {"since": last[0], "session": last[1], "limit": limit}).all()
        keys += [(row.queued_micros, row.id) for row in rows if row.id not in held_sessions]
        if len(rows) < limit:
            break
        last = (rows[-1].queued_micros, rows[-1].id)
    return keys[:count]


def refresh(tx: ReadTransaction) -> QueueChanges:
    """Apply the changes of the queue to the order in memory, and return them.

    A transaction that writes may be rolled back, so its changes are not applied.
    """
    order = tx.queue
    before, number = order.number, int(tx.execute(_NUMBER).scalar_one_or_none() or 0)
    whole = before < 0 or (type(tx) is ReadTransaction and time.monotonic() - order.read_time > _WHOLE_SECONDS)
    if not whole and number <= before:
        return QueueChanges(number)
    rows = tx.execute(_WHOLE) if whole else tx.execute(_CHANGED, {"number": before})
    changes = QueueChanges(number, {row.id: row.queued_micros for row in rows}, whole)
    if type(tx) is ReadTransaction:
        order.apply(changes)
    return changes


def places(tx: ReadTransaction) -> Callable[[str, int], v1.QueuePlace]:
    """Return what computes the place of a session from its id and its time of entry."""
    pending = refresh(tx).entries
    return lambda session, since: message(*tx.queue.rank((since, session), pending))


def message(place: int, length: int) -> v1.QueuePlace:
    """A place in the queue as a message."""
    return v1.QueuePlace(place=place, length=length, reason=_REASON)
