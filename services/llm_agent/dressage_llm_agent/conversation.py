"""A conversation about one task, from the first message to the typed result.

In each turn the reply comes from the journal, or from the provider and is journalled. The caller runs its tool calls, whose
results are journalled as well. Text is parsed; a reply that cannot be used is sent back once with its problems. All state is in
the messages, so a conversation that is repeated after a crash takes the same turns from the journal and continues after them.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Protocol

from dressage.api.v1 import session_pb2
from dressage.envs.cards import EnvironmentCard
from dressage.errors import DressageError, FailedPrecondition, ResourceExhausted
from google.protobuf.message import Message as Protobuf

from dressage_llm_agent.costs import Ledger
from dressage_llm_agent.journal import Journal, ToolOutcome
from dressage_llm_agent.metrics import LlmMetrics
from dressage_llm_agent.provider.base import CompletionRequest, Message, Provider, Reply, ToolCall, ToolSpec
from dressage_llm_agent.purchases import Purchase, Purchases, persistently
from dressage_llm_agent.roles import prompts
from dressage_llm_agent.roles.base import ReplyProblem, Role, Vote

_SHOWN = 60


def read_arguments(text: str, spec: ToolSpec) -> dict[str, Any]:
    """Return a tool call's arguments.

    :raises ValueError: with a message for the model, if they are not a JSON object of the tool's parameters.
    """
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the arguments of {spec.name} are not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"the arguments of {spec.name} must be a JSON object, not {type(value).__name__}")
    properties: Mapping[str, Mapping[str, Any]] = spec.parameters["properties"]
    if unknown := sorted(set(value) - set(properties)):
        names = ", ".join(properties) or "no arguments"
        raise ValueError(f"{spec.name} has no argument {unknown[0][:_SHOWN]!r}; it takes {names}")
    for name in spec.parameters["required"]:
        if name not in value:
            raise ValueError(f"{spec.name} needs the argument {name}: {properties[name].get('description', '')}")
    return {name: _read(f"{spec.name}: {name}", argument, properties[name]) for name, argument in value.items()}


def _read(path: str, value: Any, schema: Mapping[str, Any]) -> Any:
    kind = schema["type"]
    if kind in ("integer", "number"):
        return _number(path, value, schema, whole=kind == "integer")
    if kind == "string":
        return _string(path, value, schema)
    return value


def _number(path: str, value: Any, schema: Mapping[str, Any], *, whole: bool) -> float | int:
    """A number; strings of digits are accepted, and floats for whole numbers."""
    text = repr(value)[:_SHOWN]
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            value = None
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not is_number or (whole and value != value // 1):
        raise ValueError(f"{path} is {text}; it must be a {'whole ' if whole else ''}number")
    if value < schema.get("minimum", -math.inf):
        raise ValueError(f"{path} is {text}; it must be at least {schema['minimum']}")
    if value > schema.get("maximum", math.inf):
        raise ValueError(f"{path} is {text}; it must be at most {schema['maximum']}")
    return int(value) if whole else float(value)


def _string(path: str, value: Any, schema: Mapping[str, Any]) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{path} must be a string, not {type(value).__name__}")
    choices = schema.get("enum")
    if choices and value not in choices:
        raise ValueError(f"{path} is {value[:_SHOWN]!r}; it must be one of {', '.join(choices)}")
    longest = schema.get("maxLength", 100_000)
    if not schema.get("minLength", 0) <= len(value) <= longest:
        raise ValueError(f"{path} has {len(value)} characters; it must have {schema.get('minLength', 0)} to {longest}")
    return value


MAX_CALLS_PER_TURN = 8
MAX_REFUSED_ROUNDS = 3
"""Replies with tool calls that are answered with a refusal, after the last allowed round; then the task fails."""
_REFUSED = "no tool is run any more: all {rounds} rounds are used. Answer now, in the form that was asked for"
_MAX_QUOTED_REPLY = 100_000


class ToolCaller(Protocol):
    """The caller of the task, which runs the tools."""

    async def call(self, call_id: str, name: str, arguments: Mapping[str, Any]) -> ToolOutcome:
        """Run a tool.

        :param call_id: number in the conversation.
        """
        ...


Progress = Callable[[str], Awaitable[None]]
Load = Callable[[tuple[Message, ...]], Awaitable[tuple[Message, ...]]]


async def _load_nothing(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    return messages


@dataclass(frozen=True)
class Options:
    """Parameters of the requests to the model.

    :param thinking: reasoning effort; empty: the model's default.
    :param sample: number of this conversation among several about the same task (votes), from 0.
    """

    model: str
    max_output_tokens: int | None = None
    temperature: float | None = None
    thinking: str = ""
    budget: session_pb2.Budget = field(default_factory=session_pb2.Budget)
    sample: int = 0
    api_base: str = ""


class Conversation:
    """One conversation; an object is used once.

    :param load: loads the attachments of messages.
    :param ledger: adds up the cost; several conversations about one task share one.
    :param purchases: the requests on their way, of all conversations.
    """

    def __init__(
        self,
        *,
        role: Role[Any],
        options: Options,
        provider: Provider,
        journal: Journal,
        caller: ToolCaller,
        progress: Progress,
        metrics: LlmMetrics,
        load: Load = _load_nothing,
        ledger: Ledger | None = None,
        purchases: Purchases | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._role = role
        self._options = options
        self._provider = provider
        self._journal = journal
        self._caller = caller
        self._progress = progress
        self._metrics = metrics
        self._clock = clock
        self._load = load
        self._ledger = ledger or Ledger()
        self._purchases = purchases or Purchases()
        self._turn = 0
        self._calls = 0

    async def run(self, task: Protobuf, card: EnvironmentCard | None) -> Protobuf | Vote:
        """Return the task's result.

        :param card: None for roles without one.
        :raises FailedPrecondition: ``LLM_REPLY_UNUSABLE`` if the repaired reply cannot be used either.
        :raises ResourceExhausted: ``LLM_BUDGET_EXHAUSTED``, or ``LLM_TOOL_LOOP`` if the model calls tools even after it was
            asked to answer.
        :raises DressageError: errors of the provider and the journal.
        """
        messages = list(await self._load(self._role.messages(task, card)))
        rounds, repaired = 0, False
        while True:
            allowed = bool(self._role.tools) and rounds < self._role.tool_rounds
            request = self._request(messages, tools_allowed=allowed)
            reply = await self._ask(request)
            # With its opaque thinking, without which providers refuse the next turn (decision 0049).
            messages.append(Message("assistant", reply.text[:_MAX_QUOTED_REPLY], reply.tool_calls, opaque=reply.opaque))
            if reply.tool_calls:
                rounds += 1
                if allowed:
                    messages += await self._run_tools(reply.tool_calls, sample=request.sample)
                elif rounds <= self._role.tool_rounds + MAX_REFUSED_ROUNDS:
                    messages += self._refuse_tools(reply.tool_calls)
                else:
                    raise self._tool_loop(rounds)
                self._turn += 1
                continue
            try:
                return self._parse(reply, task)
            except ReplyProblem as problem:
                if repaired:
                    raise self._unusable(problem) from None
                repaired = True
                await self._progress(f"the reply cannot be used ({problem.problems[0][:200]}); asking again")
                messages.append(prompts.repair(problem.problems))
                self._turn += 1

    def _request(self, messages: list[Message], *, tools_allowed: bool) -> CompletionRequest:
        return CompletionRequest(
            model=self._options.model,
            messages=tuple(messages),
            tools=self._role.tools,
            tools_allowed=tools_allowed,
            max_output_tokens=self._options.max_output_tokens,
            temperature=self._options.temperature,
            thinking=self._options.thinking,
            sample=self._options.sample,
            api_base=self._options.api_base,
        )

    async def _ask(self, request: CompletionRequest) -> Reply:
        """The reply to a turn: the journalled one, or a new one, which is journalled before it is used."""
        entry = self._journal.entry(self._turn, request)
        if not entry:
            purchase = Purchase()
            obtained: Awaitable[Reply] = self._obtain(self._turn, request, purchase)
        else:
            turn = self._turn
            purchase, task = self._purchases.join(entry, lambda own: self._obtain(turn, request, own))
            obtained = asyncio.shield(task)  # a request that was sent is paid for, so it outlives its caller
        try:
            reply = await obtained
        except DressageError:
            self._count(purchase)
            raise
        if not self._count(purchase):
            self._ledger.journal_hits += 1
            self._metrics.count_journal_hit(role=self._role.name)
        return reply

    def _count(self, purchase: Purchase) -> bool:
        """Add the cost of a reply, unless another caller has; return whether it did."""
        usage = purchase.take_usage()
        if usage is not None:
            self._ledger.add(usage)
        return usage is not None

    async def _obtain(self, turn: int, request: CompletionRequest, purchase: Purchase) -> Reply:
        earlier = await self._journal.reply(turn, request)
        if earlier is not None:
            return earlier
        # Not before the journal is read: a reply that is paid for may be used with an empty budget.
        self._ledger.check(self._options.budget)
        begun = self._clock()
        try:
            reply = await self._provider.complete(request)
        except DressageError as error:
            self._metrics.count_failure(model=request.model, role=self._role.name, reason=error.reason)
            raise
        purchase.usage = reply.usage
        self._metrics.count_reply(
            model=request.model, role=self._role.name, usage=reply.usage, seconds=self._clock() - begun
        )
        return await persistently(lambda: self._journal.record(turn, request, reply))

    async def _run_tools(self, calls: tuple[ToolCall, ...], *, sample: int) -> list[Message]:
        messages = []
        for index, call in enumerate(calls):
            outcome = await self._journal.tool_result(self._turn, call, index, sample)
            self._calls += 1
            if outcome is None:
                outcome = await self._run_tool(call, index)
                outcome = await self._journal.record_tool_result(self._turn, call, index, sample, outcome)
            content = f"error: {outcome.content}" if outcome.is_error else outcome.content
            messages.append(Message("tool", content, tool_call_id=call.id))
        return messages

    def _refuse_tools(self, calls: tuple[ToolCall, ...]) -> list[Message]:
        """Answer calls that come after the last allowed round; each call needs an answer before the model continues."""
        refusal = f"error: {_REFUSED.format(rounds=self._role.tool_rounds)}"
        if not self._role.tools:
            refusal = "error: there are no tools. Answer now, in the form that was asked for"
        return [Message("tool", refusal, tool_call_id=call.id) for call in calls]

    async def _run_tool(self, call: ToolCall, index: int) -> ToolOutcome:
        """Have the caller run one call; an invalid call is answered here."""
        if index >= MAX_CALLS_PER_TURN:
            return ToolOutcome(f"at most {MAX_CALLS_PER_TURN} calls are run in a turn; call again", is_error=True)
        spec = next((tool for tool in self._role.tools if tool.name == call.name), None)
        if spec is None:
            names = ", ".join(tool.name for tool in self._role.tools)
            return ToolOutcome(f"there is no tool {call.name[:60]!r}; there are {names}", is_error=True)
        try:
            arguments = read_arguments(call.arguments, spec)
        except ValueError as error:
            return ToolOutcome(str(error), is_error=True)
        await self._progress(f"{self._role.name} calls {call.name}")
        return await self._caller.call(str(self._calls), call.name, arguments)

    def _parse(self, reply: Reply, task: Protobuf) -> Protobuf | Vote:
        if not reply.text.strip():
            raise ReplyProblem("the reply was empty")
        try:
            return self._role.parse(reply.text, task)
        except UnicodeEncodeError:
            # JSON may escape half of a surrogate pair, which no message can hold.
            raise ReplyProblem("the reply contains an unpaired surrogate escape such as \\ud800") from None
        except ReplyProblem as problem:
            if reply.finish_reason == "length":
                raise ReplyProblem("the reply was cut off at the token limit; be shorter", *problem.problems) from None
            raise

    def _unusable(self, problem: ReplyProblem) -> FailedPrecondition:
        problems = "; ".join(problem.problems)[:1000]
        message = f"{self._options.model} gave no usable reply as {self._role.name}, twice; last problems: {problems}"
        return FailedPrecondition(message, reason="LLM_REPLY_UNUSABLE", metadata={"role": self._role.name})

    def _tool_loop(self, rounds: int) -> ResourceExhausted:
        message = f"{self._options.model} as {self._role.name} called tools for {rounds} rounds without an answer"
        return ResourceExhausted(message, reason="LLM_TOOL_LOOP", metadata={"role": self._role.name})
