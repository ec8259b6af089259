"""The template author as program author: it answers with the recorded replies of a task, which are written by hand."""

from __future__ import annotations

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.errors import FailedPrecondition
from dressage.programs.recorded import NO_RECORDED_PROGRAMS, recorded_replies

from dressage_llm_agent.roles.base import ReplyProblem
from dressage_llm_agent.roles.program_prompts import programs_of, task_of

RECORDED_PROGRAMS_ENDED = "RECORDED_PROGRAMS_ENDED"


def answer(task: agent_pb.ProgramAuthorTask | agent_pb.ProgramReviserTask) -> agent_pb.Programs:
    """Return the programs of a recorded reply, in whatever form it states them, with its provenance.

    :raises FailedPrecondition: ``NO_RECORDED_PROGRAMS`` for a task without recorded replies, and for every revision;
        ``RECORDED_PROGRAMS_ENDED`` for a number after the last reply; ``LLM_REPLY_UNUSABLE`` for a reply without a program.
    """
    if isinstance(task, agent_pb.ProgramReviserTask):
        raise FailedPrecondition(
            "template/v1 has no recorded revisions of programs; choose a language model",
            reason=NO_RECORDED_PROGRAMS,
            metadata={"task": task.task},
        )
    recording = recorded_replies(task.task)
    count = len(recording.replies)
    if task.reply >= count:
        raise FailedPrecondition(
            f"reply: there are {count} recorded replies for {task.task} (got {task.reply}); expected 0 to {count - 1}",
            reason=RECORDED_PROGRAMS_ENDED,
            metadata={"task": task.task, "replies": str(count)},
        )
    try:
        result = programs_of(recording.replies[task.reply], task_of(task.task).text)
    except ReplyProblem as problem:
        message = f"the recorded reply {task.reply} for {task.task} has no program: {problem}"
        raise FailedPrecondition(message, reason="LLM_REPLY_UNUSABLE", metadata={"role": "program_author"}) from None
    result.provenance = recording.provenance
    return result
