"""Watches of sessions: one reader for each watched session, however many watch it, and one reader of the queue.

What a reader has read is the session's latest `Update`, which all its watchers share. A watcher that took the one before
continues with it; a slower one has missed some and reads its events itself. Nothing is queued for a watcher, so a slow one
neither takes memory nor delays another (decision 0084).
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

import structlog
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import DressageError

from dressage_orchestrator import resource_names, threads
from dressage_orchestrator.database import events, queue, sessions
from dressage_orchestrator.database.engine import ReadTransaction
from dressage_orchestrator.database.queue_order import QueueOrder
from dressage_orchestrator.notifications import Notifier

T = TypeVar("T")

_BATCH = 200
"""Events that one read takes."""
_REST_SECONDS = 30.0
"""Time between two reads without a notification. Changes by other servers are found by `changes.follow` and `follow_queue`."""
_GATHER_SECONDS = 0.05
"""Time after a change in which a reader gathers further events, so that it reads them together."""
_QUEUE_SECONDS = 2.0
"""Time between two reads of the queue without a notification."""
_PLACES_SECONDS = 1.0
"""Pause after all places were published: each start changes those of all waiting sessions."""
_PLACES, _PLACES_PAUSE = 20, 0.02
"""Watched sessions whose places are published at once, and the pause after them, in which others use the event loop."""


class Read(Protocol):
    """Runs a function in one read-only transaction, in a thread of a pool."""

    async def __call__(self, work: Callable[[ReadTransaction], T], *, pool: ThreadPoolExecutor) -> T: ...


@dataclass(frozen=True)
class Update:
    """What one read has found: the session, and its events after a number.

    :param events: at most `_BATCH` of them.
    """

    session: v1.Session
    after: int
    events: tuple[ev.Event, ...]

    @property
    def last(self) -> int:
        """Number of the last event."""
        return self.events[-1].sequence if self.events else self.after

    @property
    def complete(self) -> bool:
        """Whether the session had no further events."""
        return len(self.events) < _BATCH

    @property
    def ended(self) -> bool:
        """Whether the session has ended and has no further events."""
        return self.complete and self.session.state in sessions.ENDED

    def since(self, sequence: int) -> tuple[ev.Event, ...] | None:
        """Return the events after a number; None if some of them came before this update."""
        if sequence < self.after:
            return None
        return tuple(event for event in self.events if event.sequence > sequence)


class _Feed:
    """The latest update of a watched session, and its place in the queue."""

    def __init__(self) -> None:
        self.reader: asyncio.Task[None] | None = None
        self.watchers = 0
        self.place: v1.QueuePlace | None = None
        self._update: Update | None = None
        self._error: Exception | None = None
        self._version = 0
        self._changed = asyncio.Event()

    def publish(self, update: Update, place: v1.QueuePlace | None) -> None:
        """Replace the update and the place."""
        self._update, self.place = update, place
        self._wake()

    def move(self, place: v1.QueuePlace) -> None:
        """Replace the place."""
        if place != self.place:
            self.place = place
            self._wake()

    def fail(self, error: Exception) -> None:
        """End all watches with an error."""
        self._error = error
        self._wake()

    def _wake(self) -> None:
        self._version += 1
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def next(self, version: int) -> int:
        """Wait for another version than this, and return it; 0 is before the first one.

        :raises Exception: when the reader has failed.
        """
        while self._version == version:
            await self._changed.wait()
        if self._error is not None:
            raise self._error
        return self._version

    def latest(self) -> Update:
        """The latest update; there is one from the first version on."""
        assert self._update is not None
        return self._update


class Watches:
    """All watches of this server.

    :param read: reads the database.
    :param order: the order of the waiting sessions.
    """

    def __init__(self, read: Read, notifier: Notifier, order: QueueOrder) -> None:
        self._read = read
        self._notifier = notifier
        self._order = order
        self._feeds: dict[str, _Feed] = {}
        self._log = structlog.get_logger("dressage.watches")

    async def watch(self, session: str, sequence: int) -> AsyncGenerator[ev.Event | v1.QueuePlace, None]:
        """Yield the events of a session after a number, and its places in the queue, until it has ended.

        :raises NotFound: when there is no such session.
        """
        place, version = v1.QueuePlace(), 0
        with self._follow(session, sequence) as feed:
            while True:
                version = await feed.next(version)
                update, current = feed.latest(), feed.place
                async for event in self._events(session, update, sequence):
                    sequence = event.sequence
                    yield event
                if update.ended:
                    return
                if current is not None and current != place:
                    place = current
                    yield place

    async def _events(self, session: str, update: Update, sequence: int) -> AsyncIterator[ev.Event]:
        """Yield the events after a number: those of the update, or all from the database if earlier ones are missing in it."""
        batch = update.since(sequence)
        while batch is None:
            read = await self._look(session, sequence)
            for event in read.events:
                sequence = event.sequence
                yield event
            batch = () if read.complete else None
        for event in batch:
            yield event

    async def follow_queue(self) -> None:
        """Read the queue after each of its changes and publish the places of watched sessions, until cancelled."""
        published = -1
        with self._notifier.subscribe(queue.QUEUE_TOPIC) as subscription:
            while True:
                await subscription.wait(_QUEUE_SECONDS)
                try:
                    await self._read(queue.refresh, pool=threads.WATCHERS)
                except DressageError as error:
                    self._log.warning("the queue is read later", error=error.message)
                except Exception:
                    self._log.exception("the queue is read later")
                if self._order.number != published:
                    published = self._order.number
                    await self._publish_places()
                    await asyncio.sleep(_PLACES_SECONDS)

    async def _publish_places(self) -> None:
        waiting = [(session, feed) for session, feed in self._feeds.items() if feed.place is not None]
        for begin in range(0, len(waiting), _PLACES):
            for session, feed in waiting[begin : begin + _PLACES]:
                rank = self._order.rank_of(session)
                if rank is None:  # perhaps another server has admitted it
                    self._notifier.publish({resource_names.session_name(session)})
                elif feed.place is not None:
                    feed.move(queue.message(*rank))
            await asyncio.sleep(_PLACES_PAUSE)

    @contextmanager
    def _follow(self, session: str, sequence: int) -> Iterator[_Feed]:
        """Join the feed of a session: the first watcher starts its reader, the last one ends it."""
        feed = self._feeds.get(session)
        if feed is None:
            feed = self._feeds[session] = _Feed()
            # Not in the context of the first watcher, whose call may end before the reader does.
            reading = self._keep(session, feed, sequence)
            feed.reader = asyncio.create_task(reading, context=contextvars.Context())
        feed.watchers += 1
        try:
            yield feed
        finally:
            feed.watchers -= 1
            if not feed.watchers:
                self._drop(session, feed)
                if feed.reader is not None:
                    feed.reader.cancel()

    def _drop(self, session: str, feed: _Feed) -> None:
        if self._feeds.get(session) is feed:
            del self._feeds[session]

    async def _keep(self, session: str, feed: _Feed, sequence: int) -> None:
        """Read a session after each of its changes, until it has ended."""
        try:
            with self._notifier.subscribe(resource_names.session_name(session)) as subscription:
                while True:
                    update = await self._look(session, sequence)
                    feed.publish(update, self._place(session, update))
                    sequence = update.last
                    if update.ended:
                        return
                    if update.complete:
                        await subscription.wait(_REST_SECONDS)
                        await asyncio.sleep(_GATHER_SECONDS)
        except Exception as error:  # it is raised in the calls of all watchers
            feed.fail(error)
        finally:
            self._drop(session, feed)  # a session that is resumed gets another feed

    def _place(self, session: str, update: Update) -> v1.QueuePlace | None:
        if not update.session.HasField("queue"):
            return None
        rank = self._order.rank_of(session)  # that of the update may be older than the places published meanwhile
        return update.session.queue if rank is None else queue.message(*rank)

    async def _look(self, session: str, sequence: int) -> Update:
        # State and events are read in one transaction, so that no event before the end is missed.
        return await self._read(partial(_update, session=session, after=sequence), pool=threads.WATCHERS)


def _update(tx: ReadTransaction, *, session: str, after: int) -> Update:
    return Update(sessions.get(tx, session), after, tuple(events.after(tx, session, after, limit=_BATCH)))
