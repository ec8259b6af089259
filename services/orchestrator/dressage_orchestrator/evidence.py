"""Whether the database and the clock can be trusted with a removal.

A database that was lost and made anew has no session, and all artifacts look like remains. A clock that was set forward makes
everything look old. Both are noticed by what the database records about itself; a person may then remove nevertheless.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

from dressage_orchestrator.clock import DAY, micros
from dressage_orchestrator.database import stamp
from dressage_orchestrator.database.engine import ReadTransaction, Transaction

FEW = 10
"""Number of sessions without rows below which their share of the store is no evidence."""
_SHARE = 0.5
_OVERRIDE = "`dressage gc --force` removes nevertheless"


@dataclass(frozen=True)
class Evidence:
    """What the database has of the store's sessions.

    :param created: when the database was made, in microseconds since the epoch.
    :param sessions: number of sessions with artifacts.
    :param missing: number of those without a row.
    """

    created: int
    sessions: int
    missing: int

    @classmethod
    def of(cls, tx: ReadTransaction, *, sessions: int, missing: int) -> Self:
        """Read when the database was made."""
        return cls(stamp.create_micros(tx.connection), sessions, missing)

    def problem(self, first: datetime) -> str:
        """Why artifacts without a session are kept; empty: they may be removed.

        :param first: when the first of them was written.
        """
        if micros(first) < self.created:
            return (
                f"the database was made at {_text(self.created)}, after these artifacts: it may have been lost. Restore a "
                f"backup of the database; {_OVERRIDE}"
            )
        if self.missing > FEW and self.missing > _SHARE * self.sessions:
            return (
                f"the database has no row for {self.missing} of {self.sessions} sessions in the store: it may be an old "
                f"backup or another store's. {_OVERRIDE}"
            )
        return ""


def clock_problem(tx: ReadTransaction, gap: float | None) -> str:
    """Why the clock is not trusted; empty: it is.

    :param gap: days after the latest recorded time from which it is not; None: it always is.
    """
    last, now = stamp.clock_micros(tx.connection), micros(tx.now)
    if gap is None or now - last <= gap * DAY * 1e6:
        return ""
    return (
        f"the clock shows {_text(now)}, {(now - last) / 1e6 / DAY:.0f} days after the last time that a server recorded, "
        f"{_text(last)}: it may be set forward. Correct the clock; if no server ran for so long, {_OVERRIDE}"
    )


def record_clock(tx: Transaction) -> None:
    """Record the current time as the latest that the database has seen."""
    stamp.set_clock(tx.connection, micros(tx.now))


def _text(moment: int) -> str:
    return datetime.fromtimestamp(moment / 1e6, tz=UTC).strftime("%Y-%m-%d %H:%M UTC")
