"""Watches share the reads of a session and of the queue; a slow one delays no other and loses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import NotFound
from dressage_orchestrator import threads, watches
from dressage_orchestrator.database import events, queue, sessions, workflows
from dressage_orchestrator.database.engine import Database, ReadTransaction, sqlite_url
from dressage_orchestrator.notifications import Notifier
from dressage_orchestrator.watches import Watches

from tests.waiting import until


class Server:
    """The watches of a server, and a count of their reads."""

    def __init__(self, file: Path) -> None:
        self.database = Database(sqlite_url(file))
        notifier = Notifier(asyncio.get_running_loop())
        self.database.listener = notifier.publish
        self.watches = Watches(self.read, notifier, self.database.queue)
        self.reads = 0
        self.following = asyncio.create_task(self.watches.follow_queue())

    async def read(self, work: Callable[[ReadTransaction], Any], *, pool: ThreadPoolExecutor) -> Any:
        self.reads += 1

        def run() -> Any:
            with self.database.read() as tx:
                return work(tx)

        return await threads.run(pool, run)

    def create(self, session: str, *, queued: bool = False) -> None:
        with self.database.begin() as tx:
            sessions.create(tx, session, v1.SessionSpec(intent="run"))
            if queued:
                queue.enter(tx, session)

    def note(self, session: str, *, count: int = 1) -> None:
        with self.database.begin() as tx:
            for _ in range(count):
                events.append(tx, session, ev.Event(note_added=ev.NoteAdded(note="slower")))

    def end(self, session: str) -> None:
        with self.database.begin() as tx:
            sessions.change(tx, session, lambda entry: setattr(entry, "state", v1.SESSION_STATE_FAILED))

    async def numbers(self, session: str, into: list[int], *, after: int = 0) -> None:
        """Append the numbers of the events of a watch to a list, to the end of the session."""
        async with aclosing(self.watches.watch(session, after)) as changes:
            async for change in changes:
                assert isinstance(change, ev.Event)
                into.append(change.sequence)

    async def places(self, session: str, into: list[tuple[int, int]]) -> None:
        """Append the places of a watch to a list."""
        async with aclosing(self.watches.watch(session, 0)) as changes:
            async for change in changes:
                if isinstance(change, v1.QueuePlace):
                    into.append((change.place, change.length))


@pytest_asyncio.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    monkeypatch.setattr(watches, "_GATHER_SECONDS", 0.0)
    monkeypatch.setattr(watches, "_PLACES_SECONDS", 0.0)
    server = Server(tmp_path / "d.db")
    yield server
    server.following.cancel()
    server.database.close()


async def test_watchers_of_a_session_share_its_reads(server: Server):
    server.create("sa")
    taken: list[list[int]] = [[] for _ in range(100)]
    watching = [asyncio.create_task(server.numbers("sa", numbers)) for numbers in taken]
    await until(lambda: all(taken))
    for count in range(2, 12):
        server.note("sa")
        await until(lambda count=count: all(len(numbers) == count for numbers in taken))  # type: ignore[misc]
    server.end("sa")
    await asyncio.gather(*watching)
    assert all(numbers == list(range(1, 13)) for numbers in taken)
    assert server.reads < 60, "11 changes, each read a few times, and not by a hundred watchers"


async def test_a_slow_watcher_reads_again_and_delays_no_other(server: Server):
    server.create("sa")
    quick: list[int] = []
    watching = asyncio.create_task(server.numbers("sa", quick))
    async with aclosing(server.watches.watch("sa", 0)) as slow:
        numbers = [(await anext(slow)).sequence]  # type: ignore[union-attr]
        for _ in range(3):
            server.note("sa", count=150)
            await until(lambda: len(quick) % 150 == 1 and len(quick) > len(numbers))
        await until(lambda: len(quick) == 451)
        server.end("sa")
        await watching
        numbers += [change.sequence async for change in slow if isinstance(change, ev.Event)]
    assert numbers == quick == list(range(1, 453))


async def test_a_watcher_resumes_after_its_last_event(server: Server):
    server.create("sa")
    server.note("sa", count=450)
    early, late = list[int](), list[int]()
    watching = [asyncio.create_task(server.numbers("sa", early))]
    await until(lambda: len(early) == 451)
    watching += [asyncio.create_task(server.numbers("sa", late, after=100))]
    await until(lambda: len(late) == 351)
    server.end("sa")
    await asyncio.gather(*watching)
    assert (early, late) == (list(range(1, 453)), list(range(101, 453)))
    again: list[int] = []
    await server.numbers("sa", again, after=451)
    assert again == [452]


async def test_watches_of_waiting_sessions_share_the_reads_of_the_queue(server: Server):
    names = [f"s{number:03}" for number in range(200)]
    for name in names:
        server.create(name, queued=True)
    taken: dict[str, list[tuple[int, int]]] = {name: [] for name in names}
    watching = [asyncio.create_task(server.places(name, places)) for name, places in taken.items()]
    await until(lambda: all(taken.values()))
    assert [places[-1] for places in taken.values()] == [(place, 200) for place in range(1, 201)]
    for admitted in range(1, 4):
        server.reads = 0
        with server.database.begin() as tx:
            assert workflows.admit(tx, admitted) == [(names[admitted - 1], 0)]
        left = names[admitted:]
        await until(
            lambda left=left: all(  # type: ignore[misc]
                taken[name][-1] == (place, len(left)) for place, name in enumerate(left, start=1)
            )
        )
        assert server.reads < 20, "the queue, the admitted session, and no waiting one"
    for task in watching:
        task.cancel()
    await asyncio.gather(*watching, return_exceptions=True)
    assert not server.watches._feeds


async def test_an_event_reaches_its_watcher_while_hundreds_wait(server: Server):
    server.create("sa")
    names = [f"s{number:03}" for number in range(300)]
    for name in names:
        server.create(name, queued=True)
    taken: dict[str, list[tuple[int, int]]] = {name: [] for name in names}
    watching = [asyncio.create_task(server.places(name, places)) for name, places in taken.items()]
    numbers: list[int] = []
    watching.append(asyncio.create_task(server.numbers("sa", numbers)))
    await until(lambda: all(taken.values()) and numbers)
    server.reads = 0
    server.create("last", queued=True)  # the places of all watched sessions change
    server.note("sa")
    await until(lambda: numbers == [1, 2])
    await until(lambda: all(places[-1][1] == 301 for places in taken.values()))
    assert server.reads < 12, "the session and the queue, and no waiting session"
    for task in watching:
        task.cancel()


async def test_a_watch_finds_an_admission_by_another_server(server: Server, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(watches, "_QUEUE_SECONDS", 0.02)
    for name in ("sa", "sb"):
        server.create(name, queued=True)
    taken: list[Any] = []

    async def watch() -> None:
        async with aclosing(server.watches.watch("sa", 0)) as changes:
            async for change in changes:
                taken.append(change)

    watching = [asyncio.create_task(watch())]
    places: list[tuple[int, int]] = []
    watching += [asyncio.create_task(server.places("sb", places))]
    await until(lambda: len(taken) == 2 and places)
    other = Database(sqlite_url(Path(str(server.database._engine.url.database))))
    with other.begin() as tx:
        workflows.admit(tx, 1)
        events.append(tx, "sa", ev.Event(note_added=ev.NoteAdded(note="begins")))
    await until(lambda: len(taken) == 3 and places[-1] == (1, 1))
    other.close()
    for task in watching:
        task.cancel()


async def test_a_watch_of_no_session_fails_and_leaves_nothing(server: Server):
    for _ in range(2):
        with pytest.raises(NotFound):
            await server.numbers("sx", [])
    assert not server.watches._feeds
    server.create("sx")
    numbers: list[int] = []
    watching = asyncio.create_task(server.numbers("sx", numbers))
    await until(lambda: numbers)
    server.end("sx")
    await watching
    assert numbers == [1, 2] and not server.watches._feeds
