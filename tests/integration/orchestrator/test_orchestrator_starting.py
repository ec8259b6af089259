"""A request that arrives while the server starts its workflows is to be repeated; a read-only server refuses it for good."""

from __future__ import annotations

import asyncio
import threading

import grpc
import pytest
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb
from dressage.api.v1 import session_service_pb2_grpc
from dressage.serving.channels import connect
from dressage_orchestrator.lifecycle.workflows import Workflows

from tests.fakes.specs import reward_session
from tests.integration.orchestrator.stack import Stack
from tests.servers.ports import free_ports

pytestmark = pytest.mark.asyncio


def request() -> pb.CreateSessionRequest:
    spec = reward_session(intent="run", environment="environments/HalfCheetah-v5", seeds=1, steps_per_member=1000)
    return pb.CreateSessionRequest(spec=spec, session_id="early", request_id="r-1")


async def test_a_request_during_the_start_is_unavailable(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    launch, entered, release = Workflows.launch, threading.Event(), threading.Event()

    def slow_launch(workflows: Workflows) -> None:
        entered.set()
        assert release.wait(60)
        launch(workflows)

    monkeypatch.setattr(Workflows, "launch", slow_launch)
    stack.options = {"address": f"127.0.0.1:{free_ports(1)[0]}"}
    starting = asyncio.create_task(stack.start())
    try:
        assert await asyncio.to_thread(entered.wait, 60)
        async with connect(stack.options["address"]) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as early:
                await session_service_pb2_grpc.SessionServiceStub(channel).CreateSession(request(), timeout=10)
    finally:
        release.set()
        await starting
    assert early.value.code() is grpc.StatusCode.UNAVAILABLE, early.value.details()
    created = await stack.sessions.CreateSession(request())
    assert created.state in (v1.SESSION_STATE_PENDING, v1.SESSION_STATE_RUNNING)


async def test_a_read_only_server_refuses_for_good(stack: Stack) -> None:
    stack.options = {"recover": False}
    await stack.start()
    with pytest.raises(grpc.aio.AioRpcError, match="read-only") as refused:
        await stack.sessions.CreateSession(request())
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
