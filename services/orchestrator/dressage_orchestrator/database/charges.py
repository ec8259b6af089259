"""Cost of model calls outside of sessions, by principal."""

from __future__ import annotations

from datetime import datetime, timedelta

import sqlalchemy as sa

from dressage_orchestrator.clock import micros
from dressage_orchestrator.database.engine import ReadTransaction, Transaction
from dressage_orchestrator.database.tables import CHARGES

_KEPT = timedelta(days=60)
"""Longer than any quota counts."""


def record(tx: Transaction, principal: str, key: str, dollars: float) -> None:
    """Record a charge, and forget old ones; a repeated key changes nothing, because its reply came from the journal."""
    tx.lock(f"charge/{key}")
    tx.execute(sa.delete(CHARGES).where(CHARGES.c.create_micros < micros(tx.now - _KEPT)))
    if tx.execute(sa.select(CHARGES.c.key).where(CHARGES.c.key == key)).one_or_none() is None:
        row = {"key": key, "principal": principal, "dollars": dollars, "create_micros": micros(tx.now)}
        tx.execute(sa.insert(CHARGES).values(**row))


def dollars(tx: ReadTransaction, *, since: datetime, principal: str | None = None) -> float:
    """Sum of the charges since a time.

    :param principal: only those of this principal.
    """
    query = sa.select(sa.func.sum(CHARGES.c.dollars)).where(CHARGES.c.create_micros >= micros(since))
    if principal is not None:
        query = query.where(CHARGES.c.principal == principal)
    return float(tx.execute(query).scalar_one() or 0.0)
