"""Executors: the servers that share a database, one row for each start of a server.

An executor's id (`{name}.{epoch}`) is never reused, so any server may take over the work of an expired executor at any time.
Liveness is determined from a counter that each executor increments, so clocks of different machines are not compared.
"""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from dressage_orchestrator.clock import micros
from dressage_orchestrator.database.engine import ReadTransaction, Transaction
from dressage_orchestrator.database.tables import EXECUTORS

_LOCK = "executors"


@dataclass(frozen=True)
class Executor:
    """One start of a server.

    :param heartbeats: number of heartbeats so far.
    :param expired: expired by another server, or shut down; this is final.
    """

    id: str
    name: str
    heartbeats: int
    expired: bool


def register(tx: Transaction, name: str) -> str:
    """Register an executor and expire earlier ones of the same name, which belongs to one process.

    :return: the executor's id.
    """
    tx.lock(_LOCK)
    tx.execute(sa.update(EXECUTORS).where(EXECUTORS.c.name == name).values(expired=True))
    last = tx.execute(sa.select(sa.func.max(EXECUTORS.c.epoch)).where(EXECUTORS.c.name == name)).scalar_one()
    # Rows of expired executors are deleted once they own nothing, so the current time prevents ids from being reused.
    epoch = max((last or 0) + 1, micros(tx.now) // 1000)
    row = {"id": f"{name}.{epoch}", "name": name, "epoch": epoch, "heartbeats": 0, "expired": False}
    tx.execute(sa.insert(EXECUTORS).values(**row, start_micros=micros(tx.now)))
    return f"{name}.{epoch}"


def heartbeat(tx: Transaction, id_: str) -> bool:
    """Increment the executor's counter; False when it has expired."""
    match = (EXECUTORS.c.id == id_, EXECUTORS.c.expired.is_(False))
    return bool(
        tx.execute(sa.update(EXECUTORS).where(*match).values(heartbeats=EXECUTORS.c.heartbeats + 1)).rowcount == 1
    )


def list_all(tx: ReadTransaction) -> list[Executor]:
    """List all executors."""
    return [Executor(row.id, row.name, row.heartbeats, row.expired) for row in tx.execute(sa.select(EXECUTORS))]


def is_alive(tx: ReadTransaction, id_: str) -> bool:
    """Whether the executor exists and has not expired."""
    match = (EXECUTORS.c.id == id_, EXECUTORS.c.expired.is_(False))
    return tx.execute(sa.select(EXECUTORS.c.id).where(*match)).one_or_none() is not None


def expire(tx: Transaction, id_: str, *, heartbeats: int | None = None) -> bool:
    """Expire an executor; whether this call did it.

    :param heartbeats: expire it only if its counter still has this value.
    """
    query = sa.update(EXECUTORS).where(EXECUTORS.c.id == id_, EXECUTORS.c.expired.is_(False))
    if heartbeats is not None:
        query = query.where(EXECUTORS.c.heartbeats == heartbeats)
    return bool(tx.execute(query.values(expired=True)).rowcount == 1)


def delete_expired(tx: Transaction, id_: str) -> None:
    """Delete an expired executor's row. Any server may claim its runs, because it is not among the live executors."""
    tx.execute(sa.delete(EXECUTORS).where(EXECUTORS.c.id == id_, EXECUTORS.c.expired.is_(True)))
