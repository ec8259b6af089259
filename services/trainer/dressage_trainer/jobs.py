"""What takes time in a training, one job after the other: evaluations, and checkpoints that are stored.

The order is that of the learner's messages, so that a checkpoint is stored after the evaluations before it. Of
checkpoints that wait, two are kept: the first, whose turn comes however far evaluations lag, and the newest.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Never

from dressage_trainer.delivery import StagedCheckpoint
from dressage_trainer.messages import EvaluateMessage
from dressage_trainer.waiting import first_of

_QUEUE = 16

Job = Callable[[], Awaitable[None]]


@dataclass
class _Place:
    """A checkpoint's place among the jobs."""

    staged: StagedCheckpoint | None
    last_in_queue: bool = True
    """No evaluation has come since: a newer one may take its place."""


class Jobs:
    """The queue of jobs. One task puts them, another one works them off.

    :param store: stores a checkpoint.
    :param terminate: set on SIGTERM.
    """

    def __init__(
        self, *, store: Callable[[StagedCheckpoint], Coroutine[Any, Any, None]], terminate: asyncio.Event
    ) -> None:
        self._store_checkpoint = store
        self._terminate = terminate
        self._queue: asyncio.Queue[Job] = asyncio.Queue()
        """`_put` keeps it short."""
        self._job_done = asyncio.Event()
        self._unfinished: deque[EvaluateMessage] = deque()
        self._places: list[_Place] = []
        """Of checkpoints that wait, the oldest first; two at most."""
        self._storing: asyncio.Future[None] | None = None
        """The last checkpoint that was begun to be stored."""

    async def put_evaluation(self, message: EvaluateMessage, evaluate: Job) -> None:
        """Puts an evaluation behind all that waits, as soon as there is room."""

        async def job() -> None:
            await evaluate()
            self._unfinished.popleft()

        self._unfinished.append(message)
        await self.put_last(job)

    async def put_last(self, job: Job) -> None:
        """Puts a job that no later checkpoint may overtake."""
        for place in self._places:
            place.last_in_queue = False
        await self._put(job)

    async def put_checkpoint(self, staged: StagedCheckpoint) -> None:
        """Puts a checkpoint behind all that waits, as soon as there is room, or in the place of one given up for it."""
        newest = self._places[-1] if self._places else None
        # The first that waits is never given up for a newer one, or none would be stored as long as evaluations lag.
        if newest is not None and newest.staged is not None and (newest.last_in_queue or len(self._places) > 1):
            newest.staged.discard()
            if newest.last_in_queue:
                newest.staged = staged
                return
            newest.staged = None
            self._places.remove(newest)
        place = _Place(staged)
        self._places.append(place)
        await self._put(lambda: self._store(place))

    def unfinished(self) -> list[EvaluateMessage]:
        """Evaluations that were put and are not done, in their order."""
        return list(self._unfinished)

    async def work_off(self) -> Never:
        """Does what is put, for ever; raises what a job raises."""
        while True:
            job = await self._queue.get()
            await job()
            self._queue.task_done()
            self._job_done.set()

    async def finish(self, worker: asyncio.Future[Never]) -> None:
        """Waits until all that was put is done.

        :param worker: the task of `work_off`; what ended it is raised.
        """
        joined = asyncio.ensure_future(self._queue.join())
        try:
            await first_of(joined, worker)
        finally:
            joined.cancel()
        if worker.done():
            worker.result()

    async def leave(self, worker: asyncio.Future[Never]) -> None:
        """Gives up what is not done, but for a checkpoint that is being stored: a later one must come after all of it.

        :param worker: the task of `work_off`; what ended it before is raised.
        """
        if worker.done():
            worker.result()
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        if self._storing is not None:
            await self._storing

    async def close(self) -> None:
        """Gives up a checkpoint that is being stored, if there is one."""
        if self._storing is not None:
            self._storing.cancel()
            await asyncio.gather(self._storing, return_exceptions=True)

    async def _put(self, job: Job) -> None:
        """Waits while too many wait. Told to leave, lets all in: the snapshot that was asked for is announced behind them."""
        while self._queue.qsize() >= _QUEUE and not self._terminate.is_set():
            self._job_done.clear()
            await first_of(self._job_done, self._terminate)
        self._queue.put_nowait(job)

    async def _store(self, place: _Place) -> None:
        staged, place.staged = place.staged, None
        if staged is None:  # given up for a newer one
            return
        self._places.remove(place)
        self._storing = asyncio.ensure_future(self._store_checkpoint(staged))
        await asyncio.shield(self._storing)
