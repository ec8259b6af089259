"""Which sessions' workflows run: admission from the queue, recovery, and the end of those that cannot be resumed.

As many sessions run as a limit allows; the others are PENDING in the order of their requests. A session enters the queue in
the transaction that creates or resumes it, and leaves it in a transaction that admits sessions, under a lock, so that servers
that share the database admit each session once. A session whose cancellation is requested needs no place: its workflow only
ends it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from functools import partial

import sqlalchemy as sa
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import NotFound

from dressage_orchestrator import resource_names
from dressage_orchestrator.clock import timestamp
from dressage_orchestrator.database import assignments, events, idempotency, queue, runs, sessions
from dressage_orchestrator.database.engine import Database, Transaction
from dressage_orchestrator.database.store import RECONCILED
from dressage_orchestrator.database.tables import SESSIONS

_ADMITTED = (SESSIONS.c.state.in_(sorted(sessions.ACTIVE)), SESSIONS.c.queued_micros == 0)
_RUNNING = sa.select(SESSIONS.c.id).where(*_ADMITTED)
_COUNT_RUNNING = sa.select(sa.func.count()).select_from(SESSIONS).where(*_ADMITTED)

Epoch = tuple[str, int]
"""Id and epoch of a session, which name its workflow."""


def admit(tx: Transaction, limit: int, *, held_sessions: Collection[str] = ()) -> list[Epoch]:
    """Admit the first sessions of the queue, as long as fewer than the limit run.

    :param limit: number of sessions that may run at once; 0: any.
    :param held_sessions: sessions that neither run nor may start on this server.
    :return: the admitted sessions, whose workflows the caller starts after the commit.
    """
    queue.lock(tx)
    cancelled = [key for key in queue.cancelled(tx) if key[1] not in held_sessions]
    places = max(0, limit - _count_running(tx, held_sessions)) if limit else None
    admitted: list[Epoch] = []
    for _, session in sorted(cancelled + queue.first(tx, places, held_sessions=held_sessions)):
        queue.leave(tx, session)
        message = sessions.change(
            tx, session, _change_nothing
        )  # its time of change: `workflows.waiting` counts from it
        admitted.append((session, message.epoch))
    return admitted


def _count_running(tx: Transaction, held_sessions: Collection[str]) -> int:
    if not held_sessions:
        return int(tx.execute(_COUNT_RUNNING).scalar_one())
    return sum(1 for row in tx.execute(_RUNNING) if row.id not in held_sessions)


def _change_nothing(session: v1.Session) -> None:
    pass


_PENDING_SECONDS = 20.0
_MAX_RESUMES = 3
"""How often a session is resumed after its workflow ended, before it fails."""
_PENDING = frozenset({v1.SESSION_STATE_PENDING})


def active(database: Database, *, queued: bool = False) -> list[Epoch]:
    """Return the sessions that are pending or running.

    :param queued: whether to include those that wait for admission.
    """
    with database.read() as tx:
        return [_epoch(session) for session in sessions.in_states(tx, sessions.ACTIVE, queued=queued)]


def waiting(database: Database) -> list[Epoch]:
    """Return the sessions that have been pending for some time, so that their workflow was probably never started."""
    with database.read() as tx:
        oldest = tx.now.timestamp() - _PENDING_SECONDS
        pending = sessions.in_states(tx, _PENDING)
        return [_epoch(session) for session in pending if session.update_time.ToMicroseconds() / 1e6 < oldest]


def end_downtime(database: Database, names: Iterable[str]) -> None:
    """Count the time since a running session's last event or change as idle, because its server had stopped.

    Called before the workflows of these sessions are resumed. A repeated call adds only the time since the first one.
    """
    for session in names:
        with suppress(NotFound), database.begin() as tx:
            message, last = sessions.get(tx, session), events.last(tx, session)
            if message.state == v1.SESSION_STATE_RUNNING and last is not None:
                sessions.change(tx, session, partial(sessions.end_downtime, last=last.time, now=tx.now))


def reopen(database: Database, session: str, epoch: int, *, status: str) -> int | None:
    """Begin the next epoch of a session whose workflow ended early, or fail the session after `_MAX_RESUMES` of them.

    :param status: of the ended workflow, for the failure's message.
    :return: the new epoch; None if there is none, because the session has ended, failed now, or was reopened by another server.
    """
    with database.begin() as tx:
        tx.lock(resource_names.session_name(session))
        message = sessions.get(tx, session)
        if message.epoch != epoch or message.state not in sessions.ACTIVE:
            return None
        count = sum(idempotency.exists(tx, session, f"reconciled/{number}") for number in range(_MAX_RESUMES))
        # A permanent error would resume the session for ever (decision 0034).
        if count == _MAX_RESUMES:
            _fail(tx, session, status)
            return None
        idempotency.record(tx, session, f"reconciled/{count}")
        idempotency.record(tx, session, f"{epoch + 1}/{RECONCILED}")
        sessions.change(tx, session, _next_epoch)
        return epoch + 1


def _epoch(session: v1.Session) -> Epoch:
    return session.name.partition("/")[2], session.epoch


def _next_epoch(session: v1.Session) -> None:
    session.epoch += 1
    session.state = v1.SESSION_STATE_PENDING


def _fail(tx: Transaction, session: str, status: str) -> None:
    message = f"the workflow ended {_MAX_RESUMES + 1} times before its session ({status.lower()}); see the server log"

    def fail(current: v1.Session) -> None:
        current.state, current.state_reason = v1.SESSION_STATE_FAILED, message
        current.failure.CopyFrom(
            v1.Failure(reason="WORKFLOW_ENDED", message=message, remedy="dressage sessions resume")
        )
        current.end_time.CopyFrom(timestamp(tx.now))

    # No workflow is left that could stop them.
    for entry in assignments.open_of(tx, session):
        assignments.end(tx, entry.name, v1.ASSIGNMENT_STATE_CANCELLED)
    for row in runs.live(tx, session):
        runs.end(tx, row.run.name, v1.RUN_STATE_CANCELLED)
    sessions.change(tx, session, fail)
