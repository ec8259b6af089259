"""Clients of llm-agent and the renderer: every call has a deadline and raises domain errors."""

from __future__ import annotations

from collections.abc import Mapping

import grpc
from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.internal.v1 import agent_service_pb2_grpc as agent_rpc
from dressage.api.internal.v1 import renderer_service_pb2 as renderer_pb
from dressage.api.internal.v1 import renderer_service_pb2_grpc as renderer_rpc
from dressage.errors import DressageError
from dressage.rpc_errors import from_rpc
from dressage.serving.conversation import Tool, converse

MAX_TOOL_CALLS = 32
_DESCRIBE_SECONDS = 120.0
"""The first call of a new llm-agent waits for the import of its client library."""


class AgentClient:
    """llm-agent."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = agent_rpc.AgentServiceStub(channel)

    async def describe(self, model: str, api_base: str = "") -> agent_pb.DescribeModelResponse:
        """Describe a model."""
        try:
            request = agent_pb.DescribeModelRequest(model=model, api_base=api_base)
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
    ) -> agent_pb.TaskResult:
        """Have llm-agent perform a task and run its tool calls; within a session the journal makes repeats safe.

        :raises DressageError: errors of llm-agent; also ``TOO_MANY_TOOL_CALLS``.
        """
        return await converse(
            self._stub,
            task,
            seconds=seconds,
            tools=tools or {},
            max_tool_calls=MAX_TOOL_CALLS,
        )


class RendererClient:
    """renderer."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = renderer_rpc.RendererServiceStub(channel)

    async def frames(
        self, request: renderer_pb.RenderFramesRequest, *, seconds: float
    ) -> renderer_pb.RenderFramesResponse:
        """Render sampled frames; a repeated request returns the same ones."""
        try:
            answer: renderer_pb.RenderFramesResponse = await self._stub.RenderFrames(request, timeout=seconds)
        except grpc.aio.AioRpcError as error:
            raise from_rpc(error) from None
        return answer


_PERMANENT_REASONS = frozenset(
    {
        "LLM_REPLY_UNUSABLE",
        "LLM_BAD_REQUEST",
        "LLM_NO_VISION_SUPPORT",
        "LLM_KEY_REFUSED",
        "LLM_BUDGET_EXHAUSTED",
        "LLM_REPLY_TOO_LARGE",
        "LLM_TOOL_LOOP",
        "TOO_MANY_TOOL_CALLS",
        "ATTACHMENTS_TOO_LARGE",
        "EGL_MISSING",
    }
)
"""Failures that would occur again: the rollout is judged by code alone, with a notice. The caller retries all others."""


def is_permanent(error: DressageError) -> bool:
    """Return whether a repeated request would fail in the same way."""
    return error.reason in _PERMANENT_REASONS
