"""Messages of the roles that look at pictures to plain values and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from dressage.api.internal.v1 import agent_service_pb2 as agent
from dressage.errors import Internal

from dressage_llm_agent.tasks import (
    AnyResult,
    Brief,
    Footage,
    LookingTask,
    Synthesis,
    SynthesiserTask,
    VideoAnswer,
    VideoCriteria,
    VideoCriteriaTask,
    VideoJudgeTask,
    VideoQuestionTask,
    VideoVerdict,
    VisualCriterion,
    VisualScore,
)

DEFAULT_VOTES = 3
VideoRole = Literal["video_criteria", "video_judge", "video_question", "synthesiser"]


def to_task(
    role: VideoRole, message: agent.Task, brief_of: Callable[[agent.Brief], Brief]
) -> VideoCriteriaTask | LookingTask | SynthesiserTask:
    """The role's task."""
    match role:
        case "video_criteria":
            return VideoCriteriaTask(brief_of(message.video_criteria.brief))
        case "video_judge":
            task = message.video_judge
            criteria = tuple(_criterion(entry) for entry in task.criteria)
            return VideoJudgeTask(brief_of(task.brief), criteria, _footage(task.footage), task.votes or DEFAULT_VOTES)
        case "video_question":
            asked = message.video_question
            return VideoQuestionTask(brief_of(asked.brief), _footage(asked.footage), asked.question)
        case "synthesiser":
            return _synthesiser(message.synthesiser, brief_of)


def put_result(message: agent.TaskResult, result: AnyResult) -> None:
    """Writes the result into the last message of a conversation.

    :raises Internal: for a result that no role ends with.
    """
    match result:
        case VideoCriteria():
            message.video_criteria.criteria.extend(_write_criterion(entry) for entry in result.criteria)
        case VideoVerdict():
            verdict = agent.VideoVerdict(
                score=result.score,
                spread=result.spread,
                votes=result.votes,
                diagnosis=result.diagnosis,
                dialect=result.dialect,
                criteria=[
                    agent.VisualScore(
                        criterion=_write_criterion(entry.criterion),
                        score=entry.score,
                        statuses=entry.statuses,
                        seen=entry.seen,
                    )
                    for entry in result.criteria
                ],
            )
            message.video_verdict.CopyFrom(verdict)
        case VideoAnswer():
            message.video_answer.CopyFrom(agent.VideoAnswer(answer=result.answer, certain=result.certain))
        case Synthesis():
            message.synthesis.CopyFrom(_synthesis(result))
        case _:
            raise Internal(f"no message for a {type(result).__name__}", reason="NO_MESSAGE")


def _synthesis(result: Synthesis) -> agent.Synthesis:
    settled = [
        agent.SettledCriterion(name=e.name, source=e.source, status=e.status, evidence=e.evidence)
        for e in result.criteria
    ]
    return agent.Synthesis(
        score=result.score, decided_by=result.decided_by, criteria=settled, reasoning=result.reasoning
    )


def _synthesiser(message: agent.SynthesiserTask, brief_of: Callable[[agent.Brief], Brief]) -> SynthesiserTask:
    scores = tuple(
        VisualScore(_criterion(entry.criterion), entry.score, tuple(entry.statuses), entry.seen)
        for entry in message.visual_scores
    )
    return SynthesiserTask(
        brief_of(message.brief),
        message.code_score,
        dict(sorted(message.code_criteria.items())),
        dict(sorted(message.code_evidence.items())),
        message.judge_source,
        message.video_score,
        scores,
        message.video_spread,
        message.episode_seconds,
    )


def _criterion(message: agent.VisualCriterion) -> VisualCriterion:
    return VisualCriterion(message.title, message.description)


def _write_criterion(criterion: VisualCriterion) -> agent.VisualCriterion:
    return agent.VisualCriterion(title=criterion.title, description=criterion.description)


def _footage(message: agent.Footage) -> Footage:
    return Footage(
        pages=tuple(message.pages),
        frames=tuple(message.frames),
        clip=message.clip,
        times=tuple(message.times),
        fps=message.fps,
        start=message.start,
        end=message.end,
        episode_seconds=message.episode_seconds,
        motion_trail=message.motion_trail,
        overlay=message.overlay,
    )
