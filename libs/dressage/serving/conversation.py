"""A task for llm-agent, from the caller's side: `AgentService.Converse` to its result, running the tools it asks for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.errors import DeadlineExceeded, Internal, InvalidArgument, NotFound, Unavailable
from dressage.rpc_errors import from_rpc

Tool = Callable[[str, Mapping[str, Any]], Awaitable[str]]
"""What runs a tool: the call's id and its arguments to text. InvalidArgument and NotFound are told to the model."""

_MAX_RESULT_BYTES = 200_000


def nothing(_: str) -> None:
    """Progress that nobody wants to hear of."""


async def converse(
    stub: Any,
    task: agent_pb.Task,
    *,
    seconds: float,
    tools: Mapping[str, Tool],
    max_tool_calls: int,
    progress: Callable[[str], None] = nothing,
) -> agent_pb.TaskResult:
    """Has a task done, once. Safe to repeat within a session: the agent answers from its journal.

    :param stub: of AgentService.
    :param seconds: deadline of the whole task.
    :param tools: by name; a longer result than 200 kB is cut.
    :raises DressageError: what llm-agent raises; DeadlineExceeded ``TOO_MANY_TOOL_CALLS``, Internal ``NO_RESULT`` and
        Unavailable ``CALL_ENDED`` besides.
    """
    call = stub.Converse(timeout=seconds)
    calls = 0
    try:
        await call.write(agent_pb.ConverseRequest(task=task))
        while (said := await call.read()) is not grpc.aio.EOF:
            match said.WhichOneof("message"):
                case "result":
                    result: agent_pb.TaskResult = said.result
                    await call.done_writing()
                    return result
                case "progress":
                    progress(said.progress.text)
                case "tool_call":
                    calls += 1
                    if calls > max_tool_calls:
                        message = f"task {task.key!r} asked for more than {max_tool_calls} tool calls"
                        raise DeadlineExceeded(message, reason="TOO_MANY_TOOL_CALLS")
                    answer = await _run(said.tool_call, tools)
                    await call.write(agent_pb.ConverseRequest(tool_result=answer))
        raise Internal(f"task {task.key!r} ended without a result", reason="NO_RESULT")
    except grpc.aio.AioRpcError as error:
        raise from_rpc(error) from None
    except asyncio.InvalidStateError:  # a write on a call that has ended: its status tells why
        raise Unavailable(f"llm-agent ended the call: {await call.details()}", reason="CALL_ENDED") from None
    finally:
        call.cancel()


async def _run(call: agent_pb.ToolCall, tools: Mapping[str, Tool]) -> agent_pb.ToolResult:
    tool = tools.get(call.name)
    if tool is None:
        known = ", ".join(sorted(tools)) or "none"
        return agent_pb.ToolResult(id=call.id, content=f"no tool {call.name!r}; there are: {known}", is_error=True)
    try:
        content = await tool(call.id, MessageToDict(call.arguments))
    except (InvalidArgument, NotFound) as error:
        return agent_pb.ToolResult(id=call.id, content=error.message, is_error=True)
    cut = content.encode()[:_MAX_RESULT_BYTES].decode(errors="ignore")
    return agent_pb.ToolResult(id=call.id, content=cut)
