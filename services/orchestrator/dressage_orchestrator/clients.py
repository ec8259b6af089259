"""Clients of the internal services. Every call has a deadline and raises domain errors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import grpc
from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.internal.v1 import agent_service_pb2_grpc as agent_rpc
from dressage.api.internal.v1 import judge_service_pb2 as judge_pb
from dressage.api.internal.v1 import judge_service_pb2_grpc as judge_rpc
from dressage.api.internal.v1 import renderer_service_pb2 as renderer_pb
from dressage.api.internal.v1 import renderer_service_pb2_grpc as renderer_rpc
from dressage.api.v1 import session_pb2 as session_pb
from dressage.errors import (
    DressageError,
    Internal,
    InvalidArgument,
    ResourceExhausted,
    Unavailable,
)
from dressage.rpc_errors import from_rpc
from dressage.serving import conversation
from dressage.serving.conversation import converse
from dressage.serving.costs import add_cost, attach_cost, cost_of
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_before_delay, wait_random_exponential

from dressage_orchestrator.models import TEMPLATE

T = TypeVar("T")
Tool = Callable[[Mapping[str, Any]], str]

MAX_TOOL_CALLS = 40
"""Maximum number of tool calls of a task."""

_BUSY = frozenset({"LLM_AGENT_BUSY", "SANDBOX_QUEUE_FULL", "RENDER_QUEUE_FULL"})
_DESCRIBE_SECONDS = 120.0
"""The first call of a new llm-agent process waits until its client library is imported."""

_RETRY_SECONDS = 60.0
_BACKOFF_CAP = 5.0


async def call_with_retries(
    call: Callable[[], Awaitable[T]],
    *,
    waiting: Callable[[], Awaitable[None]] | None = None,
) -> T:
    """Retry an idempotent call with jittered backoff for a minute, while the service is unavailable.

    :param waiting: called once, before the first retry.
    """

    async def before(state: RetryCallState) -> None:
        if waiting is not None and state.attempt_number == 1:
            await waiting()

    retrying = AsyncRetrying(
        retry=retry_if_exception(_is_transient),
        stop=stop_before_delay(_RETRY_SECONDS),
        wait=wait_random_exponential(0.2, max=_BACKOFF_CAP, min=0.1),
        before_sleep=before,
        reraise=True,
    )
    return await retrying(call)


def _is_transient(error: BaseException) -> bool:
    return isinstance(error, Unavailable) or (isinstance(error, ResourceExhausted) and error.reason in _BUSY)


async def _call(method: Any, request: Any, seconds: float) -> Any:
    async def once() -> Any:
        try:
            return await method(request, timeout=seconds)
        except grpc.aio.AioRpcError as error:
            raise from_rpc(error) from None

    return await call_with_retries(once)


class AgentClient:
    """Client of llm-agent.

    :param seconds: deadline of one task.
    """

    def __init__(self, channel: grpc.aio.Channel, *, seconds: float) -> None:
        self._stub = agent_rpc.AgentServiceStub(channel)
        self._seconds = seconds

    async def describe(self, model: str, api_base: str = "") -> agent_pb.DescribeModelResponse:
        """Describe a model and whether it is configured.

        :param api_base: API endpoint of its provider; empty: llm-agent's setting.
        """
        request = agent_pb.DescribeModelRequest(model=model, api_base=api_base)
        answer: agent_pb.DescribeModelResponse = await _call(self._stub.DescribeModel, request, _DESCRIBE_SECONDS)
        return answer

    async def converse(
        self,
        task: agent_pb.Task,
        tools: Mapping[str, Tool] | None = None,
        *,
        waiting: Callable[[], Awaitable[None]] | None = None,
    ) -> agent_pb.TaskResult:
        """Run a task and the tools that it calls. The call is idempotent, because the agent answers from its journal.

        :param waiting: called once when the client starts to wait during an outage.
        :param tools: tools by name; each gets the arguments and returns text. The model is given the errors that they raise.
        :return: the result; its cost includes that of earlier attempts.
        :raises DressageError: with the cost of all attempts (`dressage.serving.costs`); DeadlineExceeded when the task
            takes too long or calls too many tools.
        """
        spent = session_pb.Cost()

        async def once() -> agent_pb.TaskResult:
            try:
                result = await self._converse(task, tools or {})
            except DressageError as error:
                add_cost(spent, cost_of(error))
                raise
            add_cost(result.cost, spent)
            return result

        try:
            return await call_with_retries(once, waiting=waiting)
        except DressageError as error:
            attach_cost(error, spent)
            raise

    async def _converse(self, task: agent_pb.Task, tools: Mapping[str, Tool]) -> agent_pb.TaskResult:
        return await converse(
            self._stub,
            task,
            seconds=self._seconds,
            tools={name: _in_thread(tool) for name, tool in tools.items()},
            max_tool_calls=MAX_TOOL_CALLS,
        )


def _in_thread(tool: Tool) -> conversation.Tool:
    """Wrap a tool that reads the database or the store, to run it outside of the event loop."""

    async def run(_: str, arguments: Mapping[str, Any]) -> str:
        return await asyncio.to_thread(tool, arguments)

    return run


async def require_model(
    agent: AgentClient, entry: session_pb.RoleModel, *, field: str
) -> agent_pb.DescribeModelResponse:
    """Return the description of a model.

    :param field: names the model in the error.
    :raises InvalidArgument: if no key or address is configured for it.
    """
    described = await agent.describe(entry.model, entry.api_base)
    if not described.configured:
        problem = described.problem or "no key is configured for it"
        message = f"{field}: {entry.model!r} cannot be used: {problem}. {TEMPLATE!r} needs no key"
        raise InvalidArgument(message, field=field, reason="MODEL_NOT_CONFIGURED")
    return described


class JudgeClient:
    """Client of judge.

    :param seconds: deadline of one call.
    """

    def __init__(self, channel: grpc.aio.Channel, *, seconds: float) -> None:
        self._stub = judge_rpc.JudgeServiceStub(channel)
        self._seconds = seconds

    async def check(self, request: judge_pb.CheckRequest) -> judge_pb.CheckResponse:
        """Check generated code."""
        answer: judge_pb.CheckResponse = await _call(self._stub.Check, request, self._seconds)
        return answer

    async def read_replies(self, request: judge_pb.ReadRepliesRequest) -> judge_pb.ReadRepliesResponse:
        """Find the programs in replies with the code of a registered language."""
        answer: judge_pb.ReadRepliesResponse = await _call(self._stub.ReadReplies, request, self._seconds)
        if len(answer.replies) != len(request.replies):
            raise Internal("the response of judge does not match the replies", reason="JUDGE_MISMATCH")
        return answer

    async def judge(self, request: judge_pb.JudgeRequest) -> judge_pb.JudgeResponse:
        """Judge rollouts. The cost of failed attempts is added to the first rollout's cost, or to the error."""
        spent = session_pb.Cost()

        async def once() -> judge_pb.JudgeResponse:
            try:
                answer: judge_pb.JudgeResponse = await self._stub.Judge(request, timeout=self._seconds)
            except grpc.aio.AioRpcError as error:
                failed = from_rpc(error)
                add_cost(spent, cost_of(failed))
                raise failed from None
            return answer

        try:
            answer = await call_with_retries(once)
        except DressageError as error:
            attach_cost(error, spent)
            raise
        if spent.requests and answer.rollouts:
            add_cost(answer.rollouts[0].judgment.cost, spent)
        if [entry.rollout for entry in answer.rollouts] != list(request.rollouts):
            raise Internal("the response of judge does not match the requested rollouts", reason="JUDGE_MISMATCH")
        return answer

    async def score(self, request: judge_pb.ScoreRequest) -> judge_pb.ScoreResponse:
        """Compute the returns of trajectories under a reward."""
        answer: judge_pb.ScoreResponse = await _call(self._stub.Score, request, self._seconds)
        return answer


class RendererClient:
    """Client of renderer.

    :param seconds: deadline of one call.
    """

    def __init__(self, channel: grpc.aio.Channel, *, seconds: float) -> None:
        self._stub = renderer_rpc.RendererServiceStub(channel)
        self._seconds = seconds

    async def render(self, request: renderer_pb.RenderRequest) -> renderer_pb.RenderResponse:
        """Render a trajectory."""
        answer: renderer_pb.RenderResponse = await _call(self._stub.Render, request, self._seconds)
        return answer

    async def record_poses(self, request: renderer_pb.RecordPosesRequest) -> renderer_pb.RecordPosesResponse:
        """Compute and store the poses of a trajectory."""
        answer: renderer_pb.RecordPosesResponse = await _call(self._stub.RecordPoses, request, self._seconds)
        return answer


async def all_of(*calls: Awaitable[T]) -> list[T | DressageError]:
    """Await all calls; each result is a value or a domain error. Other errors are raised after all calls have ended."""
    results: list[T | DressageError] = []
    for entry in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(entry, BaseException) and not isinstance(entry, DressageError):
            raise entry
        results.append(entry)
    return results
