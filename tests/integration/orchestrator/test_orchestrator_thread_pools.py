"""Watchers, requests, trainers and background work have bounded pools of their own: one that is full delays no other."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from dressage.api.v1 import environment_service_pb2 as environments
from dressage.api.v1 import maintenance_service_pb2 as maintenance
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb
from dressage_orchestrator import threads, watches

from tests.fakes.specs import reward_session
from tests.integration.orchestrator.fakes import JUDGE, watch
from tests.integration.orchestrator.stack import Stack
from tests.waiting import until

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(240)]
SECONDS = 30.0
"""Deadline of a call while another pool is full; long, as the machine may be busy."""


@contextmanager
def full(pool: ThreadPoolExecutor) -> Iterator[None]:
    """All threads of a pool wait, and so does more work than it has threads."""
    release = threading.Event()
    held = [pool.submit(release.wait, 200) for _ in range(3 * pool._max_workers)]
    try:
        yield
    finally:
        release.set()
        wait(held, 30)


async def created(stack: Stack, ident: str, source: str = "# good\n") -> v1.Session:
    spec = reward_session(
        intent="run", environment="environments/HalfCheetah-v5", seeds=1, steps_per_member=1000, max_iterations=1,
        reward_source=source, judge_source=JUDGE,
    )  # fmt: skip
    request = pb.CreateSessionRequest(spec=spec, session_id=ident)
    session: v1.Session = await stack.sessions.CreateSession(request, timeout=SECONDS)
    return session


async def answers(stack: Stack, name: str) -> None:
    """Requests of all kinds are answered."""
    await stack.sessions.GetSession(pb.GetSessionRequest(name=name), timeout=SECONDS)
    await stack.sessions.ListSessions(pb.ListSessionsRequest(), timeout=SECONDS)
    model = environments.GetEnvironmentModelRequest(name="environments/HalfCheetah-v5")
    await stack.environments.GetEnvironmentModel(model, timeout=SECONDS)
    collect = maintenance.CollectGarbageRequest(validate_only=True)
    async for _ in stack.maintenance.CollectGarbage(collect, timeout=SECONDS):
        pass


async def until_ended(stack: Stack, name: str) -> v1.Session:
    while True:
        session: v1.Session = await stack.sessions.GetSession(pb.GetSessionRequest(name=name), timeout=SECONDS)
        if session.HasField("end_time"):
            return session
        await asyncio.sleep(0.1)


async def test_watchers_that_are_held_up_delay_nothing_else(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    """The readers of forty watches wait for the database: a session is created, trained and ends, and requests are answered."""
    release, read = threading.Event(), watches._update
    await stack.start()
    names = [(await created(stack, name)).name for name in ("first", "second")]
    for name in names:
        await watch(stack.sessions, name)
    reading = 0

    def hold(*arguments: Any, **options: Any) -> Any:
        nonlocal reading
        reading += 1
        release.wait(200)
        return read(*arguments, **options)

    monkeypatch.setattr(watches, "_update", hold)
    tasks = [asyncio.create_task(watch(stack.sessions, names[index % 2], seconds=200)) for index in range(40)]
    try:
        # One reader for each session: both threads are held up.
        await until(lambda: reading == threads.WATCHERS._max_workers == 2)
        third = await created(stack, "third")
        assert (await until_ended(stack, third.name)).state == v1.SESSION_STATE_SUCCEEDED
        await answers(stack, third.name)
        assert not any(task.done() for task in tasks)
    finally:
        release.set()
    events = await asyncio.gather(*tasks)
    for of_one in (events[::2], events[1::2]):
        assert len({len(batch) for batch in of_one}) == 1 and of_one[0]


async def test_a_session_ends_while_no_request_is_answered(stack: Stack, tmp_path: Path) -> None:
    await stack.start()
    session = await created(stack, "slow", "# good # slow\n")
    watched = asyncio.create_task(watch(stack.sessions, session.name, seconds=120))
    with full(threads.REQUESTS):
        (tmp_path / "go").touch()
        await watched
    assert (await until_ended(stack, session.name)).state == v1.SESSION_STATE_SUCCEEDED


async def test_trainers_that_are_held_up_delay_no_request(stack: Stack) -> None:
    await stack.start()
    with full(threads.TRAINERS):
        session = await created(stack, "waits")
        await answers(stack, session.name)
        follow = stack.sessions.WatchSession(pb.WatchSessionRequest(name=session.name), timeout=SECONDS)
        assert (await anext(aiter(follow))).event.sequence == 1
        follow.cancel()
    assert (await until_ended(stack, session.name)).state == v1.SESSION_STATE_SUCCEEDED


async def test_no_request_uses_the_pool_of_background_work(stack: Stack) -> None:
    await stack.start()
    session = await created(stack, "one")
    await watch(stack.sessions, session.name)
    release = threading.Event()
    loop = asyncio.get_running_loop()
    held = [loop.run_in_executor(None, partial(release.wait, 200)) for _ in range(3 * ((os.cpu_count() or 1) + 4))]
    try:
        await answers(stack, session.name)
        assert await watch(stack.sessions, session.name, seconds=SECONDS)
    finally:
        release.set()
        await asyncio.gather(*held)
