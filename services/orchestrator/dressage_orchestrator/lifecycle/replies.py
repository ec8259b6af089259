"""Replies of models of which some may be missing: a failed reply fails its candidate, not the session."""

from __future__ import annotations

from collections.abc import Sequence

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.errors import DressageError, Internal

from dressage_orchestrator.lifecycle.context import SessionContext
from dressage_orchestrator.lifecycle.conversations import converse_each, session_error

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
