"""The servicer of `JudgeService`."""

from __future__ import annotations

from typing import Any

from dressage.api.internal.v1 import judge_service_pb2 as pb
from dressage.api.internal.v1 import judge_service_pb2_grpc as rpc

from dressage_judge import scoring
from dressage_judge.judging import CodeJudge
from dressage_judge.messages import check_response
from dressage_judge.verdicts import Verdicts

FULL_NAME = "dressage.internal.v1.JudgeService"


class JudgeServicer(rpc.JudgeServiceServicer):
    """Serves `JudgeService`."""

    def __init__(self, judge: CodeJudge, verdicts: Verdicts) -> None:
        self._judge = judge
        self._verdicts = verdicts

    async def Check(self, request: pb.CheckRequest, context: Any) -> pb.CheckResponse:
        """Check generated code in the sandbox."""
        timeout, judge, environment = context.time_remaining(), self._judge, request.environment
        match request.WhichOneof("subject"):
            case "reward_source":
                check = await judge.check_reward(
                    request.reward_source, environment, traceable=request.traceable, timeout=timeout
                )
            case "policy_source":
                seconds = request.act_seconds
                check = await judge.check_policy(
                    request.policy_source, environment, act_seconds=seconds, timeout=timeout
                )
            case "feedback_source":
                check = await judge.check_feedback(request.feedback_source, environment, timeout=timeout)
            case _:
                check = await judge.check_judge(
                    request.judge_source,
                    environment,
                    controls=list(request.null_controls),
                    threshold=request.pass_threshold,
                    timeout=timeout,
                    episode_steps=request.episode_steps,
                    rollouts=list(request.rollouts),
                )
        return check_response(check)

    async def Judge(self, request: pb.JudgeRequest, context: Any) -> pb.JudgeResponse:
        """Judge recorded rollouts."""
        return pb.JudgeResponse(rollouts=await self._verdicts.judge(request, timeout=context.time_remaining()))

    async def Score(self, request: pb.ScoreRequest, context: Any) -> pb.ScoreResponse:
        """Compute returns of recorded rollouts and of null controls under a reward."""
        return await scoring.score(self._judge, request, timeout=context.time_remaining())

    async def ReadReplies(self, request: pb.ReadRepliesRequest, context: Any) -> pb.ReadRepliesResponse:
        """Find the programs in replies with the code of a registered language, in the sandbox."""
        timeout = context.time_remaining()
        texts = await self._judge.read_replies(request.environment, list(request.replies), timeout=timeout)
        return pb.ReadRepliesResponse(replies=[pb.ReplyPrograms(programs=programs) for programs in texts])
