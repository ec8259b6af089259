"""What people add to a session besides notes: directions for the next iteration, and labels of rollouts."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from dressage_orchestrator import resource_names
from dressage_orchestrator.clock import micros
from dressage_orchestrator.database.engine import ReadTransaction, Transaction
from dressage_orchestrator.database.tables import DIRECTIONS, LABELS

PROPOSAL, CRITERIA, REBASE, FROM_PARENT, APPROVE = "proposal", "criteria", "rebase", "from_parent", "approve"


def add_direction(tx: Transaction, session: str, kind: str, data: str, *, iteration: int | None = None) -> None:
    """Store a direction.

    :param data: source code, criteria as JSON, a number, or remarks.
    :param iteration: the iteration of the direction; None: the next one that takes it.
    """
    count = tx.execute(sa.select(sa.func.count()).where(DIRECTIONS.c.session == session)).scalar_one()
    row = {"session": session, "number": count + 1, "kind": kind, "data": data, "iteration": iteration}
    tx.execute(sa.insert(DIRECTIONS).values(**row))
    tx.touch(resource_names.session_name(session))


def take_directions(tx: Transaction, session: str, number: int, kinds: tuple[str, ...]) -> dict[str, str]:
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


@dataclass(frozen=True)
class Label:
    """A person's score of a rollout, between 0 and 1, and a comment.

    :param rollout: artifact key.
    """

    rollout: str
    score: float
    comment: str


def add_label(tx: Transaction, label: Label) -> None:
    """Store a further label of a rollout."""
    tx.lock(f"labels/{label.rollout}")
    count = tx.execute(sa.select(sa.func.count()).where(LABELS.c.rollout == label.rollout)).scalar_one()
    row = {"rollout": label.rollout, "number": count + 1, "score": label.score, "comment": label.comment}
    tx.execute(sa.insert(LABELS).values(**row, create_micros=micros(tx.now)))


def labels_of(tx: ReadTransaction, rollout: str) -> list[Label]:
    """Return the labels of a rollout, oldest first."""
    query = sa.select(LABELS).where(LABELS.c.rollout == rollout).order_by(LABELS.c.number)
    return [Label(row.rollout, row.score, row.comment) for row in tx.execute(query)]


def session_labels(tx: ReadTransaction, session: str) -> list[Label]:
    """Return the labels of a session's rollouts, oldest first."""
    prefix = resource_names.session_name(session) + "/"
    query = sa.select(LABELS).where(LABELS.c.rollout.startswith(prefix, autoescape=True))
    rows = tx.execute(query.order_by(LABELS.c.create_micros, LABELS.c.number))
    return [Label(row.rollout, row.score, row.comment) for row in rows]
