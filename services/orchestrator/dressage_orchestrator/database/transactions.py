"""Reads and changes of a store as transactions, each by itself or several together; compare-and-swap of stored messages.

Statements are built once and executed with parameters: to build one takes longer than to execute it. A row that a transaction
has written is locked by it, so that its next change begins with what was written.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import sqlalchemy as sa
from dressage.errors import Aborted
from google.protobuf.message import Message

from dressage_orchestrator.database.engine import Database, ReadTransaction, Transaction

T = TypeVar("T")
Retry = Callable[[Callable[[], T]], T]


class Transactions:
    """The transactions of one workflow.

    :param retry: runs a transaction, with retries while the database is unavailable.
    """

    def __init__(self, database: Database, retry: Retry) -> None:  # type: ignore[type-arg]
        self._database = database
        self._retry = retry
        self._open: Transaction | None = None

    def together(self, work: Callable[[], T]) -> T:
        """Run work whose calls of this store are one transaction: all of its changes are committed, or none.

        It holds the only writing transaction of SQLite, so the work must not wait for anything else. It may be repeated.
        """
        if self._open is not None:
            return work()

        def run() -> T:
            # Not synced here: `SessionContext.step` syncs once for all rows of a step (decision 0053).
            with self._database.workflow_turn(), self._database.begin(synced=False) as tx:
                self._open = tx
                try:
                    return work()
                finally:
                    self._open = None

        result: T = self._retry(run)
        return result

    def _read(self, query: Callable[[ReadTransaction], T]) -> T:
        if self._open is not None:
            return query(self._open)

        def run() -> T:
            with self._database.workflow_turn(), self._database.read() as tx:
                return query(tx)

        result: T = self._retry(run)
        return result

    def _write(self, change: Callable[[Transaction], T]) -> T:
        if self._open is not None:
            return change(self._open)

        def run() -> T:
            with self._database.workflow_turn(), self._database.begin(synced=False) as tx:
                return change(tx)

        result: T = self._retry(run)
        return result


M = TypeVar("M", bound=Message)

_ATTEMPTS = 20


def swap(
    tx: Transaction,
    table: sa.Table,
    key: dict[str, Any],
    kind: Callable[[], M],
    change: Callable[[M], None],
    columns: Callable[[M], dict[str, Any]],
) -> tuple[M, int] | None:
    """Read a row's message, change it, and write it if the version has not changed meanwhile; otherwise retry.

    :param change: changes the message.
    :param columns: computes the columns other than ``data`` and ``version`` from the changed message.
    :return: the message and its new version; None if the row does not exist.
    :raises Aborted: after too many concurrent changes.
    """
    names = tuple(key)
    place = (table.name, *map(str, key.values()))
    at = {f"key_{name}": value for name, value in key.items()}
    for _ in range(_ATTEMPTS):
        current = tx.written.pop(place, None)
        if current is None:
            row = tx.execute(_reading(table, names), at).one_or_none()
            if row is None:
                return None
            current = row.data, row.version
        data, old_version = current
        message = kind()
        message.ParseFromString(data)
        change(message)
        version = old_version + 1
        values = {"data": message.SerializeToString(deterministic=True), "version": version, **columns(message)}
        new = {f"new_{name}": value for name, value in values.items()}
        done = tx.execute(_writing(table, names, tuple(values)), {**at, **new, "seen": old_version})
        if done.rowcount == 1:
            tx.written[place] = values["data"], version
            return message, version
    raise Aborted(f"too many concurrent changes of {key}", reason="CONTENTION")


@cache
def _reading(table: sa.Table, key: tuple[str, ...]) -> sa.Select[Any]:
    return sa.select(table.c.data, table.c.version).where(*_match(table, key))


@cache
def _writing(table: sa.Table, key: tuple[str, ...], columns: tuple[str, ...]) -> sa.Update:
    new = {name: sa.bindparam(f"new_{name}", type_=table.c[name].type) for name in columns}
    return sa.update(table).where(*_match(table, key), table.c.version == sa.bindparam("seen")).values(new)


def _match(table: sa.Table, key: tuple[str, ...]) -> list[sa.ColumnElement[bool]]:
    return [table.c[name] == sa.bindparam(f"key_{name}") for name in key]
