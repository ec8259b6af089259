"""Checks and judgments as messages."""

from __future__ import annotations

from collections.abc import Sequence

from dressage.api.internal.v1 import judge_service_pb2 as pb
from dressage.api.v1 import event_pb2, session_pb2
from dressage.contracts import CheckFailure, JudgeResult

from dressage_judge.diagnosis import diagnose, failure_tags
from dressage_judge.judging import CodeCheck, RolloutResult


def check_response(check: CodeCheck) -> pb.CheckResponse:
    """Return a check's result as a message."""
    report = check.report
    return pb.CheckResponse(
        ok=report.ok,
        failures=_check_failures(report.failures),
        terms=report.terms,
        latex=report.latex,
        style=report.style,
        milliseconds_per_thousand_rows=report.milliseconds_per_step,
        control_scores=check.control_scores,
        act_microseconds=report.act_microseconds,
        traceable=report.traceable,
        obstacles=_check_failures(report.obstacles),
    )


def _check_failures(failures: Sequence[CheckFailure]) -> list[event_pb2.CheckFailure]:
    return [
        event_pb2.CheckFailure(rule=each.rule, line=each.line, message=each.message, seen=each.seen)
        for each in failures
    ]


def rollout_judgment(result: RolloutResult, *, threshold: float) -> pb.RolloutJudgment:
    """Return the code judge's result for a rollout as a message; without a result the judgment is not set."""
    if result.result is None:
        return pb.RolloutJudgment(rollout=result.rollout)
    return pb.RolloutJudgment(rollout=result.rollout, judgment=judgment(result.result, threshold=threshold))


def judgment(result: JudgeResult, *, threshold: float) -> session_pb2.Judgment:
    """Return the judgment of one rollout by a code judge."""
    verdict = session_pb2.Verdict(
        kind=session_pb2.JUDGE_KIND_CODE, score=result.score, votes=1, spread=0.0, evidence=result.evidence
    )
    return session_pb2.Judgment(
        score=result.score,
        passed=result.score >= threshold,
        criteria=[session_pb2.CriterionScore(name=name, score=score) for name, score in result.criteria.items()],
        diagnosis=diagnose(result, threshold=threshold),
        failure_tags=failure_tags(result, threshold=threshold),
        verdicts=[verdict],
        samples=[result.score],
        interval_low=result.score,
        interval_high=result.score,
        judged_by="code",
        rollouts=1,
    )
