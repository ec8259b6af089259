"""Who waits for a topic, in the event loop; told by commits, from any thread.

Being told is a hint: every waiter also looks by itself after a while, so that what another process writes is seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class Hub:
    """Wakes waiters of topics."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiters: dict[str, set[asyncio.Event]] = {}

    def tell(self, topics: set[str]) -> None:
        """Wakes all who wait for one of the topics. Callable from any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake, frozenset(topics))

    def _wake(self, topics: frozenset[str]) -> None:
        for topic in topics:
            for event in self._waiters.get(topic, ()):
                event.set()

    @contextmanager
    def waiter(self, *topics: str) -> Iterator[Waiter]:
        """A waiter for topics; what is told from now on is not missed."""
        event = asyncio.Event()
        for topic in topics:
            self._waiters.setdefault(topic, set()).add(event)
        try:
            yield Waiter(event)
        finally:
            for topic in topics:
                self._waiters[topic].discard(event)
                if not self._waiters[topic]:
                    del self._waiters[topic]


class Waiter:
    """One who waits."""

    def __init__(self, event: asyncio.Event) -> None:
        self._event = event

    async def wait(self, seconds: float) -> None:
        """Returns when a topic was told since the last return, or after so long."""
        try:
            # Not `asyncio.wait_for`, which loses a cancellation that comes together with the event (before Python 3.12).
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return
        finally:
            self._event.clear()
