"""The roles' tasks and results: messages of `agent_service.proto`, which the roles take and return as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.errors import InvalidArgument
from google.protobuf.descriptor import Descriptor

Dialect = Literal["video", "video_url", "grid", "frames"]
"""How a model is sent an episode: a clip as a file, a clip by URL, pages of numbered frames, single frames."""

TemplateTask = (
    agent_pb.ElicitorTask
    | agent_pb.RewardAuthorTask
    | agent_pb.JudgeAuthorTask
    | agent_pb.FixerTask
    | agent_pb.ReviserTask
)
"""Tasks that the template author accepts."""

VideoTask = agent_pb.VideoJudgeTask | agent_pb.VideoQuestionTask
"""Tasks that need a vision model."""

ParametersTask = agent_pb.ParameterProposerTask | agent_pb.CriticTask
"""Tasks whose results are parameters."""

ProgramsTask = agent_pb.ProgramAuthorTask | agent_pb.ProgramReviserTask
"""Tasks whose results are programs. Their environments have descriptions of their own, not cards."""

RoleTask = (
    TemplateTask
    | agent_pb.CodeReviewerTask
    | agent_pb.VideoCriteriaTask
    | VideoTask
    | agent_pb.SynthesiserTask
    | ParametersTask
    | agent_pb.PolicyAuthorTask
    | agent_pb.FeedbackAuthorTask
    | agent_pb.ReflectorTask
    | ProgramsTask
)
RoleResult = (
    agent_pb.ElicitorResult
    | agent_pb.RewardProposal
    | agent_pb.JudgeProposal
    | agent_pb.FixedCode
    | agent_pb.Revision
    | agent_pb.Review
    | agent_pb.VideoCriteriaResult
    | agent_pb.VideoVerdict
    | agent_pb.VideoAnswer
    | agent_pb.Synthesis
    | agent_pb.ProposedParameters
    | agent_pb.PolicyCode
    | agent_pb.FeedbackCode
    | agent_pb.Reflection
    | agent_pb.Programs
)


@dataclass(frozen=True)
class Vote:
    """One reply of the video judge: a status and an observation for each criterion, in the task's order."""

    statuses: tuple[str, ...]
    seen: tuple[str, ...]
    diagnosis: str = ""


NULL_CONTROLS = ("random", "untrained", "motionless", "time_reversed")
"""Kinds of null controls."""

FINDING_KINDS = (
    "reward_hacking", "sign", "frame", "dead_term", "physics_exploit", "fighting_terms", "threshold", "memory", "other",
)  # fmt: skip
"""Kinds of findings of a code review."""

LESSON_TIERS = ("HARD", "STRONG", "SOFT")
RETIRED = "RETIRED"


def _oneof_fields(message: Descriptor, oneof: str) -> dict[str, str]:
    """The names of a oneof's fields by the full names of their messages."""
    fields = message.oneofs_by_name[oneof].fields
    return {field.message_type.full_name: field.name for field in fields if field.message_type is not None}


_ROLE_NAMES = _oneof_fields(agent_pb.Task.DESCRIPTOR, "role")
_RESULT_FIELDS = _oneof_fields(agent_pb.TaskResult.DESCRIPTOR, "result")


def role_task(task: agent_pb.Task) -> RoleTask:
    """Return the task of the role that is set.

    :raises InvalidArgument: if no role is set.
    """
    role = task.WhichOneof("role")
    if role is None:
        raise InvalidArgument(field="role", value=None, expected=f"one of {', '.join(_ROLE_NAMES.values())}")
    inner: RoleTask = getattr(task, role)
    return inner


def role_name(task: RoleTask) -> str:
    """Return the name of the role that performs a task, which is its field in `Task`."""
    return _ROLE_NAMES[task.DESCRIPTOR.full_name]


def task_result(result: RoleResult) -> agent_pb.TaskResult:
    """Return the last message of a conversation, with the result alone."""
    message = agent_pb.TaskResult()
    getattr(message, _RESULT_FIELDS[result.DESCRIPTOR.full_name]).CopyFrom(result)
    return message
