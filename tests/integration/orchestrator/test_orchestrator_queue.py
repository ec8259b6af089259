"""Sessions over the limit of the server are PENDING in a queue; they start as others end, in their order."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from dressage.api.v1 import session_pb2 as v1
from dressage.cli import listings
from dressage.client import AsyncClient, CallPolicy
from dressage.local.connection import Connection
from dressage.sdk import event_lines, picture, progress, texts
from dressage.sdk.results import collect, rows
from dressage_orchestrator.database import queue, sessions, workflows
from dressage_orchestrator.database.engine import Database, sqlite_url
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from tests.fakes.specs import reward_session
from tests.integration.orchestrator.stack import Stack

SPEC = reward_session(intent="run", environment="environments/HalfCheetah-v5", approve_before_evaluation=True, seeds=1)
PENDING, RUNNING, CANCELLED = v1.SESSION_STATE_PENDING, v1.SESSION_STATE_RUNNING, v1.SESSION_STATE_CANCELLED


@pytest_asyncio.fixture
async def client(stack: Stack) -> AsyncIterator[AsyncClient]:
    stack.options = {"max_running_sessions": 1}
    await stack.start()
    async with connect(stack) as client:
        yield client


def connect(stack: Stack) -> AsyncClient:
    return AsyncClient.connect(stack.service.address, None, environ={}, policy=CallPolicy(total_seconds=20))


async def state_of(
    client: AsyncClient, name: str, state: v1.SessionState.ValueType, seconds: float = 20.0
) -> v1.Session:
    async with asyncio.timeout(seconds):
        while (session := await client.get_session(name)).state != state:
            await asyncio.sleep(0.05)
    return session


async def places(client: AsyncClient) -> dict[str, int]:
    """Places of the sessions that wait."""
    return {
        texts.short(entry.name): entry.queue.place async for entry in client.list_sessions() if entry.HasField("queue")
    }


async def test_sessions_over_the_limit_wait_in_their_order(client: AsyncClient):
    names = ["sa", "sb", "sc", "sd"]
    created = [await client.create_session(SPEC, session_id=name) for name in names]
    assert [entry.queue.place for entry in created] == [0, 1, 2, 3]
    assert "max_running_sessions" in created[1].queue.reason and created[3].queue.length == 3
    await state_of(client, "sa", RUNNING)
    assert await places(client) == {"sb": 1, "sc": 2, "sd": 3}
    assert (await client.get_session("sc")).queue.place == 2
    await client.cancel_session("sc")
    ended = await state_of(client, "sc", CANCELLED)
    assert not ended.HasField("queue"), "a cancelled session ends although there is no place for it"
    assert await places(client) == {"sb": 1, "sd": 2}
    await client.cancel_session("sa")
    began = await state_of(client, "sb", RUNNING)
    assert not began.HasField("queue") and await places(client) == {"sd": 1}
    assert began.start_time.ToMicroseconds() > (await client.get_session("sa")).end_time.ToMicroseconds()
    # A session that is resumed waits behind the others.
    resumed = await client.resume_session("sa")
    assert (resumed.state, resumed.queue.place) == (PENDING, 2)
    await client.delete_session("sb", force=True)
    await state_of(client, "sd", RUNNING)


async def test_a_watch_states_the_place_until_the_session_starts(client: AsyncClient, stack: Stack):
    for name in ("sa", "sb", "sc"):
        await client.create_session(SPEC, session_id=name)
    seen: list[object] = []

    async def watch() -> None:
        view = progress.View(session="sessions/sc", started=0.0)
        async for response in client.watch_session("sc"):
            view = progress.after(view, response)
            console = Console(width=200, file=io.StringIO(), record=True)
            console.print(picture.render(view, now=0.0))
            seen.append((response.queue.place or event_lines.line(response.event), view.queue, console.export_text()))
            if response.event.state_changed.state == RUNNING:
                return

    async with asyncio.timeout(40):
        watching = asyncio.create_task(watch())
        for name, place in (("sa", 2), ("sb", 1)):
            while not any(entry[0] == place for entry in seen):  # type: ignore[index]
                await asyncio.sleep(0.05)
            await client.cancel_session(name)
        await watching
    assert [entry[0] for entry in seen] == ["session pending", 2, 1, "session running"]  # type: ignore[index]
    assert [text[:27] for _, text, _ in seen] == ["", "waits in the queue (2 of 2)", "waits in the queue (1 of 1)", ""]  # type: ignore[misc]
    assert all((text or "sc") in drawn for _, text, drawn in seen)  # type: ignore[misc]


async def test_lists_and_summaries_show_the_place(
    client: AsyncClient, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "160")
    for name in ("sa", "sb"):
        await client.create_session(SPEC, session_id=name)
    waiting = await client.get_session("sb")
    listings.print_sessions([listings.Entry(waiting, "pending", "")], as_json=False)
    assert "pending (1 of 1 in the queue)" in capsys.readouterr().out

    result = await collect(waiting, Connection(client, "remote", None))
    assert rows(result)[0][1].startswith("pending: waits in the queue (1 of 1): the server runs")


async def test_the_queue_outlives_the_server(client: AsyncClient, stack: Stack):
    for name in ("sa", "sb", "sc"):
        await client.create_session(SPEC, session_id=name)
    await state_of(client, "sa", RUNNING)
    await stack.stop()
    await stack.start()
    async with connect(stack) as again:
        await state_of(again, "sa", RUNNING)
        assert await places(again) == {"sb": 1, "sc": 2}
        await stack.stop()
    stack.options = {"max_running_sessions": 0}
    await stack.start()
    async with connect(stack) as unlimited:
        for name in ("sb", "sc"):
            await state_of(unlimited, name, RUNNING)
        assert await places(unlimited) == {}


@settings(max_examples=10, deadline=None, derandomize=True)
@given(limit=st.integers(1, 3), course=st.lists(st.sampled_from(["create", "end", "cancel"]), max_size=12))
def test_sessions_start_in_order_and_never_more_than_the_limit(
    limit: int, course: list[str], tmp_path_factory: pytest.TempPathFactory
):
    database = Database(sqlite_url(tmp_path_factory.mktemp("q") / "d.db"))
    count, waiting, running = 0, [], []
    for action in course:
        with database.begin() as tx:
            if action == "create":
                count += 1
                sessions.create(tx, f"s{count}", v1.SessionSpec(intent="run"))
                queue.enter(tx, f"s{count}")
                waiting.append(f"s{count}")
            elif action == "end" and running:
                sessions.change(tx, running.pop(0), lambda entry: setattr(entry, "state", v1.SESSION_STATE_FAILED))
            elif action == "cancel" and waiting:
                sessions.request_cancel(tx, waiting.pop(), "no longer needed")
        with database.begin() as tx:
            admitted = [name for name, _ in workflows.admit(tx, limit)]
        started = [name for name in admitted if name in waiting]
        expected = waiting[: max(0, limit - len(running))]
        assert started == expected and len(admitted) - len(started) == (
            action == "cancel" and len(admitted) > len(started)
        )
        running += [name for name in admitted]
        waiting = waiting[len(expected) :]
        with database.read() as tx:
            assert [sessions.get(tx, name).queue.place for name in waiting] == list(range(1, len(waiting) + 1))
    database.close()
