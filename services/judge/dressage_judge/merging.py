"""Combines the verdicts of code and video on a rollout to one judgment, with the fixed rubric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.internal.v1 import judge_service_pb2 as pb
from dressage.api.v1 import session_pb2
from dressage.contracts.rubric import CODE_WEIGHT, STATUS_SCORES, VIDEO_WEIGHT, agree, weighted_mean

from dressage_judge.diagnosis import tag

NOTHING_SHOWN = "the frames decided no visual criterion"
"""Notice of a rollout that has no verdict by video although a model saw it."""

_LACKING = 0.75
"""A visual criterion below this score is among the failure tags."""


@dataclass(frozen=True)
class Decision:
    """How two verdicts were combined.

    :param agreed: whether the scores agree; also True if the frames decided no criterion.
    :param synthesis_scores: scores of visual criteria that the first look left unknown and a synthesis settled.
    """

    score: float
    agreed: bool
    difference: float
    decided_by: str
    reasoning: str
    synthesis_scores: Mapping[str, float] = field(default_factory=dict)


def by_rubric(code: float, video: float) -> Decision:
    """Return the decision for two verdicts that agree."""
    words = f"the judges agree; {CODE_WEIGHT:g} of the code's score and {VIDEO_WEIGHT:g} of the video's"
    return Decision(weighted_mean(code, video), True, abs(code - video), "both", words)


def by_synthesis(code: float, video: float | None, synthesis: agent_pb.Synthesis, not_shown: Sequence[str]) -> Decision:
    """Return the decision of a synthesis for two verdicts that differ, or for criteria that were not shown.

    :param video: None if the frames decided no criterion.
    :param not_shown: titles of visual criteria that most votes left unknown.
    """
    synthesis_scores = {
        entry.name: STATUS_SCORES[entry.status]
        for entry in synthesis.criteria
        if entry.source == "video" and entry.name in not_shown and entry.status in STATUS_SCORES
    }
    difference = 0.0 if video is None else abs(code - video)
    agreed = video is None or agree(code, video)
    # The score follows from statuses by a fixed rubric: no model names a number (decision 0025).
    return Decision(synthesis.score, agreed, difference, synthesis.decided_by, synthesis.reasoning, synthesis_scores)


def without_synthesis(code: float, video: float | None, why: str) -> Decision:
    """Return the decision without the needed synthesis.

    The lower score counts for two verdicts that differ, since a pass must be certain; the code's if video has none.
    """
    if video is None:
        return Decision(code, True, 0.0, "code", f"the frames decided no criterion, and the synthesis failed ({why})")
    if agree(code, video):
        return by_rubric(code, video)
    decided_by = "code" if code <= video else "video"
    words = f"the judges differ, and the synthesis failed ({why}); the lower score counts"
    return Decision(min(code, video), False, abs(code - video), decided_by, words)


def need_synthesis(code: float, video: float) -> bool:
    """Return whether two scores differ by more than the rubric allows."""
    return not agree(code, video)


def merge(message: pb.RolloutJudgment, verdict: agent_pb.VideoVerdict, decision: Decision, *, threshold: float) -> None:
    """Add the video judge's verdict and the decision to a rollout's judgment by code.

    Criteria that were not shown have no score and are no failures. If all are such, the judgment stays that of the code.
    """
    judgment = message.judgment
    code = judgment.score
    criteria = _criteria(verdict, decision.synthesis_scores)
    headline = _headline(code, verdict, decision)
    if criteria:
        _add_verdict(judgment, verdict, criteria)
    else:
        message.notices.append(NOTHING_SHOWN)
    judgment.score = decision.score
    judgment.passed = decision.score >= threshold
    judgment.diagnosis = " ".join(filter(None, [headline, judgment.diagnosis, _diagnosis(verdict)]))
    _add_tags(judgment, criteria)
    del judgment.samples[:]
    judgment.samples.append(decision.score)
    judgment.interval_low = judgment.interval_high = decision.score
    message.merge.CopyFrom(
        pb.Merge(
            agreed=decision.agreed,
            difference=decision.difference,
            decided_by=decision.decided_by,
            reasoning=decision.reasoning,
        )
    )


def by_video_alone(message: pb.RolloutJudgment, verdict: agent_pb.VideoVerdict, *, threshold: float) -> None:
    """Fill in the judgment of a rollout that no code judges; it stays empty, with a notice, if the frames decided nothing."""
    criteria = _criteria(verdict, {})
    if not criteria:
        message.notices.append(NOTHING_SHOWN)
        return
    judgment, score = message.judgment, verdict.score
    judgment.score, judgment.passed = score, score >= threshold
    judgment.interval_low = judgment.interval_high = score
    judgment.samples.append(score)
    _add_verdict(judgment, verdict, criteria)
    reached = "reaches" if judgment.passed else "stays below"
    headline = f"Video {score:.2f} {reached} the threshold {threshold:.2f}."
    judgment.diagnosis = " ".join(filter(None, [headline, _diagnosis(verdict)]))
    _add_tags(judgment, criteria)


def _criteria(verdict: agent_pb.VideoVerdict, synthesis_scores: Mapping[str, float]) -> dict[str, float]:
    """The scores of the visual criteria that the frames, or a second look, decided."""
    scores = {entry.criterion.title: entry.score for entry in verdict.criteria if entry.HasField("score")}
    return {
        title: synthesis_scores.get(title, scores.get(title, 0.0))
        for title in (entry.criterion.title for entry in verdict.criteria)
        if title in scores or title in synthesis_scores
    }


def _add_verdict(judgment: session_pb2.Judgment, verdict: agent_pb.VideoVerdict, criteria: Mapping[str, float]) -> None:
    names = {entry.name for entry in judgment.criteria}
    for title, score in criteria.items():
        judgment.criteria.add(name=f"video: {title}" if title in names else title, score=score)
    judgment.judged_by = "code and video" if judgment.verdicts else "video"
    judgment.rollouts = judgment.video_rollouts = 1
    judgment.verdicts.append(
        session_pb2.Verdict(
            kind=session_pb2.JUDGE_KIND_VIDEO,
            score=verdict.score if verdict.known else fmean(criteria.values()),
            votes=len(verdict.votes),
            spread=verdict.spread,
            evidence=criteria,
            comment=_comment(verdict),
        )
    )


def _add_tags(judgment: session_pb2.Judgment, criteria: Mapping[str, float]) -> None:
    if judgment.passed:
        del judgment.failure_tags[:]
        return
    lacking = [tag(title) for title, score in criteria.items() if score < _LACKING]
    tags = dict.fromkeys([*judgment.failure_tags, *lacking])
    judgment.failure_tags[:] = [name for name in tags if name]


def _headline(code: float, verdict: agent_pb.VideoVerdict, decision: Decision) -> str:
    if decision.decided_by == "both" and decision.agreed and verdict.known and not decision.synthesis_scores:
        return f"Code {code:.2f} and video {verdict.score:.2f} agree: {decision.score:.2f}."
    which = {"code": "the code's evidence decided", "video": "the video decided", "both": "both decided"}
    words = which.get(decision.decided_by, decision.decided_by)
    if not verdict.known:
        return f"Code {code:.2f}; the frames decided no criterion at first; {words}: {decision.score:.2f}. {decision.reasoning}"
    how = "agree, but a criterion was not shown at first" if decision.agreed else "differ"
    return f"Code {code:.2f} and video {verdict.score:.2f} {how}; {words}: {decision.score:.2f}. {decision.reasoning}"


def _diagnosis(verdict: agent_pb.VideoVerdict) -> str:
    return f"Seen: {verdict.diagnosis}" if verdict.diagnosis else ""


def _comment(verdict: agent_pb.VideoVerdict) -> str:
    lines = [
        f"{entry.criterion.title}: {', '.join(entry.statuses)}" + (f" ({entry.seen})" if entry.seen else "")
        for entry in verdict.criteria
    ]
    return f"shown as {verdict.dialect}; " + "; ".join(lines)
