"""What people set for the next iteration besides notes: a proposal, criteria, where to start from, an approval."""

from __future__ import annotations

import sqlalchemy as sa

from dressage_orchestrator import resource_names
from dressage_orchestrator.database.engine import Transaction
from dressage_orchestrator.database.tables import DIRECTIONS

PROPOSAL, CRITERIA, REBASE, APPROVE = "proposal", "criteria", "rebase", "approve"


def add(tx: Transaction, session: str, kind: str, data: str, *, iteration: int | None = None) -> None:
    """Stores a direction.

    :param data: a source, criteria as JSON, a number, or remarks.
    :param iteration: the iteration that it is for; None: the next that takes it.
    """
    count = tx.execute(sa.select(sa.func.count()).where(DIRECTIONS.c.session == session)).scalar_one()
    row = {"session": session, "number": count + 1, "kind": kind, "data": data, "iteration": iteration}
    tx.execute(sa.insert(DIRECTIONS).values(**row))
    tx.touch(resource_names.session_name(session))


def take(tx: Transaction, session: str, number: int, kinds: tuple[str, ...]) -> dict[str, str]:
    """The latest of each kind for iteration ``number``: those it took before and those that no iteration took."""
    mine = sa.and_(
        DIRECTIONS.c.session == session,
        DIRECTIONS.c.kind.in_(kinds),
        sa.or_(DIRECTIONS.c.iteration.is_(None), DIRECTIONS.c.iteration == number),
    )
    rows = tx.execute(sa.select(DIRECTIONS.c.kind, DIRECTIONS.c.data).where(mine).order_by(DIRECTIONS.c.number)).all()
    tx.execute(sa.update(DIRECTIONS).where(mine).values(iteration=number))
    return {row.kind: row.data for row in rows}
