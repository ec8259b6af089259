"""Rows that retention removes, and what keeps a session's artifacts.

The columns of `sessions` find candidates; the message of a session decides, read again under the session's lock. Every function
removes what it finds and may be repeated.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from enum import IntFlag
from typing import Any

import sqlalchemy as sa
from dressage.api.v1 import benchmark_service_pb2 as benchmark_pb
from dressage.api.v1 import session_pb2 as v1

from dressage_orchestrator import resource_names
from dressage_orchestrator.database import sessions
from dressage_orchestrator.database.engine import ReadTransaction, Transaction
from dressage_orchestrator.database.tables import (
    ASSIGNMENTS,
    BENCHMARKS,
    CANDIDATES,
    DIRECTIONS,
    EVENTS,
    IDEMPOTENCY_KEYS,
    ITERATIONS,
    LABELS,
    MEMBERS,
    NOTES,
    REPORT_SEQUENCES,
    REPORTS,
    REQUEST_IDS,
    RUNS,
    SESSIONS,
)

_BATCH = 100
_IN_KEY = re.compile(rb"sessions/([a-z][a-z0-9-]{0,62})/")
_KEPT_KEYS = "all/%"
"""Idempotency keys of all epochs, which a resumed session compares with."""


class Removal(IntFlag):
    """What was removed of a session."""

    HISTORY = 1
    """Workflow history, idempotency keys, reports of finished assignments."""
    EVENTS = 2
    """Events except the last."""
    CLAIMED = 4
    """All of it is being removed; the deletion can no longer be reverted."""


def ended_before(tx: ReadTransaction, moment: int, *, lacking: Removal, after: str = "") -> list[str]:
    """List sessions that ended before a time and of which a part has not been removed, in order of ids, in batches.

    :param moment: in microseconds since the epoch.
    """
    query = sa.select(SESSIONS.c.id).where(
        SESSIONS.c.removed.in_([flags for flags in range(8) if not flags & (lacking | Removal.CLAIMED)]),
        SESSIONS.c.end_micros.between(1, moment),
        SESSIONS.c.id > after,
    )
    return [row.id for row in tx.execute(query.order_by(SESSIONS.c.id).limit(_BATCH))]


def kept_before(tx: ReadTransaction, moment: int, *, after: str = "") -> list[str]:
    """List sessions that ended before a time and are not deleted, in order of ids, in batches."""
    query = sa.select(SESSIONS.c.id).where(
        SESSIONS.c.end_micros.between(1, moment), SESSIONS.c.deleted.is_(False), SESSIONS.c.id > after
    )
    return [row.id for row in tx.execute(query.order_by(SESSIONS.c.id).limit(_BATCH))]


def deleted_sessions(tx: ReadTransaction, *, after: str = "") -> list[v1.Session]:
    """List deleted sessions that have ended, in order of ids, in batches."""
    query = sa.select(SESSIONS.c.data).where(
        SESSIONS.c.deleted.is_(True), SESSIONS.c.state.in_(sorted(sessions.ENDED)), SESSIONS.c.id > after
    )
    return [v1.Session.FromString(row.data) for row in tx.execute(query.order_by(SESSIONS.c.id).limit(_BATCH))]


def existing(tx: ReadTransaction, ids: Iterable[str]) -> set[str]:
    """Return those of the ids that are sessions."""
    return {row.id for row in tx.execute(sa.select(SESSIONS.c.id).where(SESSIONS.c.id.in_(list(ids))))}


def referenced_sessions(tx: ReadTransaction, *, without: frozenset[str]) -> set[str]:
    """Return the sessions to whose artifacts other sessions or benchmarks refer, and those of benchmarks under way.

    All stored messages are searched for artifact keys, so that this also finds keys in the settings of plug-ins.

    :param without: sessions whose references do not count, because they are removed as well.
    """
    ids: set[str] = set()
    for session, data in _messages(tx):
        if session not in without:
            ids.update(match.decode() for match in _IN_KEY.findall(data) if match.decode() != session)
    for (data,) in tx.execute(sa.select(BENCHMARKS.c.data).where(BENCHMARKS.c.ended.is_(False))):
        ids.update(case.session.partition("/")[2] for case in benchmark_pb.Benchmark.FromString(data).cases)
    return ids - {""}


def _messages(tx: ReadTransaction) -> Iterator[tuple[str, bytes]]:
    """Yield the session and the bytes of each stored message that can contain a key; an empty session for benchmarks."""
    for columns in (
        (SESSIONS.c.id, SESSIONS.c.data),
        (ITERATIONS.c.session, ITERATIONS.c.data),
        (ASSIGNMENTS.c.session, ASSIGNMENTS.c.data),
        (ASSIGNMENTS.c.session, ASSIGNMENTS.c.work),
    ):
        yield from ((row[0], row[1]) for row in tx.execute(sa.select(*columns).execution_options(yield_per=_BATCH)))
    for row in tx.execute(sa.select(DIRECTIONS.c.session, DIRECTIONS.c.data)):
        yield row.session, row.data.encode()
    for (data,) in tx.execute(sa.select(BENCHMARKS.c.data)):
        yield "", data


def claim(tx: Transaction, session: str, *, due: Any) -> bool:
    """Claim a deleted session for its removal, unless it is not due or not ended; repeated claims succeed.

    :param due: predicate of the session's message.
    """
    tx.lock(resource_names.session_name(session))
    row = tx.execute(sa.select(SESSIONS.c.data, SESSIONS.c.removed).where(SESSIONS.c.id == session)).one_or_none()
    if row is None:
        return False
    message = v1.Session.FromString(row.data)
    if not row.removed & Removal.CLAIMED and (message.state not in sessions.ENDED or not due(message)):
        return False
    _mark(tx, session, row.removed | Removal.CLAIMED)
    return True


def is_claimed(tx: ReadTransaction, session: str) -> bool:
    """Whether the session is being removed."""
    row = tx.execute(sa.select(SESSIONS.c.removed).where(SESSIONS.c.id == session)).one_or_none()
    return row is not None and bool(row.removed & Removal.CLAIMED)


def run_names(tx: ReadTransaction, session: str) -> list[str]:
    """List the names of a session's runs."""
    return [row.name for row in tx.execute(sa.select(RUNS.c.name).where(RUNS.c.session == session))]


def delete_history(tx: Transaction, session: str, *, before: int) -> int:
    """Delete idempotency keys, and reports of finished assignments and attempts; return the number of rows.

    A resumed session may reopen assignments that failed or were cancelled, so their reports stay.

    :param before: only if the session ended before this time.
    """
    row = _lock_ended(tx, session, before)
    if row is None:
        return 0
    succeeded = sa.select(ASSIGNMENTS.c.name).where(
        ASSIGNMENTS.c.session == session, ASSIGNMENTS.c.state == v1.ASSIGNMENT_STATE_SUCCEEDED
    )
    runs = sa.select(RUNS.c.name).where(RUNS.c.session == session)
    keys = sa.delete(IDEMPOTENCY_KEYS).where(
        IDEMPOTENCY_KEYS.c.session == session, IDEMPOTENCY_KEYS.c.name.not_like(_KEPT_KEYS)
    )
    count = _rows(tx, keys, sa.delete(REPORTS).where(REPORTS.c.assignment.in_(succeeded)))
    count += _rows(tx, sa.delete(REPORT_SEQUENCES).where(REPORT_SEQUENCES.c.run.in_(runs)))
    _mark(tx, session, row.removed | Removal.HISTORY)
    return count


def delete_events(tx: Transaction, session: str, *, before: int) -> int:
    """Delete a session's events except the last, which states its end; return the number of rows."""
    row = _lock_ended(tx, session, before)
    if row is None:
        return 0
    count = _rows(tx, sa.delete(EVENTS).where(EVENTS.c.session == session, EVENTS.c.sequence < row.last_sequence))
    _mark(tx, session, row.removed | Removal.EVENTS)
    return count


def delete_session(tx: Transaction, session: str) -> int:
    """Delete all rows of a claimed session; return their number."""
    tx.lock(resource_names.session_name(session))
    if not is_claimed(tx, session):
        return 0
    named = sa.select(ASSIGNMENTS.c.name).where(ASSIGNMENTS.c.session == session)
    runs = sa.select(RUNS.c.name).where(RUNS.c.session == session)
    prefix = resource_names.session_name(session) + "/"
    count = _rows(
        tx,
        *(sa.delete(table).where(table.c.assignment.in_(named)) for table in (MEMBERS, CANDIDATES, REPORTS)),
        sa.delete(REPORT_SEQUENCES).where(REPORT_SEQUENCES.c.run.in_(runs)),
        sa.delete(LABELS).where(LABELS.c.rollout.startswith(prefix, autoescape=True)),
        sa.delete(REQUEST_IDS).where(REQUEST_IDS.c.resource == resource_names.session_name(session)),
        *(
            sa.delete(table).where(table.c.session == session)
            for table in (ASSIGNMENTS, RUNS, EVENTS, NOTES, DIRECTIONS, IDEMPOTENCY_KEYS, ITERATIONS)
        ),
        sa.delete(SESSIONS).where(SESSIONS.c.id == session),
    )
    tx.touch(resource_names.session_name(session))
    return count


def old_request_ids(moment: int, pending: Iterable[str]) -> sa.ColumnElement[bool]:
    """Condition of request ids from before a time, without those that benchmarks under way may repeat."""
    prefixes = [REQUEST_IDS.c.request_id.startswith(f"{name}/", autoescape=True) for name in pending]
    return sa.and_(REQUEST_IDS.c.create_micros.between(1, moment), sa.not_(sa.or_(sa.false(), *prefixes)))


def count_request_ids(tx: ReadTransaction, moment: int, pending: Iterable[str]) -> int:
    """Count the request ids that `delete_request_ids` deletes."""
    query = sa.select(sa.func.count()).select_from(REQUEST_IDS).where(old_request_ids(moment, pending))
    return int(tx.execute(query).scalar_one())


def delete_request_ids(tx: Transaction, moment: int, pending: Iterable[str]) -> int:
    """Delete request ids from before a time."""
    return _rows(tx, sa.delete(REQUEST_IDS).where(old_request_ids(moment, pending)))


def benchmarks_without_sessions(tx: ReadTransaction, moment: int) -> list[str]:
    """List benchmarks that ended before a time, and none of whose sessions exists any more."""
    old = sa.select(BENCHMARKS.c.id, BENCHMARKS.c.data).where(
        BENCHMARKS.c.ended.is_(True), BENCHMARKS.c.create_micros < moment
    )
    names = []
    for row in tx.execute(old).all():
        benchmark = benchmark_pb.Benchmark.FromString(row.data)
        ids = {case.session.partition("/")[2] for case in benchmark.cases} - {""}
        if benchmark.end_time.ToMicroseconds() < moment and not existing(tx, ids):
            names.append(benchmark.name)
    return names


def delete_benchmark(tx: Transaction, name: str) -> int:
    """Delete a benchmark's row, unless a request has continued the benchmark meanwhile."""
    match = (BENCHMARKS.c.id == name.partition("/")[2], BENCHMARKS.c.ended.is_(True))
    return _rows(tx, sa.delete(BENCHMARKS).where(*match))


def _lock_ended(tx: Transaction, session: str, before: int) -> Any:
    """Lock a session and return its row, if it ended before a time."""
    tx.lock(resource_names.session_name(session))
    row = tx.execute(sa.select(SESSIONS).where(SESSIONS.c.id == session)).one_or_none()
    if row is None or row.state not in sessions.ENDED or not 0 < row.end_micros <= before:
        return None
    return row


def _mark(tx: Transaction, session: str, flags: int) -> None:
    tx.execute(sa.update(SESSIONS).where(SESSIONS.c.id == session).values(removed=flags))


def _rows(tx: Transaction, *statements: Any) -> int:
    return sum(int(tx.execute(statement).rowcount) for statement in statements)
