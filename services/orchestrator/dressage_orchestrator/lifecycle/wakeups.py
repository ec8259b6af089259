"""Wakes workflows that wait, within this process at once, and by polling where another server may have made the change."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable

_POLL_SECONDS = 0.5


class Wakeups:
    """A generation number for each session that is waited for, raised by each change.

    Comparing generations loses nothing: a change between a workflow's look and its wait ends the wait at once.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._generations: dict[str, int] = {}
        self._holders: Counter[str] = Counter()
        self._closed = False

    def hold(self, session: str) -> int:
        """Counts the session's changes until `release`; its generation."""
        with self._changed:
            self._holders[session] += 1
            return self._generations.setdefault(session, 0)

    def release(self, session: str) -> None:
        """Undoes one `hold`: one epoch's workflow may end while the next one's has begun."""
        with self._changed:
            self._holders[session] -= 1
            if self._holders[session] <= 0:
                del self._holders[session]
                self._generations.pop(session, None)

    def wake(self, session: str) -> None:
        """Ends the waits for a session; nothing where none is held. Callable from any thread."""
        with self._changed:
            if session in self._generations:
                self._generations[session] += 1
                self._changed.notify_all()

    def close(self) -> None:
        """Ends all waits, those to come as well."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def wait(self, session: str, seen: int, *, seconds: float, poll: Callable[[], object] | None = None) -> int:
        """Waits until the generation differs from the one seen, or so long; the generation then.

        :param poll: compared with its first value every half second; a difference ends the wait as well.
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
