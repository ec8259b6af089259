"""Secrets that all servers of a database must know alike."""

from __future__ import annotations

from collections.abc import Callable

import sqlalchemy as sa

from dressage_orchestrator.database.engine import Transaction
from dressage_orchestrator.database.tables import SHARED_SECRETS


def shared_secret(tx: Transaction, name: str, make: Callable[[], bytes]) -> bytes:
    """The secret of that name; made by the first who asks."""
    tx.lock(f"secret/{name}")
    found = tx.execute(sa.select(SHARED_SECRETS.c.value).where(SHARED_SECRETS.c.name == name)).scalar_one_or_none()
    if found is None:
        found = make()
        tx.execute(sa.insert(SHARED_SECRETS).values(name=name, value=found))
    return bytes(found)
