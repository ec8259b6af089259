"""kill -9 of the server between a step's work and its record: the provider is asked no more, and the result is the same.

Real llm-agent and a scripted provider; the trainer, the judge and the renderer are this folder's stand-ins, so that a session
takes seconds. Two moments here; `test_every_step` goes through all of them (slow), as does the end-to-end test with real
training.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb
from dressage.api.v1 import session_service_pb2_grpc
from dressage.serving.channels import connect
from dressage_llm_agent.settings import Settings as AgentSettings
from dressage_llm_agent.wiring import start as start_agent
from pydantic import SecretStr

from tests.fakes import killing
from tests.fakes.openai_server import Answer, Call, ScriptedServer
from tests.integration.orchestrator.stack import Stack

pytestmark = pytest.mark.asyncio
SERVER = Path(__file__).with_name("killed_server.py")
STOPPED = 250
"""Steps of the checkpoint with which the second iteration's training ends early."""


def module(comment: str) -> str:
    return f"""```python
# {comment}
LATEX = r"v"
TERMS = {{"speed": "m/s"}}


def reward(state, action, next_state, memory, np):
    return {{"speed": next_state.x_velocity}}
```
"""


JUDGE = """```python
def judge(trajectory, np):
    return {"score": 0.5, "criteria": {"fast": 0.5}, "evidence": {}}
```
"""


def script() -> list[Answer]:
    return [
        Answer(f"## Reasoning\nSpeed.\n\n{module('a bad one')}", when="You are the reward author"),
        Answer(
            f"## Reasoning\nSpeed.\n\n## Null controls\nrandom, untrained, motionless\n\n{JUDGE}",
            when="You are the judge author",
        ),
        Answer(f"## Reasoning\nMended.\n\n{module('score=0.3 # curve=0.2')}", when="You are the reward author"),
        Answer(calls=(Call("get_scores"), Call("get_iteration", {"number": 1})), when="You are the reviser"),
        Answer(
            "## Diagnosis\nSlow.\n\n## Lesson\nSpeed needs weight.\n\n## Based on\n1\n\n"
            f"## Planned change\nMore weight.\n\n{module('good # score=0.9 # gradual # curve=0.85')}",
            when="You are the reviser",
        ),
    ]


@dataclass(frozen=True)
class Outcome:
    """What must not depend on being killed."""

    state: int
    score: float
    confirmed: float
    early_stops: list[int]
    requests: int
    cost: v1.Cost
    sources: list[str]
    events: list[str]
    model_calls: int


@asynccontextmanager
async def server(
    folder: Path, neighbours: str, agent: str, step: int | str, *, reply: int = 0
) -> AsyncIterator[subprocess.Popen[bytes]]:
    """A server that dies in a step, or after a reply (see `killing`); 0: neither."""
    environment = {**os.environ, "KILL_FOLDER": str(folder), "KILL_STEP": str(step), "KILL_REPLY": str(reply)}
    command = [sys.executable, str(SERVER), str(folder), neighbours, agent]
    process = subprocess.Popen(command, env=environment, cwd=Path(__file__).parents[3])
    try:
        yield process
    finally:
        process.kill()
        await asyncio.to_thread(process.wait)


async def run_killed(stack: Stack, *, step: int) -> Outcome:
    """Run a session whose server dies in its n-th step and which another server continues; 0: without a kill."""
    folder = stack.folder / f"killed-{step}"
    folder.mkdir()
    # The artifacts lie where the neighbours of this test look for them.
    (folder / "artifacts").symlink_to(stack.folder / "artifacts")
    name = f"kill-{step}"
    with ScriptedServer(script()) as provider:
        settings = AgentSettings(
            store_url=str(stack.folder / "artifacts"), api_base=provider.url, api_key=SecretStr("sk-test")
        )
        agent = await start_agent(settings)
        addresses = (stack.neighbours.address, agent.address)
        try:
            session = await through(folder, name, addresses, step)
        finally:
            await agent.stop()
        provider.assert_exhausted()
        count = len(provider.requests)
    result, iterations, events = session
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    return Outcome(
        state=result.state,
        score=result.best_judgment.score,
        confirmed=result.confirmation.score,
        early_stops=[e.training_stopped.early_stop.env_step for e in events if e.HasField("training_stopped")],
        requests=result.cost.requests,
        cost=result.cost,
        sources=[entry.reward.source for entry in iterations],
        events=sorted(kinds(events)),
        model_calls=count,
    )


def kinds(events: list[Any]) -> list[str]:
    """What happened, runs' restarts and progress aside: those may come again. So may checkpoints that an early stop drops."""
    skipped = ("progress", "run_changed", "assignment_changed", "warning")
    return [
        f"{e.iteration} {e.WhichOneof('payload')}"
        for e in events
        if e.WhichOneof("payload") not in skipped
        and not (e.iteration == 2 and max(e.judged.env_step, e.evaluation_finished.evaluation.env_step) > STOPPED)
    ]


async def address_of(folder: Path, process: subprocess.Popen[bytes]) -> str:
    """Where the server listens, once it does."""
    async with asyncio.timeout(240):
        while True:
            path = folder / "orchestrator.json"
            if path.exists() and (facts := json.loads(path.read_text()))["pid"] == process.pid:
                return str(facts["address"])
            assert process.poll() is None, "the server ended"
            await asyncio.sleep(0.1)


async def through(folder: Path, name: str, addresses: tuple[str, str], step: int) -> tuple[Any, list[Any], list[Any]]:
    spec = v1.SessionSpec(
        intent="run forward",
        environment="environments/HalfCheetah-v5",
        model="openai/scripted",
        max_iterations=3,
        reward=v1.RewardSpec(seeds=1, steps_per_member=1000),
    )
    if step:
        async with server(folder, *addresses, step) as first:
            stub: Any = session_service_pb2_grpc.SessionServiceStub(connect(await address_of(folder, first)))
            await stub.CreateSession(pb.CreateSessionRequest(spec=spec, session_id=name))
            await asyncio.wait_for(asyncio.to_thread(first.wait), 240)
        assert (folder / "killed").exists()
    async with server(folder, *addresses, 0) as second:
        stub = session_service_pb2_grpc.SessionServiceStub(connect(await address_of(folder, second)))
        request = pb.CreateSessionRequest(spec=spec, session_id=name)
        if not step:
            await stub.CreateSession(request)
        watched = stub.WatchSession(pb.WatchSessionRequest(name=f"sessions/{name}"), timeout=300)
        events = [answer.event async for answer in watched]
        session = await stub.GetSession(pb.GetSessionRequest(name=f"sessions/{name}"))
        listed = await stub.ListIterations(pb.ListIterationsRequest(parent=f"sessions/{name}"))
    return session, list(listed.iterations), events


async def warm() -> None:
    """Imports what takes seconds, so that the first call need not wait for it; prices come from the package, as always."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    await asyncio.to_thread(importlib.import_module, "litellm")


def place(steps: list[str], name: str) -> int:
    """The number of the first step whose name begins so, from 1."""
    return next(number for number, step in enumerate(steps, start=1) if step.startswith(name))


@pytest.mark.timeout(900)
async def test_kills_after_a_reply_and_after_a_judgment(stack: Stack) -> None:
    """In the reviser's conversation, the judgment and the decision to end a training early: done and not recorded."""
    await warm()
    calm = await run_killed(stack, step=0)
    assert calm.state == v1.SESSION_STATE_SUCCEEDED and calm.model_calls == 5 == calm.requests
    assert calm.early_stops == [STOPPED]
    steps = killing.steps(stack.folder / "killed-0")
    for name in ("revise:2", "judge:1", "early-stop:2"):
        assert await run_killed(stack, step=place(steps, name)) == calm, name


@pytest.mark.slow
@pytest.mark.timeout(7200)
async def test_every_step(stack: Stack) -> None:
    await warm()
    calm = await run_killed(stack, step=0)
    steps = killing.steps(stack.folder / "killed-0")
    assert len(steps) > 25
    for number, name in enumerate(steps, start=1):
        if not name.startswith("poll:"):  # how often a waiting session looks is not the same each time
            assert await run_killed(stack, step=number) == calm, name
