"""Servers that share a PostgreSQL and an S3 store: whole sessions, take-over after kill -9, outages, fences."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import pytest_asyncio
from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb
from dressage.api.v1 import session_service_pb2_grpc
from dressage.artifacts.s3 import S3Store
from dressage.serving.channels import connect

from tests.integration.orchestrator.fakes import author, watch
from tests.integration.orchestrator.stack import Stack
from tests.integration.orchestrator.test_orchestrator_crash import SERVER, address_of
from tests.servers.postgres import Postgres, postgres, restart
from tests.servers.seaweed import S3Server, other, seaweed

BEAT, LEASE = 0.5, 4.0


@pytest.fixture(scope="module")
def postgres_server() -> Iterator[Postgres]:
    with postgres() as server:
        yield server


@pytest.fixture(scope="module")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    elsewhere = other()
    if elsewhere is not None:
        yield elsewhere
        return
    with seaweed(tmp_path_factory.mktemp("seaweed")) as server:
        yield server


@pytest_asyncio.fixture
async def cluster(
    postgres_server: Postgres, s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Stack]:
    """A stack whose servers get database, store and timing from the environment."""
    monkeypatch.setenv("DRESSAGE_TRAINER_GO", str(tmp_path / "go"))
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    url = f"s3://replicas/{tmp_path.name}"
    for name, value in {
        "DATABASE_URL": postgres_server.database(),
        "STORE_URL": url,
        "HEARTBEAT_SECONDS": BEAT,
        "LEASE_SECONDS": LEASE,
    }.items():
        monkeypatch.setenv(f"DRESSAGE_ORCHESTRATOR_{name}", str(value))
    store = S3Store("replicas", tmp_path.name, options=s3_server.options())
    stack = Stack(tmp_path, store=store)
    await stack.neighbours.start()
    try:
        yield stack
    finally:
        await stack.stop()
        await stack.neighbours.stop()


@contextmanager
def replica(folder: Path, name: str, neighbours: str) -> Iterator[subprocess.Popen[bytes]]:
    """A server with a data folder and a name of its own."""
    environment = {**os.environ, "DRESSAGE_ORCHESTRATOR_EXECUTOR_NAME": name}
    process = subprocess.Popen([sys.executable, str(SERVER), str(folder / name), neighbours], env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def reach(folder: Path, process: subprocess.Popen[bytes]) -> Any:
    return session_service_pb2_grpc.SessionServiceStub(connect(await address_of(folder, process)))


async def training(stub: Any, session: str) -> v1.Run:
    async with asyncio.timeout(180):
        while True:
            request = pb.ListAssignmentsRequest(parent=f"{session}/iterations/-")
            listed = (await stub.ListAssignments(request)).assignments
            if listed and listed[0].members[0].env_steps > 0:
                return (await stub.ListRuns(pb.ListRunsRequest(parent=session))).runs[0]
            await asyncio.sleep(0.1)


def good_and_slow(task: agent_pb.Task) -> agent_pb.TaskResult:
    result = author(task)
    if task.HasField("reward_author"):
        result.reward.source = "# good # slow\n"
    return result


def spec() -> v1.SessionSpec:
    return v1.SessionSpec(
        intent="run", environment="environments/HalfCheetah-v5", reward=v1.RewardSpec(seeds=1, steps_per_member=1000)
    )


@pytest.mark.slow
async def test_a_whole_session_on_postgresql_and_s3(cluster: Stack, postgres_server: Postgres) -> None:
    """The story of the SQLite tests, with the database restarted in its middle and files moved by presigned URLs."""
    output = iter(range(100))

    def restarting(task: agent_pb.Task) -> agent_pb.TaskResult:
        if task.HasField("reviser") and next(output) == 0:
            restart(postgres_server, away=1.0)
        return author(task)

    cluster.neighbours.agent.answer = restarting
    await cluster.start()
    request = pb.CreateSessionRequest(spec=spec(), session_id="story", request_id="r-1")
    assert await cluster.sessions.CreateSession(request) == await cluster.sessions.CreateSession(request)
    events = await patiently_watched(cluster.sessions, "sessions/story")
    session = await cluster.sessions.GetSession(pb.GetSessionRequest(name="sessions/story"))
    assert session.state == v1.SESSION_STATE_SUCCEEDED, session.state_reason
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert session.cost.requests == 4 and session.env_steps == 2 * 1000
    assert next(output) == 1, "the reviser was asked once"
    assert cluster.store.get(f"{session.best_policy}/policy.safetensors") == b"weights"
    assert cluster.store.get(session.best_video) == b"mp4"


async def patiently_watched(stub: Any, name: str) -> list[Any]:
    """Watch as a client does: after a broken stream continue after the last event."""
    import grpc

    seen: list[Any] = []
    async with asyncio.timeout(240):
        while True:
            request = pb.WatchSessionRequest(name=name, resume_token=str(seen[-1].sequence) if seen else "")
            try:
                async for answer in stub.WatchSession(request):
                    seen.append(answer.event)
                return seen
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
                await asyncio.sleep(0.3)


async def test_kill_9_of_one_server_and_the_other_takes_over(cluster: Stack) -> None:
    neighbours = cluster.neighbours
    neighbours.agent.answer = good_and_slow
    folder, name = cluster.folder, "sessions/moved"
    with replica(folder, "a", neighbours.address) as first, replica(folder, "b", neighbours.address) as second:
        a, b = await reach(folder / "a", first), await reach(folder / "b", second)
        await a.CreateSession(pb.CreateSessionRequest(spec=spec(), session_id="moved", request_id="r"))
        run = await training(b, name)  # what runs on one is seen from the other
        assert run.attempt == 1
        watched = asyncio.create_task(watch(b, name, seconds=240))
        await asyncio.sleep(2 * LEASE)
        assert (await training(b, name)).attempt == 1, "a living server's run was taken from it"
        messages, checks = list(neighbours.agent.keys), len(neighbours.judge.checks)

        first.kill()
        first.wait()
        killed = time.monotonic()
        async with asyncio.timeout(30):
            while (await training(b, name)).attempt != 2:
                await asyncio.sleep(0.2)
        assert time.monotonic() - killed < 30
        (folder / "go").touch()
        events = await watched
        session = await b.GetSession(pb.GetSessionRequest(name=name))
        runs = (await b.ListRuns(pb.ListRunsRequest(parent=name))).runs
    assert session.state == v1.SESSION_STATE_SUCCEEDED, session.state_reason
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert neighbours.agent.keys == messages, "a recorded conversation was held again"
    assert len(neighbours.judge.checks) == checks, "a recorded check was made again"
    assert (runs[0].name.rpartition("/")[2], runs[0].attempt) == ("r1", 2)
    log = (folder / "b" / "logs" / "sessions_moved_runs_r1.log").read_text()
    assert "begins at checkpoint 'checkpoints/5.safetensors'" in log


@pytest.mark.slow
async def test_a_suspended_server_stops_when_it_resumes(cluster: Stack) -> None:
    """SIGSTOP in training: the other takes over; after SIGCONT the first is fenced and exits."""
    import signal

    neighbours = cluster.neighbours
    neighbours.agent.answer = good_and_slow
    folder, name = cluster.folder, "sessions/frozen"
    with replica(folder, "a", neighbours.address) as first, replica(folder, "b", neighbours.address) as second:
        a, b = await reach(folder / "a", first), await reach(folder / "b", second)
        await a.CreateSession(pb.CreateSessionRequest(spec=spec(), session_id="frozen"))
        await training(a, name)
        first.send_signal(signal.SIGSTOP)
        async with asyncio.timeout(LEASE + 40):
            while (await training(b, name)).attempt != 2:
                await asyncio.sleep(0.2)
        first.send_signal(signal.SIGCONT)
        assert await asyncio.to_thread(first.wait, 120) == 1
        (folder / "go").touch()
        await watch(b, name, seconds=240)
        session = await b.GetSession(pb.GetSessionRequest(name=name))
        runs = (await b.ListRuns(pb.ListRunsRequest(parent=name))).runs
    assert session.state == v1.SESSION_STATE_SUCCEEDED, session.state_reason
    assert runs[0].attempt == 2
    assert sorted(neighbours.agent.keys) == ["iterations/1/reward_author", "judge_author"]
    with psycopg.connect(os.environ["DRESSAGE_ORCHESTRATOR_DATABASE_URL"]) as connection:
        left = connection.execute("SELECT name FROM executors WHERE NOT dead").fetchall()
    assert left == [("b",)]
