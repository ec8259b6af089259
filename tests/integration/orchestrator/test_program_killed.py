"""kill -9 of the server while programs are collected: the next server asks for none of them again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb
from dressage.api.v1 import session_service_pb2_grpc
from dressage.serving.channels import connect
from dressage_llm_agent.settings import Settings as AgentSettings
from dressage_llm_agent.wiring import start as start_agent
from openai_server import Answer, ScriptedServer
from pydantic import SecretStr

from tests.integration.orchestrator.stack import Stack
from tests.integration.orchestrator.test_orchestrator_killed_steps import address_of, server, warm

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(300)]

REPLIES = 6


async def collected(stub: Any) -> Any:
    """Return the event of the collected programs, and cancel the session."""
    request = pb.WatchSessionRequest(name="sessions/killed")
    async with asyncio.timeout(120):
        async for response in stub.WatchSession(request):
            if response.event.HasField("programs_collected"):
                await stub.CancelSession(pb.CancelSessionRequest(name="sessions/killed"))
                return response.event.programs_collected
    raise AssertionError("no programs")


@pytest.mark.parametrize(("step", "reply"), [("programs:1:1", 0), (0, 3)])
async def test_replies_are_not_bought_again(stack: Stack, step: str | int, reply: int) -> None:
    """After all replies, before they are recorded; and between two of them, with others on their way."""
    await warm()
    folder = stack.folder / "killed-programs"
    folder.mkdir()
    with ScriptedServer([Answer("DEF run m( move m)", when="You are the program author", repeat=True)]) as provider:
        store = str(folder / "artifacts")
        agent = await start_agent(AgentSettings(store_url=store, api_base=provider.url, api_key=SecretStr("sk-test")))
        addresses = (stack.neighbours.address, agent.address)
        try:
            async with server(folder, *addresses, step, reply=reply) as first:
                stub: Any = session_service_pb2_grpc.SessionServiceStub(connect(await address_of(folder, first)))
                spec = v1.SessionSpec(intent="x", environment="environments/karel/DoorKey", model="openai/scripted")
                spec.program.CopyFrom(v1.ProgramSpec(seed_programs=4, replies=REPLIES))
                await stub.CreateSession(pb.CreateSessionRequest(spec=spec, session_id="killed"))
                await asyncio.wait_for(asyncio.to_thread(first.wait), 120)
            assert (folder / "killed").exists()
            async with server(folder, *addresses, 0) as second:
                stub = session_service_pb2_grpc.SessionServiceStub(connect(await address_of(folder, second)))
                event = await collected(stub)
        finally:
            await agent.stop()
        assert (event.requested, event.usable, event.kept, event.distinct) == (REPLIES, REPLIES, 4, 1)
        assert len(provider.requests) == REPLIES
