"""The two services that the judge asks: llm-agent and renderer. Every call has a deadline, and domain errors come out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import grpc
from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.internal.v1 import agent_service_pb2_grpc as agent_rpc
from dressage.api.internal.v1 import renderer_service_pb2 as renderer_pb
from dressage.api.internal.v1 import renderer_service_pb2_grpc as renderer_rpc
from dressage.errors import DeadlineExceeded, DressageError, Internal, InvalidArgument, NotFound, Unavailable
from dressage.rpc_errors import from_rpc
from google.protobuf.json_format import MessageToDict

Progress = Callable[[str], None]
Tool = Callable[[str, Mapping[str, Any]], Awaitable[str]]
"""What runs a tool: the call's id and its arguments to text. InvalidArgument and NotFound are told to the model."""

MAX_TOOL_CALLS = 32
_DESCRIBE_SECONDS = 120.0
"""The first call of a fresh llm-agent waits for its client library to be imported."""

_MAX_RESULT_BYTES = 200_000


def nothing(_: str) -> None:
    """Progress that nobody wants to hear of."""


class AgentClient:
    """llm-agent."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = agent_rpc.AgentServiceStub(channel)

    async def describe(self, model: str) -> agent_pb.DescribeModelResponse:
        """What a model is."""
        try:
            request = agent_pb.DescribeModelRequest(model=model)
            answer: agent_pb.DescribeModelResponse = await self._stub.DescribeModel(request, timeout=_DESCRIBE_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise from_rpc(error) from None
        return answer

    async def converse(
        self,
        task: agent_pb.Task,
        *,
        seconds: float,
        tools: Mapping[str, Tool] | None = None,
        progress: Progress = nothing,
    ) -> agent_pb.TaskResult:
        """Has a task done, running the tools it asks for; safe to repeat within a session, by the journal.

        :raises DressageError: what llm-agent raises; ``TOO_MANY_TOOL_CALLS`` besides.
        """
        call = self._stub.Converse(timeout=seconds)
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
                        if calls > MAX_TOOL_CALLS:
                            message = f"task {task.key!r} asked for more than {MAX_TOOL_CALLS} tool calls"
                            raise DeadlineExceeded(message, reason="TOO_MANY_TOOL_CALLS")
                        answer = await _run(said.tool_call, tools or {})
                        await call.write(agent_pb.ConverseRequest(tool_result=answer))
            raise Internal(f"task {task.key!r} ended without a result", reason="NO_RESULT")
        except grpc.aio.AioRpcError as error:
            raise from_rpc(error) from None
        except asyncio.InvalidStateError:  # a write on a call that has ended: its status tells why
            raise Unavailable(f"llm-agent ended the call: {await call.details()}", reason="CALL_ENDED") from None
        finally:
            call.cancel()


class RendererClient:
    """renderer."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = renderer_rpc.RendererServiceStub(channel)

    async def frames(
        self, request: renderer_pb.RenderFramesRequest, *, seconds: float
    ) -> renderer_pb.RenderFramesResponse:
        """Sampled frames; a repeat gives the same ones."""
        try:
            answer: renderer_pb.RenderFramesResponse = await self._stub.RenderFrames(request, timeout=seconds)
        except grpc.aio.AioRpcError as error:
            raise from_rpc(error) from None
        return answer


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


FALLBACK_REASONS = frozenset(
    {
        "LLM_REPLY_UNUSABLE",
        "LLM_BAD_REQUEST",
        "LLM_CANNOT_SEE",
        "LLM_KEY_REFUSED",
        "LLM_BUDGET_EXHAUSTED",
        "LLM_REPLY_TOO_LARGE",
        "LLM_TOOL_LOOP",
        "TOO_MANY_TOOL_CALLS",
        "FOOTAGE_TOO_LARGE",
        "EGL_MISSING",
    }
)
"""Faults that a repeat would meet again: the code's verdict stands, with a notice. All others are the caller's to repeat."""


def lasting(error: DressageError) -> bool:
    """Whether a repeat would fail in the same way."""
    return error.reason in FALLBACK_REASONS
