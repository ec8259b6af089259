"""What a workflow's step has done already.

A step may be repeated when the process dies after its transaction and before the step's result is recorded; what must
not happen twice (an event, an addition) is done under a name, once.
"""

from __future__ import annotations

import sqlalchemy as sa

from dressage_orchestrator import resource_names
from dressage_orchestrator.database.engine import ReadTransaction, Transaction
from dressage_orchestrator.database.tables import IDEMPOTENCY_KEYS


def exists(tx: ReadTransaction, session: str, name: str) -> bool:
    """Whether the effect of that name is there."""
    where = (IDEMPOTENCY_KEYS.c.session == session, IDEMPOTENCY_KEYS.c.name == name)
    return tx.execute(sa.select(IDEMPOTENCY_KEYS.c.name).where(*where)).one_or_none() is not None


def record(tx: Transaction, session: str, name: str) -> bool:
    """Whether the effect of that name was not there yet; from now on it is, if the transaction commits."""
    tx.lock(resource_names.session_name(session))
    if exists(tx, session, name):
        return False
    tx.execute(sa.insert(IDEMPOTENCY_KEYS).values(session=session, name=name))
    return True
