"""kill -9 of the orchestrator in the middle of a run: the session continues from its last step and checkpoint."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psutil
from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb
from dressage.api.v1 import session_service_pb2_grpc
from dressage.serving.channels import connect

from tests.integration.orchestrator.fakes import author, watch
from tests.integration.orchestrator.stack import Stack
from tests.waiting import until

SERVER = Path(__file__).with_name("server_process.py")


@contextmanager
def server(folder: Path, neighbours: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, str(SERVER), str(folder), neighbours])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def address_of(folder: Path, process: subprocess.Popen[bytes]) -> str:
    async with asyncio.timeout(180):
        while True:
            path = folder / "orchestrator.json"
            if path.exists() and (facts := json.loads(path.read_text()))["pid"] == process.pid:
                return str(facts["address"])
            assert process.poll() is None, "the server ended"
            await asyncio.sleep(0.1)


async def under_way(stub: Any) -> v1.Run:
    async with asyncio.timeout(180):
        while True:
            request = pb.ListAssignmentsRequest(parent="sessions/crash/iterations/-")
            listed = (await stub.ListAssignments(request)).assignments
            if listed and listed[0].members[0].env_steps > 0:
                return (await stub.ListRuns(pb.ListRunsRequest(parent="sessions/crash"))).runs[0]
            await asyncio.sleep(0.1)


def checkpoints(folder: Path) -> list[str]:
    """Checkpoints that the server has recorded, from which another attempt begins."""
    with closing(sqlite3.connect(f"file:{folder / 'dressage.db'}?mode=ro", uri=True)) as database:
        return [key for (key,) in database.execute("SELECT checkpoint FROM assignments WHERE checkpoint != ''")]


def good_and_slow(task: agent_pb.Task) -> agent_pb.TaskResult:
    result = author(task)
    if task.HasField("reward_author"):
        result.reward.source = "# good # slow\n"
    return result


async def test_kill_9_in_training(stack: Stack) -> None:
    neighbours = stack.neighbours
    neighbours.agent.answer = good_and_slow
    folder = stack.folder
    with server(folder, neighbours.address) as first:
        stub: Any = session_service_pb2_grpc.SessionServiceStub(connect(await address_of(folder, first)))
        session_spec = v1.SessionSpec(
            intent="run",
            environment="environments/HalfCheetah-v5",
            reward=v1.RewardSpec(seeds=1, steps_per_member=1000),
        )
        await stub.CreateSession(pb.CreateSessionRequest(spec=session_spec, session_id="crash"))
        run = await under_way(stub)
        assert run.attempt == 1
        await until(lambda: checkpoints(folder) == ["checkpoints/5.safetensors"])
        trainers = psutil.Process(first.pid).children(recursive=True)
        assert trainers
        os.kill(first.pid, 9)
        first.wait()
        killed = time.time()
        _, alive = await asyncio.to_thread(psutil.wait_procs, trainers, 5)
        assert not alive, "a trainer outlived its server"

    messages = list(neighbours.agent.keys)
    assert sorted(messages) == ["iterations/1/reward_author", "judge_author"]
    checks = len(neighbours.judge.checks)
    (folder / "go").touch()
    await asyncio.sleep(1.0)
    down = time.time() - killed
    with server(folder, neighbours.address) as second:
        stub = session_service_pb2_grpc.SessionServiceStub(connect(await address_of(folder, second)))
        events = await watch(stub, "sessions/crash")
        session = await stub.GetSession(pb.GetSessionRequest(name="sessions/crash"))
        runs = (await stub.ListRuns(pb.ListRunsRequest(parent="sessions/crash"))).runs
        request = pb.ListAssignmentsRequest(parent="sessions/crash/iterations/-")
        listed = (await stub.ListAssignments(request)).assignments
    assert session.state == v1.SESSION_STATE_SUCCEEDED, session.state_reason
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert session.idle_seconds >= down, "the time without a server counts as work"
    assert neighbours.agent.keys == messages, "a recorded conversation was held again"
    assert len(neighbours.judge.checks) == checks, "a recorded check was made again"
    assert [(entry.name.rpartition("/")[2], entry.failures) for entry in listed] == [("train", 0), ("confirm", 0)]
    assert (runs[0].name.rpartition("/")[2], runs[0].attempt) == ("r1", 2)
    log = (folder / "logs" / "sessions_crash_runs_r1.log").read_text()
    assert "begins at checkpoint ''" in log and "begins at checkpoint 'checkpoints/5.safetensors'" in log


async def test_a_second_server_on_the_folder_is_refused(stack: Stack) -> None:
    await stack.start()
    command = [sys.executable, "-m", "dressage_orchestrator"]
    environment = {**os.environ, "DRESSAGE_ORCHESTRATOR_DATA_DIR": str(stack.folder)}
    second = await asyncio.to_thread(
        subprocess.run, command, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert second.returncode == 1
    lines = second.stderr.strip().splitlines()
    assert len(lines) == 1 and str(os.getpid()) in lines[0] and stack.service.address in lines[0]
