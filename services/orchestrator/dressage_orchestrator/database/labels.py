"""People's scores of rollouts: one row for each label."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from dressage_orchestrator import resource_names
from dressage_orchestrator.clock import micros
from dressage_orchestrator.database.engine import ReadTransaction, Transaction
from dressage_orchestrator.database.tables import LABELS


@dataclass(frozen=True)
class Label:
    """A person's score of a rollout in [0, 1], and a comment."""

    score: float
    comment: str


def add(tx: Transaction, rollout: str, label: Label) -> None:
    """Store a further label of a rollout."""
    tx.lock(f"labels/{rollout}")
    count = tx.execute(sa.select(sa.func.count()).where(LABELS.c.rollout == rollout)).scalar_one()
    row = {"rollout": rollout, "number": count + 1, "score": label.score, "comment": label.comment}
    tx.execute(sa.insert(LABELS).values(**row, create_micros=micros(tx.now)))


def of_rollout(tx: ReadTransaction, rollout: str) -> list[Label]:
    """Return the labels of a rollout, oldest first."""
    query = sa.select(LABELS.c.score, LABELS.c.comment).where(LABELS.c.rollout == rollout).order_by(LABELS.c.number)
    return [Label(row.score, row.comment) for row in tx.execute(query)]


def rollouts(tx: ReadTransaction, session: str) -> set[str]:
    """Return the artifact keys of a session's labelled rollouts."""
    prefix = resource_names.session_name(session) + "/"
    query = sa.select(LABELS.c.rollout).where(LABELS.c.rollout.startswith(prefix, autoescape=True)).distinct()
    return {row.rollout for row in tx.execute(query)}
