"""Calls of llm-agent and judge that wait through outages and overload, visibly and within the session's budget."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import TypeVar

from dressage.api.v1 import session_pb2 as v1
from dressage.errors import DressageError

from dressage_orchestrator.lifecycle import budget
from dressage_orchestrator.lifecycle.context import SessionContext
from dressage_orchestrator.lifecycle.outages import LONGEST_QUEUE_SECONDS, Wait, patience, through_outages, warning_of
from dressage_orchestrator.lifecycle.outcome import Exhausted

Result = TypeVar("Result")


def call(context: SessionContext, number: int, once: Callable[[], Awaitable[Result]]) -> Result:
    """Call a service, and wait while it is down or has no place. Only inside a step.

    :param number: the iteration that waits.
    :param once: makes the call; it is idempotent.
    :raises Exhausted: when the budget of wall-clock time ends meanwhile.
    :raises DressageError: the last error.
    """
    session = context.store.get()
    try:
        # Bounded by the client's deadline for each attempt, and by the wait between them.
        return context.call(patiently(context, number, session, once), seconds=math.inf)
    except DressageError as error:
        raise_if_out_of_time(context, session, error)
        raise


async def patiently(
    context: SessionContext, number: int, session: v1.Session, once: Callable[[], Awaitable[Result]]
) -> Result:
    """Return the result of one call, which waits as `call` does. In the event loop of the clients."""
    left = _seconds_left(context, session)

    async def report(error: DressageError, wait: Wait) -> None:
        await context.engine.controller.release(context.session)  # the trainer's lease is not held meanwhile
        await asyncio.to_thread(_report, context, number, error, wait)

    return await through_outages(
        once, seconds=min(patience(context.spec), left), queue_seconds=min(LONGEST_QUEUE_SECONDS, left), report=report
    )


def raise_if_out_of_time(context: SessionContext, session: v1.Session, error: DressageError) -> None:
    """Raise `Exhausted` if a wait for an outage or a place ended because the budget of wall-clock time did."""
    if warning_of(error) and budget.wall_time_exhausted(session, now=context.store.now()):
        message = f"the budget of time ended while the session waited: {error.message}"
        raise Exhausted(message, v1.EXHAUSTION_REASON_WALL_TIME) from error


def _seconds_left(context: SessionContext, session: v1.Session) -> float:
    """Return the rest of the wall-clock budget in seconds; infinite without one."""
    deadline = budget.wall_time_deadline(session)
    return math.inf if deadline is None else max(0.0, deadline - context.store.now().timestamp())


def _report(context: SessionContext, number: int, error: DressageError, wait: Wait) -> None:
    rest = f"{wait.left:.0f} s" if wait.left < 120 else f"{wait.left / 60:.0f} minutes"
    next_ = f"the next attempt is in {wait.pause:.0f} s, the last one {rest} later"
    message = f"{error.message.rstrip('.')}. The session waits: {next_}"
    # One event a minute for all concurrent calls.
    minute = int(context.store.now().timestamp() // 60)
    context.store.warn(wait.warning, message, iteration=number, key=f"outage/{number}/{minute}")
