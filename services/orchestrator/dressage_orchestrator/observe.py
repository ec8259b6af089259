"""Keeps the gauges of sessions and runs true."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from dressage.api.v1 import session_pb2 as v1
from dressage.errors import DressageError

from dressage_orchestrator import metrics
from dressage_orchestrator.database import runs, sessions
from dressage_orchestrator.database.engine import Database

_SECONDS = 5.0


async def keep_gauges(database: Database, *, seconds: float = _SECONDS) -> None:
    """Counts rows now and then, until cancelled."""
    while True:
        with suppress(DressageError):  # the database is away, or this server is out and about to stop
            await asyncio.to_thread(set_gauges, database)
        await asyncio.sleep(seconds)


def set_gauges(database: Database) -> None:
    """Counts rows once."""
    with database.begin() as tx:
        by_state, by_pool = sessions.counts(tx), runs.counts(tx)
    for name, number in v1.SessionState.items():
        if number:
            label = name.removeprefix("SESSION_STATE_").lower()
            metrics.SESSIONS.labels(label, "reward").set(by_state.get(number, 0))
    metrics.RUNS.clear()
    run_states = {number: name.removeprefix("RUN_STATE_").lower() for name, number in v1.RunState.items()}
    for (pool, run_state), count in by_pool.items():
        metrics.RUNS.labels(pool, run_states[run_state]).set(count)  # type: ignore[index]
