"""Updates the gauges that are computed from the database.

Gauges describe the whole installation: every replica reads the same rows, so queries take the maximum over replicas, not
the sum.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import sqlalchemy as sa
import structlog
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import DressageError
from prometheus_client import Gauge

from dressage_orchestrator import metrics
from dressage_orchestrator.database import assignments, runs
from dressage_orchestrator.database.engine import Database, ReadTransaction
from dressage_orchestrator.database.tables import EVENTS, RUNS, SESSIONS

_SECONDS = 5.0
_SESSION_STATES = {n: name.removeprefix("SESSION_STATE_").lower() for name, n in v1.SessionState.items() if n}
_RUN_STATES = {n: name.removeprefix("RUN_STATE_").lower() for name, n in v1.RunState.items() if n}


async def update_gauges(database: Database, *, methods: Collection[str] = (), seconds: float = _SECONDS) -> None:
    """Update the gauges periodically until cancelled.

    :param methods: names of the installed methods.
    """
    gauges = Gauges(database, methods)
    log = structlog.get_logger("dressage.gauges")
    while True:
        try:
            await asyncio.to_thread(gauges.update)
        except DressageError as error:  # the database is unavailable, or this server is fenced and about to stop
            log.warning("gauges are not updated", error=error.message)
        except Exception:
            log.exception("gauges are not updated")
        await asyncio.sleep(seconds)


class Gauges:
    """Counts rows; a label that was once set becomes 0 and does not disappear.

    :param methods: names of methods whose sessions are counted from the beginning.
    """

    def __init__(self, database: Database, methods: Collection[str] = ()) -> None:
        self._database = database
        self._counted_methods = set(methods)
        self._pools: set[str] = set()
        self._speeds: set[tuple[str, str]] = set()

    def update(self) -> None:
        """Set all gauges from the current rows."""
        with self._database.read() as tx:
            sessions = _count_sessions(tx)
            since_last_event = _seconds_since_last_event(tx)
            live = runs.live(tx)
            speeds = _speeds(tx)
            self._pools |= {row.run.pool for row in live} | _newest_pool(tx)
            now = tx.now.timestamp()
        self._counted_methods |= {method for _, method in sessions}
        for method in self._counted_methods:
            for state in _SESSION_STATES.values():
                metrics.SESSIONS.labels(state, method).set(sessions.get((state, method), 0))
        metrics.SECONDS_SINCE_LAST_EVENT.set(since_last_event)
        self._runs(live, now)
        pools = {row.run.name: row.run.pool for row in live}
        self._keep_speeds(metrics.STEPS_PER_SECOND, [(run, env, steps) for run, env, steps, _ in speeds], pools)
        self._keep_speeds(metrics.CANDIDATES_PER_SECOND, [(run, env, rate) for run, env, _, rate in speeds], pools)

    def _runs(self, live: list[runs.RunRow], now: float) -> None:
        counted: dict[tuple[str, str], int] = {}
        waiting: dict[str, float] = {}
        for row in live:
            pool, state = row.run.pool, _RUN_STATES.get(row.run.state, "queued")
            counted[pool, state] = counted.get((pool, state), 0) + 1
            if state == "queued":
                waiting[pool] = max(waiting.get(pool, 0.0), now - row.state_micros / 1e6)
        for pool in self._pools:
            metrics.RUN_OLDEST_QUEUED.labels(pool).set(waiting.get(pool, 0.0))
            for number in sorted(runs.LIVE):
                metrics.RUNS.labels(pool, _RUN_STATES[number]).set(counted.get((pool, _RUN_STATES[number]), 0))

    def _keep_speeds(self, gauge: Gauge, speeds: list[tuple[str, str, float]], pools: dict[str, str]) -> None:
        summed: dict[tuple[str, str], float] = {}
        for run, environment, speed in speeds:
            if run in pools:
                key = (pools[run], environment)
                summed[key] = summed.get(key, 0.0) + speed
        self._speeds |= summed.keys()
        for pool, environment in self._speeds:
            gauge.labels(pool, environment).set(summed.get((pool, environment), 0.0))


def _count_sessions(tx: ReadTransaction) -> dict[tuple[str, str], int]:
    """Number of sessions by state and method, without deleted ones."""
    by = (SESSIONS.c.state, SESSIONS.c.method)
    rows = tx.execute(sa.select(*by, sa.func.count()).where(SESSIONS.c.deleted.is_(False)).group_by(*by))
    return {(_SESSION_STATES.get(state, "pending"), method): count for state, method, count in rows}


def _speeds(tx: ReadTransaction) -> list[tuple[str, str, float, float]]:
    """Run, environment, environment steps and candidates per second of the running assignments."""
    working = [row for row in assignments.live(tx) if row.assignment.state == v1.ASSIGNMENT_STATE_RUNNING]
    return [
        (
            row.assignment.run,
            assignments.environment_of(row.work),
            row.assignment.steps_per_second,
            row.assignment.candidates_per_second,
        )
        for row in working
    ]


def _newest_pool(tx: ReadTransaction) -> set[str]:
    """Pool of the newest run, because a short run may start and end between two updates."""
    newest = sa.select(RUNS.c.pool).order_by(RUNS.c.state_micros.desc()).limit(1)
    return set(tx.execute(newest).scalars())


def _seconds_since_last_event(tx: ReadTransaction) -> float:
    """Maximum over running sessions of the seconds since their last event; 0 if none runs."""
    last = sa.and_(EVENTS.c.session == SESSIONS.c.id, EVENTS.c.sequence == SESSIONS.c.last_sequence)
    query = sa.select(EVENTS.c.data).join(SESSIONS, last)
    query = query.where(SESSIONS.c.state == v1.SESSION_STATE_RUNNING, SESSIONS.c.deleted.is_(False))
    now = tx.now.timestamp()
    times = [ev.Event.FromString(row.data).time.ToMicroseconds() / 1e6 for row in tx.execute(query)]
    return max((now - time for time in times), default=0.0)
