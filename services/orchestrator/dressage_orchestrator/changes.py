"""Finds changes of sessions, also those by other servers, for all who wait for them: one query instead of one for each.

Notifications of this server's own changes arrive earlier; whoever waits keeps a long poll of their own.
"""

from __future__ import annotations

import asyncio

import structlog
from dressage.errors import DressageError

from dressage_orchestrator import resource_names
from dressage_orchestrator.database import assignments, sessions
from dressage_orchestrator.database.engine import Database
from dressage_orchestrator.lifecycle.wakeups import Wakeups
from dressage_orchestrator.notifications import Notifier

SHARED_SECONDS, OWN_SECONDS = 0.5, 5.0
"""Seconds between two queries, where other servers change sessions, and where only this one does."""


def difference(before: dict[str, object], now: dict[str, object]) -> set[str]:
    """Return the ids of the sessions that differ, or that are active in only one of two states."""
    return {ident for ident in before.keys() | now.keys() if before.get(ident) != now.get(ident)}


async def follow(database: Database, notifier: Notifier, wakeups: Wakeups) -> None:
    """Compare the active sessions with those of the last query, until cancelled."""
    log = structlog.get_logger("dressage.changes")
    seconds = SHARED_SECONDS if database.shared else OWN_SECONDS
    before: dict[str, object] = {}

    def read() -> dict[str, object]:
        with database.read() as tx:
            return sessions.change_tokens(tx)

    while True:
        await asyncio.sleep(seconds)
        try:
            now = await asyncio.to_thread(read)
        except DressageError as error:
            log.warning("changes are read later", error=error.message)
            continue
        except Exception:
            # The loop must not end: all waits would fall back to their long polls.
            log.exception("changes are read later")
            continue
        moved = difference(before, now)
        before = now
        wakeups.stir(moved)
        notifier.publish(
            {topic for ident in moved for topic in (resource_names.session_name(ident), assignments.topic(ident))}
        )
