"""Wakes waiting workflows: at once after changes in this process, by one poller for all after changes by other servers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass
class _Counters:
    """What the waits for one session share.

    :param changed: notified after each change; a condition for each session, so that a change wakes no other session's waits.
    :param generation: number of changes in this process.
    :param stirs: number of events after which a wait has to look for itself whether something has changed.
    """

    changed: threading.Condition
    holders: int = 0
    generation: int = 0
    stirs: int = 0


class Wakeups:
    """A generation number for each session with a waiting workflow, incremented by each change.

    Because generations are compared, no change is lost: one between a workflow's poll and its wait ends the wait at once.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counters: dict[str, _Counters] = {}
        self._closed = False

    def hold(self, session: str) -> int:
        """Count the session's changes until `release`; returns the generation."""
        with self._lock:
            counters = self._counters.setdefault(session, _Counters(threading.Condition(self._lock)))
            counters.holders += 1
            return counters.generation

    def release(self, session: str) -> None:
        """Revert one `hold`; the workflow of the next epoch may have started before that of the last one ends."""
        with self._lock:
            counters = self._counters[session]
            counters.holders -= 1
            if counters.holders <= 0:
                del self._counters[session]

    def wake(self, session: str) -> None:
        """End the waits for a session, if it is held. May be called from any thread."""
        with self._lock:
            counters = self._counters.get(session)
            if counters is not None:
                counters.generation += 1
                counters.changed.notify_all()

    def stir(self, sessions: Iterable[str]) -> None:
        """Have the waits for sessions look whether something has changed. May be called from any thread."""
        with self._lock:
            for session in sessions:
                counters = self._counters.get(session)
                if counters is not None:
                    counters.stirs += 1
                    counters.changed.notify_all()

    def close(self) -> None:
        """End all current and future waits."""
        with self._lock:
            self._closed = True
            for counters in self._counters.values():
                counters.changed.notify_all()

    def wait(self, session: str, generation: int, *, seconds: float, poll: Callable[[], object] | None = None) -> int:
        """Wait until the session's generation differs from ``generation``, at most this long; returns the generation.

        :param poll: evaluated after each `stir`; a change of its value also ends the wait.
        """
        deadline = time.monotonic() + seconds
        state = self.look(session)
        before = poll() if poll is not None else None
        while True:
            state = self.rest(
                session, state, seconds=deadline - time.monotonic(), until=lambda now: now[0] != generation
            )
            if self._closed or state[0] != generation or time.monotonic() >= deadline:
                return state[0]
            if poll is not None and poll() != before:
                return state[0]

    def look(self, session: str) -> tuple[int, int]:
        """Return the numbers of changes and stirs so far, for `rest`."""
        with self._lock:
            counters = self._counters.get(session)
            return (0, 0) if counters is None else (counters.generation, counters.stirs)

    def rest(
        self,
        session: str,
        before: tuple[int, int],
        *,
        seconds: float,
        until: Callable[[tuple[int, int]], bool] = lambda now: False,
    ) -> tuple[int, int]:
        """Wait until something has happened since ``before``, at most this long; returns what `look` does then.

        :param until: ends the wait as well if it holds for the numbers of now.
        """
        with self._lock:
            counters = self._counters.get(session) or _Counters(threading.Condition(self._lock), 0, *before)

            def has_changed() -> bool:
                now = (counters.generation, counters.stirs)
                return self._closed or now != before or until(now)

            counters.changed.wait_for(has_changed, max(0.0, seconds))
            return (counters.generation, counters.stirs)
