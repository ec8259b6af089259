"""Reading a session's history for revisions and screenings."""

from __future__ import annotations

import sqlalchemy as sa
from dressage.api.v1 import session_pb2 as v1

from dressage_orchestrator import names
from dressage_orchestrator.database import runs, sessions
from dressage_orchestrator.database.engine import Transaction
from dressage_orchestrator.database.tables import LABELS
from dressage_orchestrator.methods.training import TRAINING_RUN
from dressage_orchestrator.workflow.flow import Flow
from dressage_orchestrator.workflow.tools import History, Label

_MAX_LABELS = 200


def read(tx: Transaction, flow: Flow, number: int) -> History:
    """What is known before iteration ``number``."""
    iterations = [entry for entry in sessions.iterations(tx, flow.session) if entry.number < number]
    members = {entry.number: trained(tx, entry) for entry in iterations}
    best = sessions.get(tx, flow.session).best_iteration
    return History(iterations, members, labels(tx, flow.session), best)


def trained(tx: Transaction, iteration: v1.Iteration) -> list[v1.Member]:
    """Members of an iteration's last training."""
    trainings = [name for name in iteration.runs if f"/runs/{TRAINING_RUN}" in name]
    return runs.members(tx, trainings[-1]) if trainings else []


def labels(tx: Transaction, session: str) -> list[Label]:
    """People's scores of a session's rollouts, the latest last."""
    prefix = names.session_name(session) + "/"
    query = sa.select(LABELS).where(LABELS.c.rollout.startswith(prefix, autoescape=True))
    rows = tx.execute(query.order_by(LABELS.c.create_micros, LABELS.c.number)).all()
    return [Label(row.rollout, row.score, row.comment) for row in rows[-_MAX_LABELS:]]
