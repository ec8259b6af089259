"""Leases of periodic work: of the servers that share a database, one does it.

The holder keeps a lease until it expires as an executor, so clocks of different machines are not compared.
"""

from __future__ import annotations

import sqlalchemy as sa

from dressage_orchestrator.clock import micros
from dressage_orchestrator.database import executors
from dressage_orchestrator.database.engine import Transaction
from dressage_orchestrator.database.tables import LEASES


def begin(tx: Transaction, name: str, executor: str, *, seconds: float) -> bool:
    """Begin a turn of periodic work, if it is due and no other live executor holds its lease.

    :param seconds: interval between the beginnings of two turns, of all executors.
    :return: whether this executor has to do the work now.
    """
    tx.lock(f"lease/{name}")
    now, this = micros(tx.now), LEASES.c.name == name
    row = tx.execute(sa.select(LEASES).where(this)).one_or_none()
    if row is None:
        tx.execute(sa.insert(LEASES).values(name=name, executor=executor, run_micros=now))
        return True
    if row.executor != executor and executors.is_alive(tx, row.executor):
        return False
    due = not 0 <= now - row.run_micros < seconds * 1e6  # also after the clock was set back
    tx.execute(sa.update(LEASES).where(this).values(executor=executor, run_micros=now if due else row.run_micros))
    return due
