"""The compare-and-swap that every stored message is changed by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import sqlalchemy as sa
from dressage.errors import Aborted
from google.protobuf.message import Message

from dressage_orchestrator.database.engine import Transaction

M = TypeVar("M", bound=Message)

_ATTEMPTS = 20


def swap(
    tx: Transaction,
    table: sa.Table,
    key: dict[str, Any],
    kind: Callable[[], M],
    change: Callable[[M, Any], None],
    columns: Callable[[M], dict[str, Any]],
) -> tuple[M, int] | None:
    """Reads a row's message, changes it, and writes it back only if nobody else did meanwhile; else starts over.

    :param change: gets the message and the row; changes the message.
    :param columns: the columns beside ``data`` and ``version``, from the changed message.
    :return: the message and its new version; None when there is no such row.
    :raises Aborted: when others won too many times.
    """
    where = sa.and_(*(table.c[name] == value for name, value in key.items()))
    for _ in range(_ATTEMPTS):
        row = tx.execute(sa.select(table).where(where)).one_or_none()
        if row is None:
            return None
        message = kind()
        message.ParseFromString(row.data)
        change(message, row)
        version = row.version + 1
        values = {"data": message.SerializeToString(deterministic=True), "version": version, **columns(message)}
        done = tx.execute(sa.update(table).where(where, table.c.version == row.version).values(**values))
        if done.rowcount == 1:
            return message, version
    raise Aborted(f"too many changes at a time to {key}", reason="CONTENTION")
