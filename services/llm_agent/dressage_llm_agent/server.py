"""The servicer of `AgentService`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict
from typing import Any

import grpc
import structlog
from dressage.api.internal.v1 import agent_service_pb2 as agent_pb2
from dressage.api.internal.v1 import agent_service_pb2_grpc
from dressage.errors import DeadlineExceeded, DressageError, FailedPrecondition, InvalidArgument
from dressage.serving import logs
from dressage.serving.costs import attach_cost

from dressage_llm_agent.agent import Agent
from dressage_llm_agent.costs import Ledger
from dressage_llm_agent.journal import ToolOutcome
from dressage_llm_agent.roles.registry import task_result

Requests = AsyncIterator[agent_pb2.ConverseRequest]
Lines = asyncio.Queue[agent_pb2.ConverseResponse | None]
# More than the rounds, calls and repairs of one conversation can fill, so that putting never waits.
_MAX_LINES = 1024
_log = structlog.get_logger("dressage.llm_agent")


class AgentServicer(agent_service_pb2_grpc.AgentServiceServicer):
    """Conversations with models.

    :param tool_seconds: seconds that the caller has for a tool's result.
    """

    def __init__(self, agent: Agent, *, tool_seconds: float) -> None:
        self._agent = agent
        self._tool_seconds = tool_seconds

    async def Converse(
        self, request_iterator: Requests, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[agent_pb2.ConverseResponse]:
        """Perform one task; tool calls and progress are sent meanwhile."""
        task = await _first(request_iterator)
        lines: Lines = asyncio.Queue(maxsize=_MAX_LINES)
        work = asyncio.create_task(self._work(task, request_iterator, lines))
        work.add_done_callback(lambda _: lines.put_nowait(None))
        try:
            while (line := await lines.get()) is not None:
                yield line
            yield agent_pb2.ConverseResponse(result=await work)
        finally:
            work.cancel()

    async def DescribeModel(
        self, request: agent_pb2.DescribeModelRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> agent_pb2.DescribeModelResponse:
        """Describe a model."""
        # Prices are None where unknown, which leaves the fields unset.
        return agent_pb2.DescribeModelResponse(**asdict(await self._agent.describe(request.model, request.api_base)))

    async def _work(self, task: agent_pb2.Task, requests: Requests, lines: Lines) -> agent_pb2.TaskResult:
        async def progress(text: str) -> None:
            lines.put_nowait(agent_pb2.ConverseResponse(progress=agent_pb2.AgentProgress(text=text)))

        model = self._agent.model(task.model)
        role = task.WhichOneof("role") or ""
        ledger = Ledger()
        with logs.bind(session=task.session, task=task.key):
            # The first message also commits the call: after it, gRPC does not retry the call by itself.
            await progress(f"{model} works as {role}")
            try:
                answer = await self._agent.answer(
                    task,
                    caller=_Caller(requests, lines, self._tool_seconds),
                    progress=progress,
                    ledger=ledger,
                )
            except DressageError as error:
                attach_cost(error, ledger.cost())
                raise
            _log.info("answered", role=role, model=model, requests=ledger.requests, journal_hits=ledger.journal_hits)
        result = task_result(answer)
        result.cost.CopyFrom(ledger.cost())
        result.model, result.journal_hits = model, ledger.journal_hits
        return result


class _Caller:
    """The other end of the stream, which runs the tools."""

    def __init__(self, requests: Requests, lines: Lines, seconds: float) -> None:
        self._requests = requests
        self._lines = lines
        self._seconds = seconds

    async def call(self, call_id: str, name: str, arguments: Mapping[str, Any]) -> ToolOutcome:
        call = agent_pb2.ToolCall(id=call_id, name=name)
        call.arguments.update(dict(arguments))
        self._lines.put_nowait(agent_pb2.ConverseResponse(tool_call=call))
        try:
            async with asyncio.timeout(self._seconds):
                answer = await anext(self._requests)
        except TimeoutError:
            message = f"the caller sent no result of {name} within {self._seconds:g} s"
            raise DeadlineExceeded(message, reason="TOOL_TIMEOUT") from None
        except StopAsyncIteration:
            raise FailedPrecondition(
                "the caller ended the stream before a tool's result", reason="STREAM_ENDED"
            ) from None
        if answer.WhichOneof("message") != "tool_result" or answer.tool_result.id != call_id:
            kind = answer.WhichOneof("message")
            raise InvalidArgument(field="tool_result.id", value=kind, expected=f"the result of call {call_id}")
        return ToolOutcome(answer.tool_result.content, answer.tool_result.is_error)


async def _first(requests: Requests) -> agent_pb2.Task:
    try:
        message = await anext(requests)
    except StopAsyncIteration:
        raise InvalidArgument(field="task", value=None, expected="a task as the first message") from None
    if message.WhichOneof("message") != "task":
        raise InvalidArgument(field="task", value="tool_result", expected="a task as the first message")
    return message.task
