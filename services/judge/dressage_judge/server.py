"""The gRPC face of the judge: translate, call, translate."""

from __future__ import annotations

from typing import Any

from dressage.api.internal.v1 import judge_service_pb2 as pb
from dressage.api.internal.v1 import judge_service_pb2_grpc as rpc
from dressage.api.v1 import event_pb2, session_pb2
from dressage.contracts import JudgeResult

from dressage_judge import scoring
from dressage_judge.diagnosis import diagnose, failure_tags
from dressage_judge.judging import DEFAULT_THRESHOLD, CheckedCode, CodeJudge, JudgedRollout

FULL_NAME = "dressage.internal.v1.JudgeService"


class JudgeServicer(rpc.JudgeServiceServicer):
    """Serves `JudgeService`."""

    def __init__(self, judge: CodeJudge) -> None:
        self._judge = judge

    async def Check(self, request: pb.CheckRequest, context: Any) -> pb.CheckResponse:
        """Check a generated reward or judge in the sandbox."""
        timeout = context.time_remaining()
        if request.WhichOneof("subject") == "reward_source":
            checked = await self._judge.check_reward(request.reward_source, request.environment, timeout=timeout)
        else:
            checked = await self._judge.check_judge(
                request.judge_source,
                request.environment,
                controls=list(request.null_controls),
                threshold=request.pass_threshold,
                timeout=timeout,
            )
        return check_response(checked)

    async def Judge(self, request: pb.JudgeRequest, context: Any) -> pb.JudgeResponse:
        """Judge recorded rollouts."""
        judged = await self._judge.judge(
            request.judge_source,
            request.environment,
            list(request.rollouts),
            time_reversed=request.judge_time_reversed,
            timeout=context.time_remaining(),
        )
        threshold = request.pass_threshold or DEFAULT_THRESHOLD
        return pb.JudgeResponse(rollouts=[rollout_judgment(each, threshold=threshold) for each in judged])

    async def Score(self, request: pb.ScoreRequest, context: Any) -> pb.ScoreResponse:
        """Score recorded rollouts and the controls by a reward."""
        return await scoring.score(self._judge, request, timeout=context.time_remaining())


def check_response(checked: CheckedCode) -> pb.CheckResponse:
    """A check's result as a message."""
    report = checked.report
    return pb.CheckResponse(
        ok=report.ok,
        failures=[
            event_pb2.CheckFailure(rule=each.rule, line=each.line, message=each.message, seen=each.seen)
            for each in report.failures
        ],
        terms=report.terms,
        latex=report.latex,
        style=report.style,
        milliseconds_per_thousand_rows=report.milliseconds_per_step,
        control_scores=checked.control_scores,
    )


def rollout_judgment(judged: JudgedRollout, *, threshold: float) -> pb.RolloutJudgment:
    """A verdict on a rollout as a message."""
    message = pb.RolloutJudgment(rollout=judged.rollout, judgment=judgment(judged.result, threshold=threshold))
    if judged.reversed_score is not None:
        message.time_reversed_score = judged.reversed_score
    return message


def judgment(result: JudgeResult, *, threshold: float) -> session_pb2.Judgment:
    """The judgment that a code judge's verdict on one rollout amounts to."""
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
    )
