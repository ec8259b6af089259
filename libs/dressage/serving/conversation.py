"""The caller's side of `AgentService.Converse`: sends a task, runs the tool calls, returns the result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.errors import DeadlineExceeded, Internal, InvalidArgument, NotFound
from dressage.rpc_errors import from_rpc

Tool = Callable[[str, Mapping[str, Any]], Awaitable[str]]
"""Runs a tool: the call's id and its arguments to text. The model gets InvalidArgument and NotFound as the tool's output."""

_MAX_RESULT_BYTES = 200_000
_REFUSALS = 4
"""The conversation fails at this multiple of the calls that are run."""


async def converse(
    stub: Any,
    task: agent_pb.Task,
    *,
    seconds: float,
    tools: Mapping[str, Tool],
    max_tool_calls: int,
) -> agent_pb.TaskResult:
    """Have llm-agent perform a task; within a session its journal makes repeats safe.

    :param stub: a stub of `AgentService`.
    :param seconds: deadline of the whole task.
    :param tools: by name; results above 200 kB are cut.
    :param max_tool_calls: calls that are run. Further ones are answered with a refusal, so that the model can still answer.
    :raises DressageError: errors of llm-agent; also DeadlineExceeded ``TOO_MANY_TOOL_CALLS`` after as many refusals, Internal
        ``NO_RESULT``.
    """
    # An iterator of our own instead of `call.write`: grpc's own one, behind an interceptor, waits for ever for the next message
    # if the server ends the call, until the garbage collector closes it while it runs.
    requests: asyncio.Queue[agent_pb.ConverseRequest | None] = asyncio.Queue()
    requests.put_nowait(agent_pb.ConverseRequest(task=task))
    call = stub.Converse(_until_none(requests), timeout=seconds)
    calls = 0
    try:
        while (message := await call.read()) is not grpc.aio.EOF:
            match message.WhichOneof("message"):
                case "result":
                    result: agent_pb.TaskResult = message.result
                    return result
                case "tool_call":
                    calls += 1
                    if calls > _REFUSALS * max_tool_calls:
                        error = f"task {task.key!r} made more than {_REFUSALS * max_tool_calls} tool calls"
                        raise DeadlineExceeded(error, reason="TOO_MANY_TOOL_CALLS")
                    if calls > max_tool_calls:
                        refusal = (
                            f"no further call is run: all {max_tool_calls} are used. Answer now, with what you know"
                        )
                        answer = agent_pb.ToolResult(id=message.tool_call.id, content=refusal, is_error=True)
                    else:
                        answer = await _run(message.tool_call, tools)
                    requests.put_nowait(agent_pb.ConverseRequest(tool_result=answer))
        raise Internal(f"task {task.key!r} ended without a result", reason="NO_RESULT")
    except grpc.aio.AioRpcError as failure:
        raise from_rpc(failure) from None
    finally:
        requests.put_nowait(None)
        call.cancel()


async def _until_none(
    requests: asyncio.Queue[agent_pb.ConverseRequest | None],
) -> AsyncIterator[agent_pb.ConverseRequest]:
    """Yield what is put into the queue, up to None."""
    while (request := await requests.get()) is not None:
        yield request


async def _run(call: agent_pb.ToolCall, tools: Mapping[str, Tool]) -> agent_pb.ToolResult:
    tool = tools.get(call.name)
    if tool is None:
        names = ", ".join(sorted(tools)) or "none"
        return agent_pb.ToolResult(id=call.id, content=f"no tool {call.name!r}; there are: {names}", is_error=True)
    try:
        content = await tool(call.id, MessageToDict(call.arguments))
    except (InvalidArgument, NotFound) as error:
        return agent_pb.ToolResult(id=call.id, content=error.message, is_error=True)
    cut = content.encode()[:_MAX_RESULT_BYTES].decode(errors="ignore")
    return agent_pb.ToolResult(id=call.id, content=cut)
