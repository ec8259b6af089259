"""The two queues of a training: uploads while the learner runs, and policies to evaluate.

Uploads are in an order that loses nothing: policies at their marks come before a later checkpoint.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Never

from dressage.api.internal.v1 import run_service_pb2 as pb

from dressage_trainer.assignments.delivery import StagedCheckpoint

Upload = Callable[[], Awaitable[None]]


class Outbox:
    """Uploads one thing after another, in their order. Of the checkpoints that wait, only the newest is kept.

    The assignment bounds the number of uploads that wait: there are as many as it has evaluations.

    :param store: uploads and reports a checkpoint.
    """

    def __init__(self, store: Callable[[StagedCheckpoint], Awaitable[None]]) -> None:
        self._store = store
        self._waiting: deque[Upload | StagedCheckpoint] = deque()
        self._more, self._empty = asyncio.Event(), asyncio.Event()
        self._empty.set()

    def put(self, upload: Upload) -> None:
        """Add an upload behind all that waits: the last records of a training follow those of its checkpoints."""
        self._waiting.append(upload)
        self._wake()

    def put_checkpoint(self, staged: StagedCheckpoint) -> None:
        """Add a checkpoint behind all that waits, in place of one that waits."""
        earlier = next((entry for entry in self._waiting if isinstance(entry, StagedCheckpoint)), None)
        if earlier is not None:
            self._waiting.remove(earlier)
            earlier.discard()
        # Behind the policies that wait: a reported checkpoint promises that those before it are stored (decision 0014).
        self._waiting.append(staged)
        self._wake()

    async def run(self) -> Never:
        """Upload what is put, until cancelled. An upload's exception ends it."""
        while True:
            await self._more.wait()
            self._more.clear()
            while self._waiting:
                entry = self._waiting.popleft()
                await (self._store(entry) if isinstance(entry, StagedCheckpoint) else entry())
            self._empty.set()

    async def flush(self) -> None:
        """Wait until no upload waits or is in progress. `run` must be running."""
        await self._empty.wait()

    def _wake(self) -> None:
        self._empty.clear()
        self._more.set()


class EvaluationQueue:
    """Evaluates policies in order, a few at a time. The assignment's number of evaluations bounds its length.

    :param evaluate: evaluates one policy.
    :param workers: how many policies are evaluated at a time.
    """

    def __init__(self, evaluate: Callable[[pb.PolicyRef], Awaitable[None]], *, workers: int) -> None:
        self._evaluate, self._workers = evaluate, workers
        self._queue: asyncio.Queue[pb.PolicyRef] = asyncio.Queue()

    def put(self, reference: pb.PolicyRef) -> None:
        """Add a policy."""
        self._queue.put_nowait(reference)

    def clear(self) -> None:
        """Drop the policies that wait; evaluations in progress continue."""
        while not self._queue.empty():
            self._queue.get_nowait()
            self._queue.task_done()

    async def run(self) -> None:
        """Evaluate what is put, until cancelled. An evaluation's exception ends it."""
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._workers):
                    group.create_task(self._work())
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors

    async def finish(self) -> None:
        """Wait until all policies in the queue are evaluated. `run` must be running."""
        await self._queue.join()

    async def _work(self) -> None:
        while True:
            reference = await self._queue.get()
            await self._evaluate(reference)
            self._queue.task_done()
