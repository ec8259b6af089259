"""Judges the rollouts of a request: all by code, if it has a judge, then those of `VideoSelection` by video."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dressage.api.internal.v1 import judge_service_pb2 as pb
from dressage.errors import DressageError, InvalidArgument
from dressage.serving.costs import add_cost, attach_cost

from dressage_judge.budget import BudgetTracker
from dressage_judge.judging import DEFAULT_THRESHOLD, CodeJudge, RolloutResult
from dressage_judge.messages import rollout_judgment
from dressage_judge.video_judging import VideoContext, VideoJudge, VideoSkip, check_video

_CONCURRENT_ROLLOUTS = 3


class Verdicts:
    """Judges rollouts.

    :param video: None without an llm-agent or a renderer.
    """

    def __init__(self, *, code: CodeJudge, video: VideoJudge | None) -> None:
        self._code = code
        self._video = video

    async def judge(self, request: pb.JudgeRequest, *, timeout: float | None) -> list[pb.RolloutJudgment]:
        """Return the judgments in the order of the request.

        :param timeout: seconds until the caller's deadline; None for none.
        :raises DressageError: see `CodeJudge.judge` and `VideoJudge`.
        """
        complete = pb.JudgeRequest()
        complete.CopyFrom(request)
        complete.pass_threshold = request.pass_threshold or DEFAULT_THRESHOLD
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout

        def remaining() -> float | None:
            return None if deadline is None else deadline - loop.time()

        by_video = set(complete.video.rollouts)
        if by_video:
            check_video(complete)
        results = await self._judge_by_code(complete, by_video, timeout)
        messages = [rollout_judgment(each, threshold=complete.pass_threshold) for each in results]
        pairs = [(each, message) for each, message in zip(results, messages, strict=True) if each.rollout in by_video]
        if pairs:
            await self._judge_by_video(complete, pairs, remaining)
            for _, message in pairs:
                if not message.judgment.video_rollouts:
                    message.judgment.without_video = "; ".join(message.notices)
        return messages

    async def _judge_by_code(
        self, request: pb.JudgeRequest, by_video: set[str], timeout: float | None
    ) -> list[RolloutResult]:
        if request.judge_source:
            return await self._code.judge(
                request.judge_source, request.environment, list(request.rollouts), timeout=timeout
            )
        others = sorted(set(request.rollouts) - by_video)
        if others:
            expected = f"a judge, because {others[0]} is not among the rollouts to judge by video"
            raise InvalidArgument(field="judge_source", value="", expected=expected)
        return [RolloutResult(key, None) for key in request.rollouts]

    async def _judge_by_video(
        self,
        request: pb.JudgeRequest,
        pairs: list[tuple[RolloutResult, pb.RolloutJudgment]],
        remaining: Callable[[], float | None],
    ) -> None:
        """Merge the video judge's verdicts into the messages; the first one's cost includes that of the criteria."""
        if self._video is None:
            skipped = VideoSkip("the judge has no llm-agent and no renderer configured")
        else:
            context = await self._video.prepare(request, remaining=remaining)
            if isinstance(context, VideoContext):
                return await _judge_all(self._video, context, pairs)
            skipped = context
        for _, message in pairs:
            message.notices.append(skipped.notice)
        pairs[0][1].judgment.cost.CopyFrom(skipped.opening_cost)


async def _judge_all(
    video: VideoJudge, context: VideoContext, pairs: list[tuple[RolloutResult, pb.RolloutJudgment]]
) -> None:
    # With a budget one rollout at a time, so that the budget is checked between them.
    slots = asyncio.Semaphore(1 if context.budget.has_bound else _CONCURRENT_ROLLOUTS)

    async def judge(result: RolloutResult, message: pb.RolloutJudgment) -> None:
        async with slots:
            await video.judge(context, result, message)

    with _first_error(context.budget):
        async with asyncio.TaskGroup() as group:
            for result, message in pairs:
                group.create_task(judge(result, message))
    add_cost(pairs[0][1].judgment.cost, context.opening_cost)


@contextmanager
def _first_error(budget: BudgetTracker) -> Iterator[None]:
    """Raise the first error of a group by itself, with the cost so far: callers handle domain errors, not groups."""
    try:
        yield
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, DressageError):
            attach_cost(error, budget.spent)
        raise error from None
