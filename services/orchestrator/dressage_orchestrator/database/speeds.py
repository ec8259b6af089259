"""Running means of the speed of trainings, from which estimates are made."""

from __future__ import annotations

import sqlalchemy as sa

from dressage_orchestrator.database.engine import ReadTransaction, Transaction
from dressage_orchestrator.database.tables import SPEEDS

_SPEED_WEIGHT = 0.3
"""Weight of the latest training."""


def record(tx: Transaction, kind: str, pool: str, steps_per_second: float) -> None:
    """Update the running mean of the speed of a kind of training (`durations.kind_of_run`), for estimates."""
    tx.lock("speeds")
    match = (SPEEDS.c.environment == kind, SPEEDS.c.pool == pool)
    old = tx.execute(sa.select(SPEEDS.c.steps_per_second).where(*match)).one_or_none()
    if old is None:
        row = {"environment": kind, "pool": pool, "steps_per_second": steps_per_second}
        tx.execute(sa.insert(SPEEDS).values(**row))
        return
    blended = (1 - _SPEED_WEIGHT) * old.steps_per_second + _SPEED_WEIGHT * steps_per_second
    tx.execute(sa.update(SPEEDS).where(*match).values(steps_per_second=blended))


def mean(tx: ReadTransaction, kind: str, pool: str) -> float | None:
    """Read the mean environment steps per second of a kind of training; None if there is no record."""
    match = (SPEEDS.c.environment == kind, SPEEDS.c.pool == pool)
    row = tx.execute(sa.select(SPEEDS.c.steps_per_second).where(*match)).one_or_none()
    return None if row is None else float(row.steps_per_second)
