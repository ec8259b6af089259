"""Directions of people for the next iteration, other than notes: proposals, criteria, parents, approvals."""

from __future__ import annotations

import sqlalchemy as sa

from dressage_orchestrator import resource_names
from dressage_orchestrator.database.engine import Transaction
from dressage_orchestrator.database.tables import DIRECTIONS

PROPOSAL, CRITERIA, REBASE, FROM_PARENT, APPROVE = "proposal", "criteria", "rebase", "from_parent", "approve"


def add(tx: Transaction, session: str, kind: str, data: str, *, iteration: int | None = None) -> None:
    """Store a direction.

    :param data: source code, criteria as JSON, a number, or remarks.
    :param iteration: the iteration of the direction; None: the next one that takes it.
    """
    count = tx.execute(sa.select(sa.func.count()).where(DIRECTIONS.c.session == session)).scalar_one()
    row = {"session": session, "number": count + 1, "kind": kind, "data": data, "iteration": iteration}
    tx.execute(sa.insert(DIRECTIONS).values(**row))
    tx.touch(resource_names.session_name(session))


def take(tx: Transaction, session: str, number: int, kinds: tuple[str, ...]) -> dict[str, str]:
    """Take the latest direction of each kind for iteration ``number``, from those that no other iteration took."""
    available = sa.and_(
        DIRECTIONS.c.session == session,
        DIRECTIONS.c.kind.in_(kinds),
        sa.or_(DIRECTIONS.c.iteration.is_(None), DIRECTIONS.c.iteration == number),
    )
    rows = tx.execute(
        sa.select(DIRECTIONS.c.kind, DIRECTIONS.c.data).where(available).order_by(DIRECTIONS.c.number)
    ).all()
    if rows:
        tx.execute(sa.update(DIRECTIONS).where(available).values(iteration=number))
    return {row.kind: row.data for row in rows}
