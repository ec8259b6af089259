"""Runs the reads and changes of a store as transactions, each by itself or several together."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

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
