"""Notifications of changed topics: published by commits from any thread, received in the event loop.

A notification is a hint. Subscribers also poll, because changes by other processes are not published here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class Notifier:
    """Wakes the subscribers of topics."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._subscriptions: dict[str, set[asyncio.Event]] = {}

    def publish(self, topics: set[str]) -> None:
        """Wake all subscribers of the topics. May be called from any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake, frozenset(topics))

    def _wake(self, topics: frozenset[str]) -> None:
        for topic in topics:
            for event in self._subscriptions.get(topic, ()):
                event.set()

    @contextmanager
    def subscribe(self, *topics: str) -> Iterator[Subscription]:
        """Subscribe to topics; no notification is missed from now on."""
        event = asyncio.Event()
        for topic in topics:
            self._subscriptions.setdefault(topic, set()).add(event)
        try:
            yield Subscription(event)
        finally:
            for topic in topics:
                self._subscriptions[topic].discard(event)
                if not self._subscriptions[topic]:
                    del self._subscriptions[topic]


class Subscription:
    """A subscription to topics."""

    def __init__(self, event: asyncio.Event) -> None:
        self._event = event

    async def wait(self, seconds: float) -> None:
        """Wait for a notification since the last call, at most this long."""
        try:
            # Not `asyncio.wait_for`: before Python 3.12 it loses a cancellation that arrives together with the event.
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return
        finally:
            self._event.clear()
