"""What search methods record in a session: counts of candidates and episodes, and the score on report seeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dressage.api.v1 import session_pb2 as v1

from dressage_orchestrator import resource_names
from dressage_orchestrator.database import idempotency, sessions
from dressage_orchestrator.database.engine import Transaction


class SearchRecords:
    """The records of one session.

    :param write: runs a change in a transaction.
    """

    def __init__(self, session: str, epoch: int, write: Callable[[Callable[[Transaction], Any]], Any]) -> None:
        self._session, self._epoch, self._write = session, epoch, write

    def count(self, *, candidates: int, episodes: int, cache_hits: int, key: str, across_epochs: bool = False) -> bool:
        """Count evaluated candidates once under a key; whether the key is new.

        :param across_epochs: whether the key is recorded for all epochs, not for this one.
        """

        def add(session: v1.Session) -> None:
            session.candidates += candidates
            session.episodes += episodes
            session.cache_hits += cache_hits

        def write(tx: Transaction) -> bool:
            prefix = "all" if across_epochs else self._epoch
            if not idempotency.record(tx, self._session, f"{prefix}/candidates/{key}"):
                return False
            sessions.change(tx, self._session, add)
            return True

        return bool(self._write(write))

    def set_report(self, number: int, report: v1.Report) -> None:
        """Record the score of an iteration's policy on report seeds as the session's, and the iteration as the best."""

        def confirm(iteration: v1.Iteration) -> None:
            iteration.confirmed_score = report.mean

        def show(session: v1.Session) -> None:
            session.best_iteration = resource_names.iteration_name(self._session, number)
            session.best_score = report.mean
            session.report.CopyFrom(report)

        def write(tx: Transaction) -> None:
            sessions.upsert_iteration(tx, self._session, number, confirm)
            sessions.change(tx, self._session, show)

        self._write(write)
