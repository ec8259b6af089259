"""What takes time in a training, one job after the other: evaluations, and checkpoints that are stored.

The order is that of the learner's messages, so that a checkpoint is stored after the evaluations before it. Of
checkpoints that wait, two are kept: the first, whose turn comes however far evaluations lag, and the newest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Never

from dressage_trainer.delivery import StagedCheckpoint
from dressage_trainer.waiting import first_of

_QUEUE = 16

Job = Callable[[], Awaitable[None]]


@dataclass
class _Place:
    """A checkpoint's place among the jobs."""

    staged: StagedCheckpoint | None
    requested: bool
    """Whether somebody waits for it, or waited for the one it replaced."""
    last_in_queue: bool = True
    """No evaluation has come since: a newer one may take its place."""


class Jobs:
    """The queue of jobs. One task puts them, another one works them off.

    :param store: stores a checkpoint; its second argument says whether somebody waits for it.
    :param terminate: set on SIGTERM.
    """

    def __init__(self, *, store: Callable[[StagedCheckpoint, bool], Awaitable[None]], terminate: asyncio.Event) -> None:
        self._store_checkpoint = store
        self._terminate = terminate
        self._queue: asyncio.Queue[Job] = asyncio.Queue()
        """`_put` keeps it short."""
        self._job_done = asyncio.Event()
        self._places: list[_Place] = []
        """Of checkpoints that wait, the oldest first; two at most."""

    async def put_evaluation(self, evaluate: Job) -> None:
        """Puts an evaluation behind all that waits, as soon as there is room."""
        for place in self._places:
            place.last_in_queue = False
        await self._put(evaluate)

    async def put_checkpoint(self, staged: StagedCheckpoint) -> None:
        """Puts a checkpoint behind all that waits, as soon as there is room, or in the place of one given up for it."""
        newest, requested = self._places[-1] if self._places else None, staged.message.requested
        # The first that waits is never given up for a newer one, or none would be stored as long as evaluations lag.
        if newest is not None and newest.staged is not None and (newest.last_in_queue or len(self._places) > 1):
            requested = requested or newest.requested
            newest.staged.discard()
            if newest.last_in_queue:
                newest.staged, newest.requested = staged, requested
                return
            newest.staged = None
            self._places.remove(newest)
        place = _Place(staged, requested)
        self._places.append(place)
        await self._put(lambda: self._store(place))

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

    async def _put(self, job: Job) -> None:
        """Waits while too many wait. Told to leave, lets all in: the snapshot that was asked for comes behind them."""
        while self._queue.qsize() >= _QUEUE and not self._terminate.is_set():
            self._job_done.clear()
            await first_of(self._job_done, self._terminate)
        self._queue.put_nowait(job)

    async def _store(self, place: _Place) -> None:
        staged, place.staged = place.staged, None
        if staged is None:  # given up for a newer one
            return
        self._places.remove(place)
        await self._store_checkpoint(staged, place.requested)
