"""The servers that share a database, each start of one a row: who lives, and who was given up for dead.

A row's id is never used twice (`{name}.{epoch}`), so what belongs to a dead one may be taken at any time by anybody.
Whether one lives is judged by its beats, a counter that it steps: no clock of another machine is read.
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

    :param beats: how often it has said that it lives.
    :param dead: given up by another, or gone by itself; never again alive.
    """

    id: str
    name: str
    beats: int
    dead: bool


def register(tx: Transaction, name: str) -> str:
    """A new executor's id; earlier ones of the same name are dead from now on, as a pod's name is one process's."""
    tx.lock(_LOCK)
    tx.execute(sa.update(EXECUTORS).where(EXECUTORS.c.name == name).values(dead=True))
    last = tx.execute(sa.select(sa.func.max(EXECUTORS.c.epoch)).where(EXECUTORS.c.name == name)).scalar_one()
    # Rows of the dead are dropped once nothing of theirs is left, so the moment keeps ids from coming again.
    epoch = max((last or 0) + 1, micros(tx.now) // 1000)
    row = {"id": f"{name}.{epoch}", "name": name, "epoch": epoch, "beats": 0, "dead": False}
    tx.execute(sa.insert(EXECUTORS).values(**row, start_micros=micros(tx.now)))
    return f"{name}.{epoch}"


def beat(tx: Transaction, id_: str) -> bool:
    """Says that it lives; False when it was given up for dead."""
    where = (EXECUTORS.c.id == id_, EXECUTORS.c.dead.is_(False))
    return bool(tx.execute(sa.update(EXECUTORS).where(*where).values(beats=EXECUTORS.c.beats + 1)).rowcount == 1)


def everyone(tx: ReadTransaction) -> list[Executor]:
    """All rows."""
    return [Executor(row.id, row.name, row.beats, row.dead) for row in tx.execute(sa.select(EXECUTORS))]


def alive(tx: ReadTransaction, id_: str) -> bool:
    """Whether there is such an executor and nobody gave it up."""
    where = (EXECUTORS.c.id == id_, EXECUTORS.c.dead.is_(False))
    return tx.execute(sa.select(EXECUTORS.c.id).where(*where)).one_or_none() is not None


def give_up(tx: Transaction, id_: str, *, beats: int | None = None) -> bool:
    """Declares one dead, if its beats are still as they were seen; whether this call did it."""
    query = sa.update(EXECUTORS).where(EXECUTORS.c.id == id_, EXECUTORS.c.dead.is_(False))
    if beats is not None:
        query = query.where(EXECUTORS.c.beats == beats)
    return bool(tx.execute(query.values(dead=True)).rowcount == 1)


def bury(tx: Transaction, id_: str) -> None:
    """Drops a dead one's row; runs that it claimed are anybody's, as it is no longer among the living."""
    tx.execute(sa.delete(EXECUTORS).where(EXECUTORS.c.id == id_, EXECUTORS.c.dead.is_(True)))
