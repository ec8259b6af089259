"""The queue of policies to evaluate beside a training."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from dressage.api.internal.v1 import run_service_pb2 as pb


class EvaluationQueue:
    """Evaluates policies in order, a few at a time. Its length is bounded by the assignment's evaluations.

    :param evaluate: evaluates one policy.
    :param workers: how many policies may be under way at a time.
    """

    def __init__(self, evaluate: Callable[[pb.PolicyRef], Awaitable[None]], *, workers: int) -> None:
        self._evaluate, self._workers = evaluate, workers
        self._queue: asyncio.Queue[pb.PolicyRef] = asyncio.Queue()

    def put(self, reference: pb.PolicyRef) -> None:
        """Add a policy."""
        self._queue.put_nowait(reference)

    async def run(self) -> None:
        """Evaluate what is put, until cancelled; raises what an evaluation raises."""
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._workers):
                    group.create_task(self._work())
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors

    async def finish(self) -> None:
        """Wait until all that was put is evaluated. `run` must be running."""
        await self._queue.join()

    async def _work(self) -> None:
        while True:
            reference = await self._queue.get()
            await self._evaluate(reference)
            self._queue.task_done()
