"""Rows of sessions whose workflow has to be started, resumed or given up."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import partial

from dressage.api.v1 import session_pb2 as v1
from dressage.errors import NotFound

from dressage_orchestrator import resource_names
from dressage_orchestrator.clock import timestamp
from dressage_orchestrator.database import assignments, events, idempotency, runs, sessions
from dressage_orchestrator.database.admission import Epoch
from dressage_orchestrator.database.engine import Database, Transaction
from dressage_orchestrator.database.store import RECONCILED

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
            stored, last = sessions.get(tx, session), events.last(tx, session)
            if stored.state == v1.SESSION_STATE_RUNNING and last is not None:
                sessions.change(tx, session, partial(sessions.end_downtime, last=last.time, now=tx.now))


def reopen(database: Database, session: str, epoch: int, *, status: str) -> int | None:
    """Begin the next epoch of a session whose workflow ended early, or fail the session after `_MAX_RESUMES` of them.

    :param status: of the ended workflow, for the failure's message.
    :return: the new epoch; None if there is none, because the session has ended, failed now, or was reopened by another server.
    """
    with database.begin() as tx:
        tx.lock(resource_names.session_name(session))
        stored = sessions.get(tx, session)
        if stored.epoch != epoch or stored.state not in sessions.ACTIVE:
            return None
        count = sum(idempotency.exists(tx, session, f"reconciled/{number}") for number in range(_MAX_RESUMES))
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

    def fail(stored: v1.Session) -> None:
        stored.state, stored.state_reason = v1.SESSION_STATE_FAILED, message
        stored.failure.CopyFrom(v1.Failure(reason="WORKFLOW_ENDED", message=message, remedy="dressage sessions resume"))
        stored.end_time.CopyFrom(timestamp(tx.now))

    for entry in assignments.open_of(tx, session):
        assignments.end(tx, entry.name, v1.ASSIGNMENT_STATE_CANCELLED)
    for row in runs.live(tx, session):
        runs.end(tx, row.run.name, v1.RUN_STATE_CANCELLED)
    sessions.change(tx, session, fail)
