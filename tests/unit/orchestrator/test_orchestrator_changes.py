"""Waits of many sessions: each is ended by a change of its own session, by this server or another one, and by no other."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest
from dressage.api.v1 import session_pb2 as v1
from dressage_orchestrator import changes
from dressage_orchestrator.database import feedback, sessions
from dressage_orchestrator.database.engine import Database, sqlite_url
from dressage_orchestrator.lifecycle.wakeups import Wakeups
from dressage_orchestrator.notifications import Notifier


def test_a_change_ends_the_wait_of_its_own_session_only() -> None:
    wakeups = Wakeups()
    looks = {"a": 0, "b": 0}
    ended: dict[str, int] = {}

    def wait(session: str) -> None:
        def poll() -> int:
            looks[session] += 1
            return 0

        ended[session] = wakeups.wait(session, wakeups.hold(session), seconds=30, poll=poll)

    threads = {session: threading.Thread(target=wait, args=(session,)) for session in looks}
    for thread in threads.values():
        thread.start()
    while looks != {"a": 1, "b": 1}:
        time.sleep(0.001)
    wakeups.stir(["a", "unknown"])
    while looks["a"] < 2:
        time.sleep(0.001)
    wakeups.wake("a")
    threads["a"].join(10)
    assert ended == {"a": 1} and looks == {"a": 2, "b": 1}
    wakeups.close()
    threads["b"].join(10)
    assert ended["b"] == 0


def test_a_change_between_look_and_rest_is_not_lost() -> None:
    wakeups = Wakeups()
    wakeups.hold("s")
    seen = wakeups.look("s")
    wakeups.wake("s")
    begun = time.monotonic()
    assert wakeups.rest("s", seen, seconds=30) == (1, 0)
    assert wakeups.rest("s", (1, 0), seconds=30, until=lambda _: True) == (1, 0)
    assert time.monotonic() - begun < 10


@pytest.mark.asyncio
async def test_changes_by_another_server_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "OWN_SECONDS", 0.02)
    here, other = (Database(sqlite_url(tmp_path / "d.db")) for _ in range(2))
    for name in ("changed", "quiet"):
        with other.begin() as tx:
            sessions.create(tx, name, v1.SessionSpec(intent="x"))
    notifier, wakeups = Notifier(asyncio.get_running_loop()), Wakeups()
    wakeups.hold("changed")
    following = asyncio.create_task(changes.follow(here, notifier, wakeups))
    try:
        await asyncio.sleep(0.2)
        for edit in (
            lambda tx: sessions.request_cancel(tx, "changed", "enough"),
            lambda tx: feedback.add_direction(tx, "changed", feedback.REBASE, "1"),
            lambda tx: sessions.change(
                tx, "changed", lambda stored: setattr(stored, "state", v1.SESSION_STATE_CANCELLED)
            ),
        ):
            with notifier.subscribe("sessions/changed") as changed, notifier.subscribe("sessions/quiet") as quiet:
                seen = wakeups.look("changed")
                with other.begin() as tx:
                    edit(tx)
                begun = time.monotonic()
                await changed.wait(30)
                assert time.monotonic() - begun < 10 and wakeups.look("changed") != seen
                assert not quiet._event.is_set()
    finally:
        following.cancel()
        here.close()
        other.close()
