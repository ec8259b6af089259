"""kill -9 of the server in a session of the method `parameters`: the same session comes out, for as many model calls.

Real llm-agent and a scripted provider; the trainer is this folder's stand-in. A few moments here; `test_every_step` goes
through all steps (slow).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb
from dressage.api.v1 import session_service_pb2_grpc
from dressage.serving.channels import connect
from dressage_llm_agent.settings import Settings as AgentSettings
from dressage_llm_agent.wiring import start as start_agent
from openai_server import ScriptedServer
from pydantic import SecretStr
from search_authors import SearchAuthors

from tests.fakes import killing
from tests.integration.orchestrator.fakes import watch
from tests.integration.orchestrator.stack import Stack
from tests.integration.orchestrator.test_orchestrator_killed_steps import address_of, kinds, server, warm
from tests.integration.orchestrator.test_orchestrator_plugin_killed import without_times

pytestmark = pytest.mark.asyncio


@dataclass(frozen=True)
class Result:
    """What must not depend on being killed."""

    session: v1.Session
    iterations: list[v1.Iteration]
    events: list[str]
    calls: dict[str, int]


async def lived(stack: Stack, tag: str, *, search: str, step: int | str = 0, reply: int = 0) -> Result:
    """A session whose server dies in a step or after a reply, and that another server continues."""
    folder = stack.folder / f"killed-{tag}"
    folder.mkdir()
    authors = SearchAuthors(seed=4, duplicate_every=3)
    with ScriptedServer(authors.answers()) as provider:
        store = str(folder / "artifacts")
        agent = await start_agent(AgentSettings(store_url=store, api_base=provider.url, api_key=SecretStr("sk-test")))
        addresses = (stack.neighbours.address, agent.address)
        try:
            if step or reply:
                async with server(folder, *addresses, step, reply=reply) as first:
                    await create(connect(await address_of(folder, first)), search)
                    await asyncio.wait_for(asyncio.to_thread(first.wait), 120)
                assert (folder / "killed").exists()
            async with server(folder, *addresses, 0) as second:
                channel = connect(await address_of(folder, second))
                if not (step or reply):
                    await create(channel, search)
                session, iterations, events = await outcome(channel)
        finally:
            await agent.stop()
    facts = [without_times(entry) for entry in iterations]
    return Result(without_times(session), facts, kinds(events), dict(authors.counts))


async def create(channel: Any, search: str) -> None:
    spec = v1.SessionSpec(intent="balance", environment="environments/CartPole-v1", model="openai/scripted")
    settings = {"target": 1e12, "episodes": 2, "report_episodes": 3, "warmup": 2, "episode_budget": 12}
    spec.parameters.CopyFrom(v1.ParameterSpec(search=search, **settings))
    stub: Any = session_service_pb2_grpc.SessionServiceStub(channel)
    await stub.CreateSession(pb.CreateSessionRequest(spec=spec, session_id="killed"))


async def outcome(channel: Any) -> tuple[v1.Session, list[v1.Iteration], list[Any]]:
    name, stub = "sessions/killed", session_service_pb2_grpc.SessionServiceStub(channel)
    events = await watch(stub, name, seconds=120)
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    session = await stub.GetSession(pb.GetSessionRequest(name=name))
    listed = await stub.ListIterations(pb.ListIterationsRequest(parent=name))
    return session, list(listed.iterations), events


def check(calm: Result, *, candidates: int) -> None:
    assert calm.session.state == v1.SESSION_STATE_EXHAUSTED, calm.session.state_reason
    assert calm.session.candidates + calm.session.cache_hits == candidates
    assert calm.session.episodes == 2 + 2 * (calm.session.candidates - 2)
    assert calm.session.cost.requests == sum(calm.calls.values()) == candidates - 2


@pytest.mark.timeout(400)
async def test_the_session_is_the_same_after_a_kill(stack: Stack) -> None:
    """After replies that are not recorded; with an evaluation started, and played but not recorded; after joined effects."""
    await warm()
    calm = await lived(stack, "calm", search="r2po")
    check(calm, candidates=8)
    for step in ("propose:1", "start:1:first", "second:2", "record:2"):
        assert await lived(stack, step.replace(":", "-"), search="r2po", step=step) == calm, step


@pytest.mark.timeout(300)
async def test_a_kill_between_two_concurrent_replies(stack: Stack) -> None:
    await warm()
    calm = await lived(stack, "calm", search="pure_search")
    check(calm, candidates=8)
    killed = await lived(stack, "reply", search="pure_search", reply=3)
    # Concurrent requests reach the provider in any order, so that the replies differ. None is bought again.
    assert sum(killed.calls.values()) == sum(calm.calls.values())
    assert killed.session.cost.requests == sum(killed.calls.values())
    assert killed.session.state == calm.session.state and len(killed.iterations) == len(calm.iterations)
    assert killed.session.candidates + killed.session.cache_hits == 8


@pytest.mark.slow
@pytest.mark.timeout(3600)
async def test_every_step(stack: Stack) -> None:
    await warm()
    calm = await lived(stack, "calm", search="r2po")
    steps = killing.steps(stack.folder / "killed-calm")
    expected = {"warmup", "propose:1", "start:1:first", "second:1", "record:1", "notes:2", "incumbent", "end"}
    assert expected <= set(steps)
    for number, name in enumerate(steps, start=1):
        assert await lived(stack, str(number), search="r2po", step=number) == calm, name
