"""Waiting for something of a trainer's, but no longer than it may stay: the orchestrator or a signal may end it first."""

from __future__ import annotations

import asyncio
from typing import Any

from dressage_trainer.outcome import Outcome
from dressage_trainer.waiting import first_of
from dressage_trainer.work import WorkStream


async def told_to_leave(
    task: asyncio.Future[Any], *, work: WorkStream, terminate: asyncio.Event, finish_seconds: float = 0.0
) -> Outcome | None:
    """Waits until a task is done; how it ends instead, if told to stop or to leave before. The task is cancelled then.

    :param terminate: set on SIGTERM.
    :param finish_seconds: what the task gets after SIGTERM to end by itself.
    :returns: None where the task is done, also by an error, which its ``result`` raises.
    """
    try:
        await first_of(task, work.stopped, terminate)
        if terminate.is_set() and finish_seconds > 0:
            await first_of(task, work.stopped, timeout=finish_seconds)
        if task.done():
            return None
        return Outcome.stopped(work.stop_reason) if work.stopped.is_set() else Outcome.interrupted()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
