"""Combines the verdicts of code and video on a rollout to one judgment, with the fixed rubric."""

from __future__ import annotations

from dataclasses import dataclass

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.internal.v1 import judge_service_pb2 as pb
from dressage.api.v1 import session_pb2
from dressage.contracts.rubric import CODE_WEIGHT, VIDEO_WEIGHT, agree, weighted

from dressage_judge.diagnosis import tag

_LACKING = 0.75
"""A visual criterion below this score is among the failure tags."""


@dataclass(frozen=True)
class Decision:
    """How two verdicts were combined."""

    score: float
    agreed: bool
    difference: float
    decided_by: str
    reasoning: str


def by_rubric(code: float, video: float) -> Decision:
    """Return the decision for two verdicts that agree."""
    words = f"the judges agree; {CODE_WEIGHT:g} of the code's score and {VIDEO_WEIGHT:g} of the video's"
    return Decision(weighted(code, video), True, abs(code - video), "both", words)


def by_synthesis(code: float, video: float, synthesis: agent_pb.Synthesis) -> Decision:
    """Return the decision of a synthesis for two verdicts that differ."""
    return Decision(synthesis.score, False, abs(code - video), synthesis.decided_by, synthesis.reasoning)


def unsettled(code: float, video: float, why: str) -> Decision:
    """Return the decision for two verdicts that differ without a synthesis: the lower score, since a pass must be certain."""
    decided_by = "code" if code <= video else "video"
    words = f"the judges differ, and the synthesis failed ({why}); the lower score counts"
    return Decision(min(code, video), False, abs(code - video), decided_by, words)


def need_synthesis(code: float, video: float) -> bool:
    """Return whether two scores differ by more than the rubric allows."""
    return not agree(code, video)


def merge(judged: pb.RolloutJudgment, verdict: agent_pb.VideoVerdict, decision: Decision, *, threshold: float) -> None:
    """Add the video judge's verdict and the decision to a rollout's judgment by code."""
    judgment = judged.judgment
    code = judgment.score
    judgment.score = decision.score
    judgment.passed = decision.score >= threshold
    taken = {entry.name for entry in judgment.criteria}
    for entry in verdict.criteria:
        title = entry.criterion.title
        judgment.criteria.add(name=f"video: {title}" if title in taken else title, score=entry.score)
    judgment.verdicts.append(
        session_pb2.Verdict(
            kind=session_pb2.JUDGE_KIND_VIDEO,
            score=verdict.score,
            votes=len(verdict.votes),
            spread=verdict.spread,
            evidence={entry.criterion.title: entry.score for entry in verdict.criteria},
            comment=_comment(verdict),
        )
    )
    judgment.diagnosis = " ".join(
        filter(None, [_headline(code, verdict, decision), judgment.diagnosis, _seen(verdict)])
    )
    if judgment.passed:
        del judgment.failure_tags[:]
    else:
        lacking = [tag(entry.criterion.title) for entry in verdict.criteria if entry.score < _LACKING]
        tags = dict.fromkeys([*judgment.failure_tags, *lacking])
        judgment.failure_tags[:] = [name for name in tags if name]
    del judgment.samples[:]
    judgment.samples.append(decision.score)
    judgment.interval_low = judgment.interval_high = decision.score
    judged.merge.CopyFrom(
        pb.Merge(
            agreed=decision.agreed,
            difference=decision.difference,
            decided_by=decision.decided_by,
            reasoning=decision.reasoning,
        )
    )


def _headline(code: float, verdict: agent_pb.VideoVerdict, decision: Decision) -> str:
    if decision.agreed:
        return f"Code {code:.2f} and video {verdict.score:.2f} agree: {decision.score:.2f}."
    which = {"code": "the code's evidence decided", "video": "the video decided", "both": "both decided"}
    words = which.get(decision.decided_by, decision.decided_by)
    return f"Code {code:.2f} and video {verdict.score:.2f} differ; {words}: {decision.score:.2f}. {decision.reasoning}"


def _seen(verdict: agent_pb.VideoVerdict) -> str:
    return f"Seen: {verdict.diagnosis}" if verdict.diagnosis else ""


def _comment(verdict: agent_pb.VideoVerdict) -> str:
    lines = [
        f"{entry.criterion.title}: {', '.join(entry.statuses)}" + (f" ({entry.seen})" if entry.seen else "")
        for entry in verdict.criteria
    ]
    return f"shown as {verdict.dialect}; " + "; ".join(lines)
