"""Secrets that all servers of a database share."""

from __future__ import annotations

from collections.abc import Callable

import sqlalchemy as sa

from dressage_orchestrator.database.engine import Transaction
from dressage_orchestrator.database.tables import SHARED_SECRETS


def shared_secret(tx: Transaction, name: str, make: Callable[[], bytes]) -> bytes:
    """Read the secret of that name; the first caller creates it."""
    tx.lock(f"secret/{name}")
    secret = tx.execute(sa.select(SHARED_SECRETS.c.value).where(SHARED_SECRETS.c.name == name)).scalar_one_or_none()
    if secret is None:
        secret = make()
        tx.execute(sa.insert(SHARED_SECRETS).values(name=name, value=secret))
    return bytes(secret)
