"""The two services that the judge asks: llm-agent and renderer. Every call has a deadline, and domain errors come out."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import grpc
from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.internal.v1 import agent_service_pb2_grpc as agent_rpc
from dressage.api.internal.v1 import renderer_service_pb2 as renderer_pb
from dressage.api.internal.v1 import renderer_service_pb2_grpc as renderer_rpc
from dressage.errors import DressageError
from dressage.rpc_errors import from_rpc
from dressage.serving.conversation import Tool, converse, nothing

Progress = Callable[[str], None]
MAX_TOOL_CALLS = 32
_DESCRIBE_SECONDS = 120.0
"""The first call of a fresh llm-agent waits for its client library to be imported."""


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
        return await converse(
            self._stub,
            task,
            seconds=seconds,
            tools=tools or {},
            max_tool_calls=MAX_TOOL_CALLS,
            progress=progress,
        )


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
