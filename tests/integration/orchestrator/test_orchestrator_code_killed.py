"""kill -9 of the server in a session of the code method: the same session comes out, and no candidate is played twice.

Real llm-agent and a scripted provider; trainer and judge are this folder's stand-ins. Some moments here; `test_every_step` goes
through all of them (slow).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, replace
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
from tests.fakes.openai_server import Answer, Request, ScriptedServer
from tests.integration.orchestrator.fakes import watch
from tests.integration.orchestrator.stack import Stack
from tests.integration.orchestrator.test_orchestrator_killed_steps import address_of, place, server, warm

pytestmark = pytest.mark.asyncio
CLASS = "\n\nclass Policy:\n    def reset(self):\n        pass\n\n    def act(self, obs):\n        return 0\n"
FEEDBACK = "class Feedback:\n    def summarize_trajectory(self, observations):\n        return 'text'\n"


def module(source: str) -> str:
    return f"## Explanation\nSo.\n\n```python\n{source}```\n"


def script() -> list[Answer]:
    """Round 1: one candidate is rejected, one raises, one plays; both are repaired. Round 2 reaches the target."""

    def author(line: str, round_line: str) -> Answer:
        def accepts(request: Request) -> bool:
            return "You are the policy author" in request.text() and round_line in request.text()

        return Answer(module(f"# {line}{CLASS}"), when=accepts)

    def fix(request: Request) -> str:
        which = "check" if "POLICY_REJECTED".lower() in request.text("user").lower() else "play"
        return module(f"# score=40 after {which}{CLASS}")

    return [
        *(author(score, "This is round 1") for score in ("score=10", "bad", "raises")),
        *(author(score, "This is round 2") for score in ("score=480", "score=470", "score=480")),
        Answer(module(FEEDBACK), when="You are the feedback author"),
        Answer("Three sentences. All of them. Short.", when="You are the reflector"),
        Answer(reply=fix, when="You are the fixer"),
        Answer(reply=fix, when="You are the fixer"),
    ]


@dataclass(frozen=True)
class Result:
    """What must not depend on being killed. Candidates of a round are in the order in which the provider answered."""

    state: int
    report: list[float]
    scores: list[float]
    candidates: list[list[str]]
    counts: tuple[int, int, int]
    plays: Counter[str]
    model_calls: int
    requests: int


async def lived(stack: Stack, monkeypatch: pytest.MonkeyPatch, *, step: int, reply: int = 0) -> Result:
    """Run a session whose server dies in a step, or after a reply of llm-agent, and which another server continues."""
    folder = stack.folder / f"killed-{step}-{reply}"
    folder.mkdir()
    monkeypatch.setenv("DRESSAGE_TRAINER_PLAYED", str(folder / "played"))
    with ScriptedServer(script()) as provider:
        store = str(folder / "artifacts")
        agent = await start_agent(AgentSettings(store_url=store, api_base=provider.url, api_key=SecretStr("sk-test")))
        try:
            session, rounds = await through(folder, (stack.neighbours.address, agent.address), step, reply)
        finally:
            await agent.stop()
        provider.assert_exhausted()
        calls = len(provider.requests)
    return Result(
        state=session.state,
        report=list(session.report.returns),
        scores=[entry.score for entry in rounds],
        candidates=[sorted(entry.source.partition("\n")[0] for entry in row.code.candidates) for row in rounds],
        counts=(session.candidates, session.episodes, session.cache_hits),
        plays=Counter((folder / "played").read_text().splitlines()),
        model_calls=calls,
        requests=session.cost.requests,
    )


async def through(folder: Path, addresses: tuple[str, str], step: int, reply: int) -> tuple[Any, list[Any]]:
    name = "sessions/codes"
    code = v1.CodeSpec(candidates=3, episodes=2, report_episodes=4)
    spec = v1.SessionSpec(intent="balance", environment="environments/CartPole-v1", model="openai/scripted", code=code)
    request = pb.CreateSessionRequest(spec=spec, session_id="codes")
    killed = bool(step or reply)
    if killed:
        async with server(folder, *addresses, step, reply=reply) as first:
            stub: Any = session_service_pb2_grpc.SessionServiceStub(connect(await address_of(folder, first)))
            await stub.CreateSession(request)
            await asyncio.wait_for(asyncio.to_thread(first.wait), 120)
        assert (folder / "killed").exists()
    async with server(folder, *addresses, 0) as second:
        stub = session_service_pb2_grpc.SessionServiceStub(connect(await address_of(folder, second)))
        if not killed:
            await stub.CreateSession(request)
        await watch(stub, name, seconds=120.0)
        session = await stub.GetSession(pb.GetSessionRequest(name=name))
        listed = await stub.ListIterations(pb.ListIterationsRequest(parent=name))
    return session, list(listed.iterations)


@pytest.mark.timeout(1800)
async def test_some_moments(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two replies of a round, after all of them, at the start of an evaluation, and before its record."""
    await warm()
    calm = await lived(stack, monkeypatch, step=0)
    assert calm.state == v1.SESSION_STATE_SUCCEEDED and calm.report == [480] * 4
    assert calm.scores == [40, 480] and calm.model_calls == 10 == calm.requests
    assert max(calm.plays.values()) == 1  # nothing is played twice, and the duplicate of round 2 not even once
    assert calm.counts == (4 + 2 + 1, 2 * (3 + 2) + 20, 1)
    assert await lived(stack, monkeypatch, step=0, reply=2) == calm
    steps = killing.steps(stack.folder / "killed-0-0")
    for name in ("author:2", "start:1:round", "record:1"):
        assert await lived(stack, monkeypatch, step=place(steps, name)) == calm, name


@pytest.mark.slow
@pytest.mark.timeout(7200)
async def test_every_step(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    await warm()
    calm = await lived(stack, monkeypatch, step=0)
    for number, name in enumerate(killing.steps(stack.folder / "killed-0-0"), start=1):
        after = await lived(stack, monkeypatch, step=number)
        if name.startswith("start:"):
            # The trainer may have begun to play what it could not report: no candidate has finished, but some are played again.
            assert after.plays.keys() == calm.plays.keys() and max(after.plays.values()) <= 2, name
            after = replace(after, plays=calm.plays)
        assert after == calm, name
