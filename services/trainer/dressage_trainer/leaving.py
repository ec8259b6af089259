"""Waiting for something of a trainer's, but no longer than it may stay: the orchestrator or a signal may end it first."""

from __future__ import annotations

import asyncio
from typing import Any

from dressage_trainer.outcome import Outcome
from dressage_trainer.work import WorkStream


async def told_to_leave(
    task: asyncio.Future[Any], *, work: WorkStream, terminate: asyncio.Event, finish_seconds: float = 0.0
) -> Outcome | None:
    """Waits until a task is done; how it ends instead, if told to stop or to leave before. The task is cancelled then.

    :param terminate: set on SIGTERM.
    :param finish_seconds: what the task gets after SIGTERM to end by itself.
    :returns: None where the task is done, also by an error, which its ``result`` raises.
    """
    stop, leave = asyncio.ensure_future(work.stopped.wait()), asyncio.ensure_future(terminate.wait())
    try:
        await asyncio.wait([task, stop, leave], return_when=asyncio.FIRST_COMPLETED)
        if leave.done() and finish_seconds > 0:
            await asyncio.wait([task, stop], timeout=finish_seconds, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return None
        return Outcome.stopped(work.stop_reason) if stop.done() else Outcome.interrupted()
    finally:
        for waiting in (task, stop, leave):
            waiting.cancel()
        await asyncio.gather(task, stop, leave, return_exceptions=True)
