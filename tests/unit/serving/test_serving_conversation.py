"""`converse` over a real channel with a token: no task is left behind, however the call ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from dressage.api.internal.v1 import agent_service_pb2 as pb
from dressage.api.internal.v1 import agent_service_pb2_grpc as pb_grpc
from dressage.errors import DeadlineExceeded, DressageError, Internal, InvalidArgument
from dressage.serving.channels import connect
from dressage.serving.conversation import converse

from tests.waiting import until


class _Agent(pb_grpc.AgentServiceServicer):
    """Ends each call in the way that the task's key names."""

    async def Converse(self, requests: AsyncIterator[pb.ConverseRequest], context: Any) -> AsyncIterator[Any]:
        ending = (await anext(requests)).task.key
        if ending == "refusal":
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no")
        if ending == "silence":
            await asyncio.sleep(30)
        if ending == "tool":
            yield pb.ConverseResponse(tool_call=pb.ToolCall(id="1", name="look"))
            content = (await anext(requests)).tool_result.content
            yield pb.ConverseResponse(result=pb.TaskResult(model=content))
        if ending == "result":
            yield pb.ConverseResponse(result=pb.TaskResult(model="m"))


async def _look(_: str, __: Any) -> str:
    return "seen"


async def _ended(ending: str, seconds: float) -> tuple[pb.TaskResult | DressageError, list[str]]:
    """Return the outcome of one conversation, and the coroutines that still wait for requests of a stream."""
    server = grpc.aio.server()
    pb_grpc.add_AgentServiceServicer_to_server(_Agent(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    outcome: pb.TaskResult | DressageError
    async with connect(f"127.0.0.1:{port}", token="t") as channel:
        stub = pb_grpc.AgentServiceStub(channel)
        try:
            outcome = await converse(
                stub, pb.Task(key=ending), seconds=seconds, tools={"look": _look}, max_tool_calls=1
            )
        except DressageError as error:
            outcome = error
        with contextlib.suppress(TimeoutError):
            await until(lambda: not _writers(), seconds=5)
        waiting = _writers()
    await server.stop(0)
    return outcome, waiting


def _writers() -> list[str]:
    return [str(task) for task in asyncio.all_tasks() if "_consume_request_iterator" in str(task)]


@pytest.mark.parametrize(
    ("ending", "kind"),
    [
        ("result", pb.TaskResult),
        ("tool", pb.TaskResult),
        ("refusal", InvalidArgument),
        ("nothing", Internal),
        ("silence", DeadlineExceeded),
    ],
)
def test_no_writer_of_a_conversation_is_left_waiting(ending: str, kind: type) -> None:
    outcome, waiting = asyncio.run(_ended(ending, seconds=0.5 if ending == "silence" else 10.0))
    assert isinstance(outcome, kind)
    assert waiting == []
    if ending == "tool":
        assert outcome.model == "seen"  # type: ignore[union-attr]
