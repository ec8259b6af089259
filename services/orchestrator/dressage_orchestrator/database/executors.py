"""Executors: the servers that share a database, one row for each start of a server; their leases of work, and their secrets.

An executor's id (`{name}.{epoch}`) is never reused, so any server may take over the work of an expired executor at any time.
Liveness is determined from a counter that each executor increments, so clocks of different machines are not compared. The
holder of a lease of periodic work keeps it until it expires as an executor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import sqlalchemy as sa

from dressage_orchestrator.clock import micros
from dressage_orchestrator.database.engine import ReadTransaction, Transaction
from dressage_orchestrator.database.tables import EXECUTORS, LEASES, SHARED_SECRETS

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


def begin_turn(tx: Transaction, name: str, executor: str, *, seconds: float) -> bool:
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
    if row.executor != executor and is_alive(tx, row.executor):
        return False
    due = not 0 <= now - row.run_micros < seconds * 1e6  # also after the clock was set back
    tx.execute(sa.update(LEASES).where(this).values(executor=executor, run_micros=now if due else row.run_micros))
    return due


def shared_secret(tx: Transaction, name: str, make: Callable[[], bytes]) -> bytes:
    """Read the secret of that name; the first caller creates it."""
    tx.lock(f"secret/{name}")
    secret = tx.execute(sa.select(SHARED_SECRETS.c.value).where(SHARED_SECRETS.c.name == name)).scalar_one_or_none()
    if secret is None:
        secret = make()
        tx.execute(sa.insert(SHARED_SECRETS).values(name=name, value=secret))
    return bytes(secret)
