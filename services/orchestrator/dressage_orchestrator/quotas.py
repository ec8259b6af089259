"""Quotas of principals, checked when a session begins or continues, and before a model elicits criteria.

Dollars are reserved: a running session counts with its limit of dollars, an ended one with its cost. Where a quota of dollars
applies, a session gets the remainder as its limit, so that parallel sessions cannot spend it twice. Elicitations are charged
in a table of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from dressage.api.v1 import session_pb2 as v1
from dressage.errors import ResourceExhausted
from dressage.serving.access import Quota

from dressage_orchestrator.database import sessions
from dressage_orchestrator.database.engine import ReadTransaction, Transaction

WINDOW = timedelta(days=30)
"""Time over which dollars count."""

_RETRY_SECONDS = 30.0
_ELICIT_WINDOW = timedelta(days=1)

WAITING = frozenset({"QUOTA_RUNNING_SESSIONS", "QUOTA_CORES"})
"""Reasons that end when another session of the principal does."""


class Quotas:
    """Checks of quotas.

    :param of: the quota of a principal.
    :param cores_of: cores of a run in a pool.
    :param elicit_dollars: limit of all principals' elicitations in a day.
    """

    def __init__(self, of: Callable[[str], Quota], cores_of: Callable[[str], int], *, elicit_dollars: float) -> None:
        self._of = of
        self._cores_of = cores_of
        self._elicit_dollars = elicit_dollars

    def admit(self, tx: Transaction, owner: str, spec: v1.SessionSpec, *, uses_model: bool, resumed: str = "") -> None:
        """Admit a session, and limit its dollars to what remains.

        :param resumed: id of the session that continues, whose own cost is reserved already.
        :raises ResourceExhausted: naming the quota and what uses it.
        """
        quota = self._of(owner)
        if not quota.limits_sessions:
            return
        # Two sessions at once would each see the whole remainder (decision 0055).
        tx.lock(f"quota/{owner}")
        owned = [entry for entry in sessions.of_owner(tx, owner) if entry.name != f"sessions/{resumed}"]
        running = [entry for entry in owned if entry.state not in sessions.ENDED]
        _within("running_sessions", "QUOTA_RUNNING_SESSIONS", len(running) + 1, quota.running_sessions, owner)
        cores = sum(self._cores_of(entry.spec.pool) for entry in running) + self._cores_of(spec.pool)
        _within("cores", "QUOTA_CORES", cores, quota.cores, owner)
        artifact_bytes = sessions.artifact_bytes(tx, owner)
        _within("artifact_bytes", "QUOTA_ARTIFACT_BYTES", artifact_bytes, quota.artifact_bytes, owner)
        if quota.dollars is not None and uses_model:
            remaining = quota.dollars - self._reserved_dollars(tx, owner, owned)
            own = next((e.cost.dollars for e in sessions.of_owner(tx, owner) if e.name == f"sessions/{resumed}"), 0.0)
            if remaining - own <= 0:
                _refuse("dollars", "QUOTA_DOLLARS", quota.dollars - remaining, quota.dollars, owner)
            dollars = spec.budget.dollars if spec.budget.HasField("dollars") else remaining
            spec.budget.dollars = min(dollars, remaining)

    def check_elicitation(self, tx: ReadTransaction, owner: str) -> None:
        """Check that a principal may ask a model for criteria.

        :raises ResourceExhausted: naming the limit.
        """
        today = sessions.charged_dollars(tx, since=tx.now - _ELICIT_WINDOW)
        if today >= self._elicit_dollars:
            _refuse("dollars of elicitations a day", "ELICIT_BUDGET", today, self._elicit_dollars, "this server")
        quota = self._of(owner)
        if quota.dollars is not None:
            spent = self._reserved_dollars(tx, owner, sessions.of_owner(tx, owner))
            if spent >= quota.dollars:
                _refuse("dollars", "QUOTA_DOLLARS", spent, quota.dollars, owner)

    def _reserved_dollars(self, tx: ReadTransaction, owner: str, owned: list[v1.Session]) -> float:
        since = tx.now - WINDOW
        total = sessions.charged_dollars(tx, since=since, principal=owner)
        for entry in owned:
            if entry.state not in sessions.ENDED:
                total += max(entry.spec.budget.dollars, entry.cost.dollars)
            elif entry.create_time.ToDatetime(since.tzinfo) >= since:
                total += entry.cost.dollars
        return total


def _within(limit: str, reason: str, used: float, most: float | None, owner: str) -> None:
    if most is not None and used > most:
        _refuse(limit, reason, used, most, owner)


def _refuse(limit: str, reason: str, used: float, most: float, owner: str) -> None:
    message = f"the quota of {owner} is used up: {limit} would be {used:g}, at most {most:g}"
    raise ResourceExhausted(message, reason=reason, metadata={"limit": f"{most:g}"}, retry_seconds=_RETRY_SECONDS)
