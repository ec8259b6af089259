"""The internal services as the orchestrator calls them: every call has a deadline, and domain errors come out."""

from __future__ import annotations

import asyncio
import random
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
    ResourceExhausted,
    Unavailable,
)
from dressage.rpc_errors import from_rpc
from dressage.serving import conversation
from dressage.serving.conversation import converse
from dressage.serving.costs import add_cost, attach_cost, attached_cost

T = TypeVar("T")
Tool = Callable[[Mapping[str, Any]], str]

MAX_TOOL_CALLS = 40
"""That one task may make."""

_BUSY = frozenset({"LLM_AGENT_BUSY"})
_DESCRIBE_SECONDS = 120.0
"""The first call of a fresh llm-agent waits for its client library to be imported."""

_RETRY_SECONDS = 60.0
_BACKOFF_CAP = 5.0


async def retried(
    call: Callable[[], Awaitable[T]],
    *,
    seconds: float = _RETRY_SECONDS,
    waiting: Callable[[], Awaitable[None]] | None = None,
) -> T:
    """Repeats a call that is safe to repeat while the service cannot be reached, with jittered backoff.

    :param seconds: after so long the error is passed on.
    :param waiting: called once, before the first repetition.
    """
    loop = asyncio.get_running_loop()
    give_up = loop.time() + seconds
    backoff = 0.2
    while True:
        try:
            return await call()
        except (Unavailable, ResourceExhausted) as error:
            if isinstance(error, ResourceExhausted) and error.reason not in _BUSY:
                raise
            if loop.time() + backoff > give_up:
                raise
            if waiting is not None:
                await waiting()
                waiting = None
            await asyncio.sleep(backoff * random.uniform(0.5, 1.0))
            backoff = min(2 * backoff, _BACKOFF_CAP)


async def _ask(method: Any, request: Any, seconds: float) -> Any:
    async def once() -> Any:
        try:
            return await method(request, timeout=seconds)
        except grpc.aio.AioRpcError as error:
            raise from_rpc(error) from None

    return await retried(once)


class AgentClient:
    """llm-agent.

    :param seconds: deadline of one task.
    """

    def __init__(self, channel: grpc.aio.Channel, *, seconds: float) -> None:
        self._stub = agent_rpc.AgentServiceStub(channel)
        self._seconds = seconds

    async def describe(self, model: str) -> agent_pb.DescribeModelResponse:
        """What a model is and whether it is configured."""
        request = agent_pb.DescribeModelRequest(model=model)
        answer: agent_pb.DescribeModelResponse = await _ask(self._stub.DescribeModel, request, _DESCRIBE_SECONDS)
        return answer

    async def converse(
        self,
        task: agent_pb.Task,
        tools: Mapping[str, Tool] | None = None,
        *,
        waiting: Callable[[], Awaitable[None]] | None = None,
    ) -> agent_pb.TaskResult:
        """Has a task done, running the tools it asks for. Safe to repeat: the agent answers from its journal.

        :param waiting: called once when an outage begins to be waited for.
        :param tools: by name; each gets the arguments and returns text. What it raises is told to the model.
        :return: the result; its cost holds what attempts before it had bought.
        :raises DressageError: with the cost of all attempts (`dressage.serving.costs`); DeadlineExceeded when the task takes
            too long or calls too many tools.
        """
        spent = session_pb.Cost()

        async def once() -> agent_pb.TaskResult:
            try:
                result = await self._converse(task, tools or {})
            except DressageError as error:
                add_cost(spent, attached_cost(error))
                raise
            add_cost(result.cost, spent)
            return result

        try:
            return await retried(once, waiting=waiting)
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
    """A tool that reads the database or the store, away from the event loop."""

    async def run(_: str, arguments: Mapping[str, Any]) -> str:
        return await asyncio.to_thread(tool, arguments)

    return run


class JudgeClient:
    """judge.

    :param seconds: deadline of one call.
    """

    def __init__(self, channel: grpc.aio.Channel, *, seconds: float) -> None:
        self._stub = judge_rpc.JudgeServiceStub(channel)
        self._seconds = seconds

    async def check(self, request: judge_pb.CheckRequest) -> judge_pb.CheckResponse:
        """Checks generated code."""
        answer: judge_pb.CheckResponse = await _ask(self._stub.Check, request, self._seconds)
        return answer

    async def judge(self, request: judge_pb.JudgeRequest) -> judge_pb.JudgeResponse:
        """Judges rollouts; the first one's cost includes that of failed attempts; otherwise the error has it."""
        spent = session_pb.Cost()

        async def once() -> judge_pb.JudgeResponse:
            try:
                answer: judge_pb.JudgeResponse = await self._stub.Judge(request, timeout=self._seconds)
            except grpc.aio.AioRpcError as error:
                failed = from_rpc(error)
                add_cost(spent, attached_cost(failed))
                raise failed from None
            return answer

        try:
            answer = await retried(once)
        except DressageError as error:
            attach_cost(error, spent)
            raise
        if spent.requests and answer.rollouts:
            add_cost(answer.rollouts[0].judgment.cost, spent)
        if [entry.rollout for entry in answer.rollouts] != list(request.rollouts):
            raise Internal("the judge did not answer for the rollouts asked for, in order", reason="JUDGE_MISMATCH")
        return answer

    async def score(self, request: judge_pb.ScoreRequest) -> judge_pb.ScoreResponse:
        """Returns of trajectories by a reward."""
        answer: judge_pb.ScoreResponse = await _ask(self._stub.Score, request, self._seconds)
        return answer


class RendererClient:
    """renderer.

    :param seconds: deadline of one call.
    """

    def __init__(self, channel: grpc.aio.Channel, *, seconds: float) -> None:
        self._stub = renderer_rpc.RendererServiceStub(channel)
        self._seconds = seconds

    async def render(self, request: renderer_pb.RenderRequest) -> renderer_pb.RenderResponse:
        """Draws a trajectory."""
        answer: renderer_pb.RenderResponse = await _ask(self._stub.Render, request, self._seconds)
        return answer


async def all_of(*calls: Awaitable[T]) -> list[T | DressageError]:
    """Awaits all; what each returned, or the domain error that it raised. Other errors are raised after all have ended."""
    found: list[T | DressageError] = []
    for entry in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(entry, BaseException) and not isinstance(entry, DressageError):
            raise entry
        found.append(entry)
    return found
