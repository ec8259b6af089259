"""The queue of sessions: as many run as a limit allows, the others are PENDING in the order of their requests.

A session enters the queue in the transaction that creates or resumes it. It leaves it in a transaction that admits sessions,
under a lock, so that servers that share the database admit each session once. A session whose cancellation is requested needs
no place: its workflow only ends it.
"""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa
from dressage.api.v1 import session_pb2 as v1

from dressage_orchestrator.clock import micros
from dressage_orchestrator.database import sessions
from dressage_orchestrator.database.engine import ReadTransaction, Transaction
from dressage_orchestrator.database.tables import SESSIONS

_WAITS = SESSIONS.c.queued_micros > 0
_ANY_WAITS = sa.select(SESSIONS.c.id).where(_WAITS).limit(1)
_QUEUE = (
    sa.select(SESSIONS.c.id, SESSIONS.c.cancel_reason).where(_WAITS).order_by(SESSIONS.c.queued_micros, SESSIONS.c.id)
)
_RUNNING = sa.select(SESSIONS.c.id).where(SESSIONS.c.state.in_(sorted(sessions.ACTIVE)), ~_WAITS)

Epoch = tuple[str, int]
"""Id and epoch of a session, which name its workflow."""


def enter(tx: Transaction, session: str) -> None:
    """Let a PENDING session wait for its admission."""
    queued = {"queued_micros": max(1, micros(tx.now))}
    tx.execute(sa.update(SESSIONS).where(SESSIONS.c.id == session).values(**queued))


def anyone_waits(tx: ReadTransaction) -> bool:
    """Whether a session waits."""
    return tx.execute(_ANY_WAITS).one_or_none() is not None


def admit(tx: Transaction, limit: int, *, held: Collection[str] = ()) -> list[Epoch]:
    """Admit the first sessions of the queue, as long as fewer than the limit run.

    :param limit: number of sessions that may run at once; 0: any.
    :param held: sessions that neither run nor may start on this server.
    :return: the admitted sessions, whose workflows the caller starts after the commit.
    """
    tx.lock("admission")
    running = sum(1 for row in tx.execute(_RUNNING) if row.id not in held)
    admitted: list[Epoch] = []
    for row in tx.execute(_QUEUE).all():
        if row.id in held:
            continue
        if row.cancel_reason is None:
            if limit and running >= limit:
                continue
            running += 1
        tx.execute(sa.update(SESSIONS).where(SESSIONS.c.id == row.id).values(queued_micros=0))
        message = sessions.change(tx, row.id, _unchanged)  # its time of change: `recovery.waiting` counts from it
        admitted.append((row.id, message.epoch))
    return admitted


def _unchanged(session: v1.Session) -> None:
    pass
