"""kill -9 of the server in every step of a plug-in method's session: the same session comes out, for as many model calls.

Real llm-agent and a scripted provider. A few moments here; `test_every_step` goes through all of them (slow).
"""

from __future__ import annotations

import asyncio
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
from tests.fakes.openai_server import Answer, ScriptedServer
from tests.integration.orchestrator.fakes import watch
from tests.integration.orchestrator.stack import Stack
from tests.integration.orchestrator.test_orchestrator_killed_steps import address_of, kinds, place, server, warm

pytestmark = pytest.mark.asyncio
PLUGIN = Path(__file__).parents[2] / "plugin"


@pytest.fixture(autouse=True)
def plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plug-in is on the path of this process and of the servers that it starts."""
    monkeypatch.syspath_prepend(str(PLUGIN))
    monkeypatch.setenv("PYTHONPATH", str(PLUGIN))


def script() -> list[Answer]:
    module = "```python\ndef reward(state, action, next_state, memory, np):\n    return {}\n```"
    return [Answer(f"## Reasoning\n{number}\n\n{module}", when="You are the reward author") for number in (1, 3)]


@dataclass(frozen=True)
class Result:
    """What must not depend on being killed."""

    session: v1.Session
    iterations: list[v1.Iteration]
    events: list[str]
    model_calls: int


def without_times(message: Any) -> Any:
    """The message without what is another's each time: times, etags, and the session's name."""
    names = ("create_time", "update_time", "start_time", "end_time", "etag", "approval_wait_seconds", "idle_seconds")
    for name in names:
        if name in message.DESCRIPTOR.fields_by_name:
            message.ClearField(name)
    return message


async def lived(stack: Stack, *, step: int) -> Result:
    """A session whose server dies in its n-th step and that another server continues; 0: undisturbed."""
    folder = stack.folder / f"killed-{step}"
    folder.mkdir()
    with ScriptedServer(script()) as provider:
        store = str(folder / "artifacts")
        agent = await start_agent(AgentSettings(store_url=store, api_base=provider.url, api_key=SecretStr("sk-test")))
        try:
            session, iterations, events = await through(folder, (stack.neighbours.address, agent.address), step)
        finally:
            await agent.stop()
        provider.assert_exhausted()
        calls = len(provider.requests)
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    facts = [without_times(entry) for entry in iterations]
    return Result(without_times(session), facts, kinds(events), calls)


async def through(
    folder: Path, addresses: tuple[str, str], step: int
) -> tuple[v1.Session, list[v1.Iteration], list[Any]]:
    from number_method import NumberSpec

    name = "sessions/numbers"
    spec = v1.SessionSpec(intent="find it", environment="environments/CartPole-v1", model="openai/scripted")
    spec.custom.Pack(NumberSpec(target=3, start=2))
    spec.approve_before_evaluation = True
    request = pb.CreateSessionRequest(spec=spec, session_id="numbers")
    if step:
        async with server(folder, *addresses, step) as first:
            stub: Any = session_service_pb2_grpc.SessionServiceStub(connect(await address_of(folder, first)))
            await stub.CreateSession(request)
            approving = asyncio.create_task(approve(stub, name))
            await asyncio.wait_for(asyncio.to_thread(first.wait), 120)
            approving.cancel()
            await asyncio.gather(approving, return_exceptions=True)
        assert (folder / "killed").exists()
    async with server(folder, *addresses, 0) as second:
        stub = session_service_pb2_grpc.SessionServiceStub(connect(await address_of(folder, second)))
        if not step:
            await stub.CreateSession(request)
        approving = asyncio.create_task(approve(stub, name))
        watching = asyncio.create_task(watch(stub, name))
        await asyncio.wait({watching, approving}, return_when=asyncio.FIRST_COMPLETED)
        if approving.done():
            approving.result()  # it ends by an error only
        events = await watching
        approving.cancel()
        await asyncio.gather(approving, return_exceptions=True)
        session = await stub.GetSession(pb.GetSessionRequest(name=name))
        listed = await stub.ListIterations(pb.ListIterationsRequest(parent=name))
    return session, list(listed.iterations), events


async def approve(stub: Any, name: str) -> None:
    """Approves each proposal that waits, once: a second approval would be the next session's."""
    approved = 0
    while True:
        session = await stub.GetSession(pb.GetSessionRequest(name=name))
        if session.awaiting_approval > approved:
            approved = session.awaiting_approval
            # The id makes the approval one, however many processes ask for it.
            request = pb.ApproveSessionRequest(name=name, iteration=approved, request_id=f"approve-{approved}")
            await stub.ApproveSession(request)
        await asyncio.sleep(0.05)


@pytest.mark.timeout(300)
async def test_some_steps(stack: Stack) -> None:
    """In the conversation, paid for and not recorded; in the score, stored and not recorded; and in the end."""
    await warm()
    calm = await lived(stack, step=0)
    assert calm.session.state == v1.SESSION_STATE_SUCCEEDED, calm.session.state_reason
    assert calm.model_calls == 2 == calm.session.cost.requests and len(calm.iterations) == 3
    steps = killing.steps(stack.folder / "killed-0")
    for name in ("ask:2", "evaluate:3"):
        assert await lived(stack, step=place(steps, name)) == calm, name


@pytest.mark.slow
@pytest.mark.timeout(3600)
async def test_every_step(stack: Stack) -> None:
    await warm()
    calm = await lived(stack, step=0)
    steps = killing.steps(stack.folder / "killed-0")
    expected = {"begin", "plan", "ask:2", "check:2:0", "approval:2:0", "evaluate:3", "scored:3", "confirm:3", "end"}
    assert expected <= set(steps)
    for number, name in enumerate(steps, start=1):
        assert await lived(stack, step=number) == calm, name
