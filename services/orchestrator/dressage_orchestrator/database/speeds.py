"""Running means of the speed of trainings, from which estimates are made."""

from __future__ import annotations

from collections.abc import Sequence

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


def first(tx: ReadTransaction, keys: Sequence[str], pool: str) -> float | None:
    """Read the mean environment steps per second under the first key that has a record; None if none has.

    :param keys: kinds of training, the best one first.
    """
    match = (SPEEDS.c.environment.in_(keys), SPEEDS.c.pool == pool)
    rates = {row.environment: row.steps_per_second for row in tx.execute(sa.select(SPEEDS).where(*match))}
    return next((float(rates[key]) for key in keys if key in rates), None)
