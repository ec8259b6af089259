"""Keeps true the metrics that are read off the database, and counts what reports say.

Gauges tell of the whole installation, not of this replica: every replica reads the same rows, so a query takes the
maximum over replicas, never the sum.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import sqlalchemy as sa
import structlog
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import DressageError

from dressage_orchestrator import metrics
from dressage_orchestrator.database import runs
from dressage_orchestrator.database.engine import Database, ReadTransaction
from dressage_orchestrator.database.tables import EVENTS, RUNS, SESSIONS

_SECONDS = 5.0
_SESSION_STATES = {n: name.removeprefix("SESSION_STATE_").lower() for name, n in v1.SessionState.items() if n}
_RUN_STATES = {n: name.removeprefix("RUN_STATE_").lower() for name, n in v1.RunState.items() if n}
# A trainer's last words by which the sandbox, not the code, ended it.
_SANDBOX_ENDS = {"LEARNER_OUT_OF_MEMORY": "memory", "SANDBOX_LIMIT": "sandbox"}


async def keep_gauges(database: Database, *, methods: Collection[str] = (), seconds: float = _SECONDS) -> None:
    """Counts rows now and then, until cancelled.

    :param methods: names of the installed methods.
    """
    gauges = Gauges(database, methods)
    log = structlog.get_logger("dressage.gauges")
    while True:
        try:
            await asyncio.to_thread(gauges.update)
        except DressageError as error:  # the database is away, or this server is out and about to stop
            log.warning("gauges are not updated", error=error.message)
        except Exception:
            log.exception("gauges are not updated")
        await asyncio.sleep(seconds)


class Gauges:
    """Counts rows; what was once counted goes to 0, it does not vanish.

    :param methods: names of methods whose sessions are counted from the beginning.
    """

    def __init__(self, database: Database, methods: Collection[str] = ()) -> None:
        self._database = database
        self._counted_methods = set(methods)
        self._methods: dict[str, str] = {}  # of sessions that are not deleted: a method never changes
        self._pools: set[str] = set()
        self._speeds: set[tuple[str, str]] = set()

    def update(self) -> None:
        """Sets all gauges to what the rows say now."""
        with self._database.read() as tx:
            sessions = self._sessions(tx)
            silence = _silence(tx)
            live = runs.live(tx)
            environments = _environments(tx, {row.session for row in live})
            self._pools |= {row.run.pool for row in live} | _newest_pool(tx)
            now = tx.now.timestamp()
        self._counted_methods |= set(self._methods.values())
        for method in self._counted_methods:
            for state in _SESSION_STATES.values():
                metrics.SESSIONS.labels(state, method).set(sessions.get((state, method), 0))
        metrics.SESSION_SILENCE.set(silence)
        self._runs(live, environments, now)

    def _sessions(self, tx: ReadTransaction) -> dict[tuple[str, str], int]:
        query = sa.select(SESSIONS.c.id, SESSIONS.c.state).where(SESSIONS.c.deleted.is_(False))
        states = {row.id: _SESSION_STATES.get(row.state, "pending") for row in tx.execute(query)}
        unknown = [name for name in states if name not in self._methods]
        self._methods = {name: method for name, method in self._methods.items() if name in states}
        for name in unknown:
            data = tx.execute(sa.select(SESSIONS.c.data).where(SESSIONS.c.id == name)).scalar_one()
            self._methods[name] = v1.Session.FromString(data).method
        counted: dict[tuple[str, str], int] = {}
        for name, state in states.items():
            key = (state, self._methods[name])
            counted[key] = counted.get(key, 0) + 1
        return counted

    def _runs(self, live: list[runs.RunRow], environments: dict[str, str], now: float) -> None:
        counted: dict[tuple[str, str], int] = {}
        waiting: dict[str, float] = {}
        speeds: dict[tuple[str, str], float] = {}
        for row in live:
            pool, state = row.run.pool, _RUN_STATES.get(row.run.state, "queued")
            counted[pool, state] = counted.get((pool, state), 0) + 1
            if state == "queued":
                waited = now - row.run.create_time.ToMicroseconds() / 1e6
                waiting[pool] = max(waiting.get(pool, 0.0), waited)
            if state == "running" and row.session in environments:
                key = (pool, environments[row.session])
                speeds[key] = speeds.get(key, 0.0) + row.run.steps_per_second
        self._speeds |= speeds.keys()
        for pool in self._pools:
            metrics.RUN_OLDEST_QUEUED.labels(pool).set(waiting.get(pool, 0.0))
            for number in sorted(runs.LIVE):
                metrics.RUNS.labels(pool, _RUN_STATES[number]).set(counted.get((pool, _RUN_STATES[number]), 0))
        for pool, environment in self._speeds:
            metrics.STEPS_PER_SECOND.labels(pool, environment).set(speeds.get((pool, environment), 0.0))


def _newest_pool(tx: ReadTransaction) -> set[str]:
    """The newest run's pool: a short run may begin and end between two looks."""
    newest = sa.select(RUNS.c.data).order_by(RUNS.c.create_micros.desc()).limit(1)
    return {v1.Run.FromString(data).pool for data in tx.execute(newest).scalars()}


def _silence(tx: ReadTransaction) -> float:
    """Seconds since the last event of the running session that has been silent longest; 0 if none runs."""
    last = sa.and_(EVENTS.c.session == SESSIONS.c.id, EVENTS.c.sequence == SESSIONS.c.last_sequence)
    query = sa.select(EVENTS.c.data).join(SESSIONS, last)
    query = query.where(SESSIONS.c.state == v1.SESSION_STATE_RUNNING, SESSIONS.c.deleted.is_(False))
    now = tx.now.timestamp()
    times = [ev.Event.FromString(row.data).time.ToMicroseconds() / 1e6 for row in tx.execute(query)]
    return max((now - time for time in times), default=0.0)


def _environments(tx: ReadTransaction, sessions: set[str]) -> dict[str, str]:
    """Environments of sessions, by id."""
    query = sa.select(SESSIONS.c.id, SESSIONS.c.data).where(SESSIONS.c.id.in_(sorted(sessions)))
    found = {row.id: v1.Session.FromString(row.data).spec.environment for row in tx.execute(query)}
    return {name: environment.removeprefix("environments/") for name, environment in found.items()}


def count_last_words(failure: v1.Failure) -> None:
    """Counts a trainer's failure if the sandbox ended its code: trainers live too short to be scraped."""
    if failure.reason in _SANDBOX_ENDS:
        metrics.SANDBOX_KILLS.labels(_SANDBOX_ENDS[failure.reason]).inc()
