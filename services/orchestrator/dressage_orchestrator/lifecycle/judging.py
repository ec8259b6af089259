"""Judges rollouts: code judges all requested rollouts, and a vision model, if available, judges the deciding ones.

Verdicts are stored in the rollouts; members' judgments are aggregated from their last checkpoint's rollouts (`aggregate`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dressage.api.internal.v1 import judge_service_pb2 as judge_pb
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import DressageError, FailedPrecondition
from dressage.serving.costs import add_cost, cost_of

from dressage_orchestrator import models, resource_names
from dressage_orchestrator.lifecycle import aggregate, board, budget, outages
from dressage_orchestrator.lifecycle.context import SessionContext
from dressage_orchestrator.models import is_language_model

ROLE = "judge"
"""Role under which the cost of judge's model calls is counted."""

_LABELS = ("p10", "median", "p90")
"""Labels of the rollouts of each evaluation."""
_MAX_VIDEO_ROLLOUTS = 12
"""Maximum number of rollouts that video judges in an iteration; judgments count what is left out."""

_MAX_ROLLOUTS = 300
"""Maximum number of rollouts of one request."""


def judge_checkpoints(
    context: SessionContext, assignment: str, judge_source: str, *, everything: bool = False
) -> list[v1.Member]:
    """Judge the last checkpoints of an assignment's members by code. In a step.

    :param everything: judge all checkpoints, also those that were judged before.
    :return: the members with their judgments.
    :raises FailedPrecondition: when there is no rollout; JUDGE_FAILED when the judge fails on one.
    """
    members = context.store.members(assignment)
    first = 0 if everything else -1
    rollouts = [r.artifact for m in members for e in m.evaluations[first:] for r in e.rollouts]
    if not rollouts:
        raise FailedPrecondition(f"{assignment} has no rollouts to judge", reason="NOTHING_TO_JUDGE")
    for start in range(0, len(rollouts), _MAX_ROLLOUTS):
        judge_by_code(context, assignment, rollouts[start : start + _MAX_ROLLOUTS], judge_source)
    return pool_members(context, assignment)


def judge_by_code(
    context: SessionContext, assignment: str, rollouts: Sequence[str], judge_source: str
) -> list[v1.Member]:
    """Judge rollouts of an assignment by code and store the verdicts; returns the members. In a step."""
    request = _request(context, rollouts, judge_source)
    number = resource_names.parse_assignment(assignment).iteration
    answer = outages.call(context, number, lambda: context.engine.judge.judge(request))
    return _record(context, assignment, answer)


@dataclass(frozen=True)
class VideoOutcome:
    """What judging by video resulted in.

    :param without_video: why no rollout was judged by video; empty if one was.
    :param left_out: number of deciding rollouts without a verdict by video.
    """

    cost: v1.Cost = field(default_factory=v1.Cost)
    without_video: str = ""
    left_out: int = 0


def judge_by_video(
    context: SessionContext, assignment: str, members: Sequence[v1.Member], judge_source: str
) -> VideoOutcome:
    """Judge the deciding rollouts by video, if the session's model accepts images, and store the verdicts. In a step.

    An error results in a warning and does not fail the session, if the rollouts were judged by code.

    :param members: members whose rollouts decide.
    :param judge_source: empty if only video judges.
    :raises FailedPrecondition: VIDEO_NOT_JUDGED if only video judges, and it judged no rollout.
    """
    outcome = _judge_by_video(context, assignment, members, judge_source)
    if outcome.without_video and not judge_source:
        message = f"no rollout was judged, because only video judges this session: {outcome.without_video}"
        raise FailedPrecondition(message, reason="VIDEO_NOT_JUDGED")
    return outcome


def _judge_by_video(
    context: SessionContext, assignment: str, members: Sequence[v1.Member], judge_source: str
) -> VideoOutcome:
    deciding = deciding_rollouts(members, context.spec.video_judging)
    session = context.store.get()
    reason = _without_video(context.spec) or ("" if deciding else "no rollout decides")
    if not reason and budget.used_up(session, now=context.store.now()) is not None:
        reason = "the session's budget is used up"
    if reason:
        return VideoOutcome(without_video=reason)
    rollouts = deciding[:_MAX_VIDEO_ROLLOUTS]
    parts = resource_names.parse_assignment(assignment)
    request = _request(context, rollouts, judge_source)
    chosen = models.model_of(context.spec, models.VIDEO)
    request.session, request.model = session.name, chosen.model
    request.thinking, request.api_base = chosen.thinking, chosen.api_base
    # A resumed session has other inputs, and a key of the journal answers one request only (decision 0005).
    request.key = f"iterations/{parts.iteration}/judge/{parts.assignment}" + (
        f"-e{context.epoch}" if context.epoch else ""
    )
    request.brief.intent, request.brief.environment = context.spec.intent, context.environment
    request.brief.criteria.extend(context.spec.criteria)
    request.video.rollouts.extend(rollouts)
    request.video.options.CopyFrom(context.spec.video_options)
    request.remaining_budget.CopyFrom(budget.remaining(session))
    total = v1.Cost()
    try:
        answer = outages.call(context, parts.iteration, lambda: context.engine.judge.judge(request))
    except DressageError as error:
        # The verdicts by code stand without the video.
        answer = judge_pb.JudgeResponse()
        add_cost(total, cost_of(error))
        notices = [f"the videos could not be judged: {error.message}"]
    else:
        notices = list(dict.fromkeys(notice for entry in answer.rollouts for notice in entry.notices))
    _record(context, assignment, answer)
    if notices:
        message = "; ".join(notices)[:1000]
        context.store.warn("VIDEO_NOT_JUDGED", message, iteration=parts.iteration, key=f"notices/{assignment}")
    for entry in answer.rollouts:
        add_cost(total, entry.judgment.cost)
    video_rollouts = sum(entry.judgment.video_rollouts for entry in answer.rollouts)
    return VideoOutcome(total, "" if video_rollouts else "; ".join(notices)[:1000], len(deciding) - video_rollouts)


def pool_members(context: SessionContext, assignment: str, *, without_video: str = "") -> list[v1.Member]:
    """Aggregate each member's judgment from its last checkpoint and store it; returns the members. In a step.

    :param without_video: why video did not judge these members; stored in judgments without video.
    """
    threshold = context.spec.pass_threshold
    members = context.store.members(assignment)
    judgments = {member.name: aggregate.member_judgment(member, threshold=threshold) for member in members}
    for judgment in judgments.values():
        if without_video and not judgment.video_rollouts:
            judgment.without_video = without_video
    pooled = context.store.judge_members(assignment, judgments)
    board.write(context, pooled)
    return pooled


def announce(
    context: SessionContext,
    number: int,
    members: Sequence[v1.Member],
    whole: v1.Judgment,
    *,
    subject: str,
    assignment: str,
) -> None:
    """Append the events of the members' judgments and of the total judgment, once. In a step."""
    for member in members:
        event = ev.Judged(subject=member.name, judgment=member.judgment)
        context.store.emit(ev.Event(judged=event), iteration=number, key=f"judged/{member.name}")
    event = ev.Judged(subject=subject, judgment=whole)
    context.store.emit(ev.Event(judged=event), iteration=number, key=f"judged/{assignment}")


def deciding_rollouts(members: Sequence[v1.Member], selection: v1.VideoJudging.ValueType) -> list[str]:
    """Select the rollouts for a vision model: the median ones of last and best checkpoints, or all of last checkpoints."""
    chosen: list[str] = []
    for member in members:
        if not member.evaluations:
            continue
        checkpoints = [entry for entry in member.evaluations if aggregate.checkpoint_score(entry) is not None]
        best = max(checkpoints, key=lambda entry: aggregate.checkpoint_score(entry) or 0.0, default=None)
        last = aggregate.deciding(member)
        if selection == v1.VIDEO_JUDGING_ALL:
            # A checkpoint that was compared has a rollout of each episode, and all members get as many videos.
            chosen += [rollout.artifact for rollout in last.rollouts if rollout.label in _LABELS]
            continue
        for entry in (last, best) if best is not None and best is not last else (last,):
            # One of three: its correction by video is added to the other two (decision 0025).
            chosen += [rollout.artifact for rollout in entry.rollouts if rollout.label == "median"]
    return list(dict.fromkeys(chosen))


def _without_video(spec: v1.SessionSpec) -> str:
    """Why the session does not use video; empty if it does. Built-in authors and recordings have no vision support."""
    if spec.video_judging == v1.VIDEO_JUDGING_NONE:
        return "the session does without video (video_judging none)"
    model = models.model_of(spec, models.VIDEO).model
    if not is_language_model(model):
        return f"{model} has no vision support"
    return ""


def _request(context: SessionContext, rollouts: Sequence[str], judge_source: str) -> judge_pb.JudgeRequest:
    request = judge_pb.JudgeRequest(environment=context.environment, rollouts=rollouts, judge_source=judge_source)
    request.pass_threshold = context.spec.pass_threshold
    return request


def _record(context: SessionContext, assignment: str, answer: judge_pb.JudgeResponse) -> list[v1.Member]:
    judgments = {entry.rollout: entry.judgment for entry in answer.rollouts if entry.judgment.verdicts}
    return context.store.record_verdicts(assignment, judgments)
