"""Replies of models of which some may be missing: a failed reply fails its candidate, not the session."""

from __future__ import annotations

from collections.abc import Sequence

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.errors import DressageError

from dressage_orchestrator.lifecycle.context import SessionContext
from dressage_orchestrator.lifecycle.conversations import converse_each, session_error

NO_REPLY = frozenset({"TEMPLATE_NO_SUCH_ROLE", "TEMPLATE_CANNOT_FIX"})
"""Reasons of a recording that has no further reply, and of the built-in author."""
NO_PROGRAMS = frozenset({"NO_RECORDED_PROGRAMS", "RECORDED_PROGRAMS_ENDED", "RECORDING_ENDED"})
"""Reasons of recorded replies of programs that have no further one."""
_UNUSABLE = NO_REPLY | NO_PROGRAMS | {"LLM_REPLY_UNUSABLE", "LLM_TASK_TIMEOUT", "LLM_TOOL_LOOP"}


def replies(
    context: SessionContext, number: int, tasks: Sequence[agent_pb.Task]
) -> list[agent_pb.TaskResult | DressageError]:
    """Return the result or the error of each task. Only inside a step.

    :raises Exhausted: when a budget is exhausted and there is no result.
    :raises DressageError: when there is no result and an error is not that of one reply, for example a rejected key.
    """
    answers = converse_each(context, number, tasks)
    errors = [answer for answer in answers if isinstance(answer, DressageError)]
    if len(errors) == len(answers):
        for error in errors:
            if error.reason not in _UNUSABLE:
                raise session_error(error)
    return answers
