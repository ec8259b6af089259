"""Runs tasks of llm-agent within the remaining budget, counts their cost and appends their events.

Concurrent tasks are one recorded step over journalled calls. A repetition after a crash sends the same requests, which are
answered from the journal, independent of the order of replies. Where some replies may be missing (`replies`), a failed reply
fails its candidate, not the session.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import DressageError, Internal, ResourceExhausted
from dressage.serving.costs import cost_of

from dressage_orchestrator import resource_names
from dressage_orchestrator.clients import Tool, all_of
from dressage_orchestrator.lifecycle import budget, outages
from dressage_orchestrator.lifecycle.context import SessionContext
from dressage_orchestrator.lifecycle.outages import with_cost_of_all
from dressage_orchestrator.lifecycle.outcome import Exhausted
from dressage_orchestrator.models import model_of

BUDGET_REASON = "LLM_BUDGET_EXHAUSTED"
CONCURRENT_TASKS = 8
"""Maximum number of concurrent tasks of a session."""
_MAX_SUMMARY = 300


def brief(context: SessionContext) -> agent_pb.Brief:
    """The brief that all authors are given."""
    spec = context.spec
    return agent_pb.Brief(intent=spec.intent, criteria=spec.criteria, environment=context.environment)


def key_of(context: SessionContext, path: str) -> str:
    """Key of a task. It contains the epoch, because a resumed session sends new requests."""
    return path if context.epoch == 0 else f"{path}-e{context.epoch}"


def converse(
    context: SessionContext, number: int, task: agent_pb.Task, tools: Mapping[str, Tool] | None = None
) -> agent_pb.TaskResult:
    """Run one task of an iteration (see `converse_all`)."""
    return converse_all(context, number, [task], tools)[0]


def converse_all(
    context: SessionContext, number: int, tasks: Sequence[agent_pb.Task], tools: Mapping[str, Tool] | None = None
) -> list[agent_pb.TaskResult]:
    """Run tasks concurrently, each with its share of the remaining budget. Only inside a step.

    :raises Exhausted: when a budget is exhausted.
    :raises DressageError: the first task's error, after all have ended and their costs are counted.
    """
    answers = converse_each(context, number, tasks, tools)
    failures = [answer for answer in answers if isinstance(answer, DressageError)]
    if failures:
        raise session_error(failures[0])
    return [answer for answer in answers if isinstance(answer, agent_pb.TaskResult)]


def converse_each(
    context: SessionContext, number: int, tasks: Sequence[agent_pb.Task], tools: Mapping[str, Tool] | None = None
) -> list[agent_pb.TaskResult | DressageError]:
    """Run tasks as `converse_all` does, at most `CONCURRENT_TASKS` at a time, and return each one's result or error.

    :raises Exhausted: when a budget is exhausted before the first task.
    """
    session = context.store.get()
    budget.require(session, now=context.store.now())

    async def waiting() -> None:  # the trainer's lease is released during an outage
        await context.engine.controller.release(context.session)

    slots = asyncio.Semaphore(CONCURRENT_TASKS)

    async def run(task: agent_pb.Task) -> agent_pb.TaskResult:
        once = with_cost_of_all(lambda: context.engine.agent.converse(task, tools, waiting=waiting))
        async with slots:
            return await outages.patiently(context, number, session, once)

    for task in tasks:
        _address(context, task)
        task.remaining_budget.CopyFrom(budget.remaining(session, shares=len(tasks)))
    # One step for all: DBOS would number steps that start at once by chance (decision 0033). Each attempt has the client's
    # deadline, and the wait between them a bound.
    answers = context.call(all_of(*(run(task) for task in tasks)), seconds=math.inf)
    for task, answer in zip(tasks, answers, strict=True):
        role = task.WhichOneof("role") or ""
        if isinstance(answer, DressageError):
            # A failed task has bought replies as well.
            context.store.charge(number, role, cost_of(answer))
        else:
            reply = ev.AgentReplied(role=role, model=answer.model, summary=_summary(answer), cost=answer.cost)
            context.store.record_reply(number, reply, key=f"replied/{task.key}")
    # Only now, so that the costs of all tasks are counted.
    for answer in answers:
        if isinstance(answer, DressageError):
            outages.raise_if_out_of_time(context, session, answer)
    return answers


def _address(context: SessionContext, task: agent_pb.Task) -> None:
    """Set the session and the model of a task."""
    task.session = resource_names.session_name(context.session)
    chosen = model_of(context.spec, task.WhichOneof("role") or "")
    task.model, task.api_base = chosen.model, chosen.api_base
    task.thinking = task.thinking or chosen.thinking


def session_error(error: DressageError) -> Exception:
    """Convert the error of a task: an exhausted budget of the task exhausts the session."""
    if isinstance(error, ResourceExhausted) and error.reason == BUDGET_REASON:
        dollars = error.metadata.get("kind") == "dollars"
        return Exhausted(error.message, v1.EXHAUSTION_REASON_DOLLARS if dollars else v1.EXHAUSTION_REASON_TOKENS)
    return error


def _summary(result: agent_pb.TaskResult) -> str:
    """Return the first paragraph of what a reply's event quotes: the result's field with the option `event_summary`."""
    fields = getattr(result, result.WhichOneof("result") or "cost").ListFields()
    marked = next((value for field, value in fields if field.GetOptions().Extensions[agent_pb.event_summary]), "")
    text = marked if isinstance(marked, str) else marked[0]
    paragraph = text.strip().partition("\n\n")[0]
    line = " ".join(paragraph.split())
    return line if len(line) <= _MAX_SUMMARY else line[: _MAX_SUMMARY - 1] + "…"


NO_REPLY = frozenset({"TEMPLATE_NO_SUCH_ROLE", "TEMPLATE_CANNOT_FIX"})
"""Reasons of a recording that has no further reply, and of the built-in author."""
NO_PROGRAMS = frozenset({"NO_RECORDED_PROGRAMS", "RECORDED_PROGRAMS_ENDED", "RECORDING_ENDED"})
"""Reasons of recorded replies of programs that have no further one."""
_UNUSABLE = NO_REPLY | NO_PROGRAMS | {"LLM_REPLY_UNUSABLE", "LLM_TASK_TIMEOUT", "LLM_TOOL_LOOP"}
_REPETITIONS = 2
"""How often tasks are repeated that failed for an error of Dressage or of a connection."""


def is_lost(answer: agent_pb.TaskResult | DressageError) -> bool:
    """Return whether an answer is an error that is not the reply's own, so that a repetition may have a reply."""
    return isinstance(answer, DressageError) and answer.reason not in _UNUSABLE


def replies(
    context: SessionContext, number: int, tasks: Sequence[agent_pb.Task]
) -> list[agent_pb.TaskResult | DressageError]:
    """Return the result or the error of each task. Only inside a step.

    Tasks that fail for an internal error are repeated, so that the proposals of a session do not depend on one; journalled
    replies are not bought twice.

    :raises Exhausted: when a budget is exhausted and there is no result.
    :raises DressageError: when there is no result and an error is not that of one reply, for example a rejected key.
    """
    answers = converse_each(context, number, tasks)
    for _ in range(_REPETITIONS):
        failed = [index for index, answer in enumerate(answers) if isinstance(answer, Internal)]
        if not failed:
            break
        repeated = converse_each(context, number, [tasks[index] for index in failed])
        for index, answer in zip(failed, repeated, strict=True):
            answers[index] = answer
    errors = [answer for answer in answers if isinstance(answer, DressageError)]
    if len(errors) == len(answers):
        for error in filter(is_lost, errors):
            raise session_error(error)
    return answers
