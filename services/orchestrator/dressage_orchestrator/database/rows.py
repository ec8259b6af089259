"""Compare-and-swap of stored messages."""

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
    """Read a row's message, change it, and write it if the version has not changed meanwhile; otherwise retry.

    :param change: gets the message and the row, and changes the message.
    :param columns: computes the columns other than ``data`` and ``version`` from the changed message.
    :return: the message and its new version; None if the row does not exist.
    :raises Aborted: after too many concurrent changes.
    """
    match = sa.and_(*(table.c[name] == value for name, value in key.items()))
    for _ in range(_ATTEMPTS):
        row = tx.execute(sa.select(table).where(match)).one_or_none()
        if row is None:
            return None
        message = kind()
        message.ParseFromString(row.data)
        change(message, row)
        version = row.version + 1
        values = {"data": message.SerializeToString(deterministic=True), "version": version, **columns(message)}
        done = tx.execute(sa.update(table).where(match, table.c.version == row.version).values(**values))
        if done.rowcount == 1:
            return message, version
    raise Aborted(f"too many concurrent changes of {key}", reason="CONTENTION")
