"""Idempotency keys of workflow steps.

A step is repeated if the process dies between its transaction and the record of its result. Effects that must not be
repeated (an event, an increment) are therefore recorded under a key.
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from dressage_orchestrator import resource_names
from dressage_orchestrator.database.engine import ReadTransaction, Transaction
from dressage_orchestrator.database.tables import IDEMPOTENCY_KEYS

_FIND = sa.select(IDEMPOTENCY_KEYS.c.name).where(
    IDEMPOTENCY_KEYS.c.session == sa.bindparam("session"), IDEMPOTENCY_KEYS.c.name == sa.bindparam("name")
)
_NAME = IDEMPOTENCY_KEYS.c.name
_INSERT = {
    "sqlite": sqlite.insert(IDEMPOTENCY_KEYS).on_conflict_do_nothing().returning(_NAME),
    "postgresql": postgresql.insert(IDEMPOTENCY_KEYS).on_conflict_do_nothing().returning(_NAME),
}


def exists(tx: ReadTransaction, session: str, name: str) -> bool:
    """Whether the key is recorded."""
    return tx.execute(_FIND, {"session": session, "name": name}).one_or_none() is not None


def record(tx: Transaction, session: str, name: str) -> bool:
    """Record the key in this transaction; whether it is new."""
    tx.lock(resource_names.session_name(session))
    insert = _INSERT[tx.connection.dialect.name]
    return tx.execute(insert, {"session": session, "name": name}).one_or_none() is not None
