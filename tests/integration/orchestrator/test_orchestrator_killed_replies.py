"""kill -9 of the server in a round of two concurrent model calls: each reply is bought once, used, and counted once.

Real llm-agent and a scripted provider, which can hold back one author's answer. The first server is a process that dies; the
second one, in the test's process, finishes the session and then makes the same session undisturbed, for comparison.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb
from dressage.api.v1 import session_service_pb2_grpc
from dressage.serving.channels import connect
from dressage_llm_agent.settings import Settings as AgentSettings
from dressage_llm_agent.wiring import start as start_agent
from pydantic import SecretStr

from tests.fakes.openai_server import Answer, Request, ScriptedServer
from tests.integration.orchestrator.stack import Stack
from tests.integration.orchestrator.test_orchestrator_killed_steps import (
    JUDGE,
    address_of,
    kinds,
    module,
    server,
    warm,
)

DEATH_SECONDS = 60.0

ROLES = {"reward": "You are the reward author", "judge": "You are the judge author"}
JOURNALLED = {"reward": "iterations/1/reward_author/0-0.json", "judge": "judge_author/0-0.json"}
SPEC = v1.SessionSpec(
    intent="run forward",
    environment="environments/HalfCheetah-v5",
    model="openai/scripted",
    max_iterations=1,
    reward=v1.RewardSpec(seeds=1, steps_per_member=1000),
)


@dataclass(frozen=True)
class Moment:
    """When the first server dies.

    :param held: the author whose reply comes after that; empty: both have come.
    :param reply: the number of the reply after which it dies.
    :param step: the step in which it dies instead.
    :param recovered: replies that are only in the journal.
    """

    held: str
    reply: int
    step: str
    recovered: int


MOMENTS = {
    "reward_only": Moment(held="judge", reply=1, step="0", recovered=2),
    "judge_only": Moment(held="reward", reply=1, step="0", recovered=2),
    "both_uncounted": Moment(held="", reply=2, step="0", recovered=2),
    "both_counted": Moment(held="", reply=0, step="author:1", recovered=0),
}


@dataclass(frozen=True)
class Course:
    """What must not depend on being killed."""

    state: int
    score: float
    confirmed: float
    env_steps: int
    cost: v1.Cost
    iteration_cost: v1.Cost
    sources: tuple[bytes, bytes]
    events: list[str]


def script() -> list[Answer]:
    judge = f"## Reasoning\nSpeed.\n\n## Null controls\nrandom, untrained, motionless\n\n{JUDGE}"
    return [
        Answer(f"## Reasoning\nSpeed.\n\n{module('good # score=0.9')}", when=ROLES["reward"]),
        Answer(judge, when=ROLES["judge"], input_tokens=300),
    ]


def by_author(requests: list[Request]) -> Counter[str]:
    """How many of the requests are for each author."""
    return Counter(next(name for name, words in ROLES.items() if words in request.text()) for request in requests)


def journalled(stack: Stack, session: str) -> set[str]:
    """Keys of the replies in a session's journal."""
    folder = stack.folder / "artifacts" / "sessions" / session / "llm"
    return {str(path.relative_to(folder)) for path in folder.rglob("*-*.json")}


@asynccontextmanager
async def agent_of(stack: Stack, provider: ScriptedServer) -> AsyncIterator[str]:
    """llm-agent for a provider; yields its address."""
    settings = AgentSettings(
        store_url=str(stack.folder / "artifacts"), api_base=provider.url, api_key=SecretStr("sk-test")
    )
    agent = await start_agent(settings)
    try:
        yield agent.address
    finally:
        await agent.stop()


async def killed(stack: Stack, agent: str, moment: Moment) -> None:
    """Creates the session in a server that dies."""
    async with server(stack.folder, stack.neighbours.address, agent, moment.step, reply=moment.reply) as first:
        channel = connect(await address_of(stack.folder, first))
        stub: Any = session_service_pb2_grpc.SessionServiceStub(channel)
        await stub.CreateSession(pb.CreateSessionRequest(spec=SPEC, session_id="killed"))
        await asyncio.wait_for(asyncio.to_thread(first.wait), DEATH_SECONDS)
        await channel.close()
    assert (stack.folder / "killed").exists()


async def course(stack: Stack, session: str) -> tuple[Course, list[str]]:
    """Watches a session to its end; what it came to, and what its warnings say of costs."""
    name = f"sessions/{session}"
    watched = stack.sessions.WatchSession(pb.WatchSessionRequest(name=name), timeout=120)
    events = [answer.event async for answer in watched]
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    final = await stack.sessions.GetSession(pb.GetSessionRequest(name=name))
    iteration = await stack.sessions.GetIteration(pb.GetIterationRequest(name=f"{name}/iterations/1"))
    sources = [stack.store.get(f"{name}/iterations/1/{file}") for file in ("reward.py", "judge.py")]
    outcome = Course(
        state=final.state,
        score=final.best_score,
        confirmed=final.confirmation.score,
        env_steps=final.env_steps,
        cost=final.cost,
        iteration_cost=iteration.cost,
        sources=(sources[0], sources[1]),
        events=kinds(events),
    )
    return outcome, [event.warning.message for event in events if event.warning.reason == "COST_RECOVERED"]


@pytest.mark.asyncio
@pytest.mark.timeout(180)
@pytest.mark.parametrize("moment", MOMENTS.values(), ids=MOMENTS)
async def test_kill_between_replies_of_a_round(stack: Stack, moment: Moment) -> None:
    await warm()
    release = threading.Event()
    held = [replace(answer, held=release) if answer.when == ROLES.get(moment.held) else answer for answer in script()]
    with ScriptedServer(held + script()) as provider:
        async with agent_of(stack, provider) as agent:
            await killed(stack, agent, moment)
            # The moment is the right one: these replies had come, and no other.
            came = {key for author, key in JOURNALLED.items() if author != moment.held}
            assert journalled(stack, "killed") == came
            assert by_author(provider.requests) == {"reward": 1, "judge": 1}
            release.set()
            async with asyncio.timeout(DEATH_SECONDS):
                while journalled(stack, "killed") != {
                    *JOURNALLED.values()
                }:  # llm-agent journals it although nobody asks
                    await asyncio.sleep(0.05)

            stack.options = {"llm_agent_address": agent}
            await stack.start()
            outcome, recovered = await course(stack, "killed")
            sent = list(provider.requests)
            await stack.sessions.CreateSession(pb.CreateSessionRequest(spec=SPEC, session_id="calm"))
            calm, _ = await course(stack, "calm")
        provider.assert_exhausted()
    assert calm.state == v1.SESSION_STATE_SUCCEEDED and calm.cost.input_tokens == 400
    assert outcome == calm
    assert by_author(sent) == {"reward": 1, "judge": 1} and not provider.abandoned
    assert outcome.cost.requests == 2
    assert [int(message.split()[0]) for message in recovered] == ([moment.recovered] if moment.recovered else [])
