"""Wakes waiting workflows: at once after changes in this process, by polling after changes by other servers."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable

_POLL_SECONDS = 0.5


class Wakeups:
    """A generation number for each session with a waiting workflow, incremented by each change.

    Because generations are compared, no change is lost: one between a workflow's poll and its wait ends the wait at once.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._generations: dict[str, int] = {}
        self._holders: Counter[str] = Counter()
        self._closed = False

    def hold(self, session: str) -> int:
        """Count the session's changes until `release`; returns the generation."""
        with self._changed:
            self._holders[session] += 1
            return self._generations.setdefault(session, 0)

    def release(self, session: str) -> None:
        """Revert one `hold`; the workflow of the next epoch may have started before that of the last one ends."""
        with self._changed:
            self._holders[session] -= 1
            if self._holders[session] <= 0:
                del self._holders[session]
                self._generations.pop(session, None)

    def wake(self, session: str) -> None:
        """End the waits for a session, if it is held. May be called from any thread."""
        with self._changed:
            if session in self._generations:
                self._generations[session] += 1
                self._changed.notify_all()

    def close(self) -> None:
        """End all current and future waits."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def wait(self, session: str, seen: int, *, seconds: float, poll: Callable[[], object] | None = None) -> int:
        """Wait until the generation differs from ``seen``, at most this long; returns the generation.

        :param poll: evaluated every half second; a change of its value also ends the wait.
        """
        deadline = time.monotonic() + seconds
        before = poll() if poll is not None else None
        while True:
            left = deadline - time.monotonic()
            with self._changed:
                pause = left if poll is None else min(left, _POLL_SECONDS)
                self._changed.wait_for(lambda: self._closed or self._generations.get(session, seen) != seen, pause)
                now = self._generations.get(session, seen)
                if self._closed or now != seen:
                    return now
            if time.monotonic() >= deadline or (poll is not None and poll() != before):
                return now
