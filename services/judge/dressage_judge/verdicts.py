"""The verdicts that a request asks for: code on all rollouts first, then a look at those that are to be looked at."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

from dressage.api.internal.v1 import judge_service_pb2 as pb
from dressage.errors import DressageError
from dressage.serving.bills import add_cost, bill

from dressage_judge.judging import DEFAULT_THRESHOLD, CodeJudge, JudgedRollout
from dressage_judge.looking import Looking, Refusal, VideoJudge, check_video
from dressage_judge.messages import rollout_judgment
from dressage_judge.spending import Purse

_AT_ONCE = 3
_MAX_SAID = 4096
Said = str | pb.RolloutJudgment | None


class Verdicts:
    """Judges.

    :param video: None where this judge knows no llm-agent or no renderer.
    """

    def __init__(self, *, code: CodeJudge, video: VideoJudge | None) -> None:
        self._code = code
        self._video = video

    async def all(self, request: pb.JudgeRequest, *, timeout: float | None) -> list[pb.RolloutJudgment]:
        """The verdicts, in the order asked."""
        by_rollout = {
            said.rollout: said async for said in self.stream(request, timeout=timeout) if not isinstance(said, str)
        }
        return [by_rollout[rollout] for rollout in request.rollouts]

    async def stream(
        self, request: pb.JudgeRequest, *, timeout: float | None
    ) -> AsyncIterator[str | pb.RolloutJudgment]:
        """Lines on what is going on, and the verdicts as they come to stand.

        :param timeout: seconds that the caller waits; None for no bound.
        :raises DressageError: see `CodeJudge.judge` and `VideoJudge`.
        """
        asked = pb.JudgeRequest()
        asked.CopyFrom(request)
        asked.pass_threshold = request.pass_threshold or DEFAULT_THRESHOLD
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout

        def left() -> float | None:
            return None if deadline is None else deadline - loop.time()

        looked_at = set(asked.video.rollouts) if asked.HasField("video") else set()
        if looked_at:
            check_video(asked)
        judged = await self._code.judge(
            asked.judge_source,
            asked.environment,
            list(asked.rollouts),
            time_reversed=asked.judge_time_reversed,
            timeout=timeout,
        )
        rest: list[tuple[JudgedRollout, pb.RolloutJudgment]] = []
        for each in judged:
            message = rollout_judgment(each, threshold=asked.pass_threshold)
            if each.rollout in looked_at:
                rest.append((each, message))
            else:
                yield message
        if rest:
            async for said in self._looks(asked, rest, left):
                yield said

    async def _looks(
        self,
        request: pb.JudgeRequest,
        rest: list[tuple[JudgedRollout, pb.RolloutJudgment]],
        left: Callable[[], float | None],
    ) -> AsyncIterator[str | pb.RolloutJudgment]:
        said: asyncio.Queue[Said] = asyncio.Queue(maxsize=_MAX_SAID)

        def tell(line: str) -> None:
            if not said.full():
                said.put_nowait(line)

        async def work() -> None:
            if self._video is None:
                looking: Looking | Refusal = Refusal("this judge knows no llm-agent and renderer: judged by code alone")
            else:
                looking = await self._video.begin(request, left=left, progress=tell)
            # With a budget one at a time, so that it is held to.
            places = asyncio.Semaphore(1 if isinstance(looking, Looking) and looking.purse.bounded else _AT_ONCE)

            async def one(judged: JudgedRollout, message: pb.RolloutJudgment) -> None:
                if isinstance(looking, Refusal):
                    message.notices.append(looking.notice)
                    if message is rest[0][1]:
                        message.judgment.cost.CopyFrom(looking.opening_cost)
                elif self._video is not None:
                    async with places:
                        await self._video.look(looking, judged, message)
                    if message is rest[0][1]:
                        add_cost(message.judgment.cost, looking.opening_cost)
                await said.put(message)

            with _first_of_many(looking.purse if isinstance(looking, Looking) else None):
                async with asyncio.TaskGroup() as group:
                    for judged, message in rest:
                        group.create_task(one(judged, message))

        async def whole() -> None:
            try:
                await work()
            finally:
                await said.put(None)

        task = asyncio.create_task(whole())
        try:
            while (line := await said.get()) is not None:
                yield line
            await task
        finally:
            task.cancel()


@contextmanager
def _first_of_many(purse: Purse | None) -> Iterator[None]:
    """Raises the first error of a group alone, with what was spent so far: callers know domain errors, not groups."""
    try:
        yield
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, DressageError) and purse is not None:
            bill(error, purse.spent)
        raise error from None
