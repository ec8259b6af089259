"""Waits for what is down or overloaded: a model provider, llm-agent, judge.

llm-agent repeats a request to a provider for about a minute, the clients of the services for another. After that an outage is
reported as a warning of the session, and the call is repeated with growing pauses. Every call is idempotent: replies that
were received before are journalled.

An outage is waited for as long as the spec permits. Overload passes as other work ends, so a session waits for its place as
long as its budget of wall-clock time lasts, and a day without one.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import DressageError, Unavailable
from dressage.serving.costs import add_cost, attach_cost, cost_of

from dressage_orchestrator.lifecycle import budget
from dressage_orchestrator.lifecycle.context import SessionContext
from dressage_orchestrator.lifecycle.outcome import Exhausted

Result = TypeVar("Result")

PROVIDER = frozenset({"LLM_UNAVAILABLE", "LLM_RATE_LIMITED", "LLM_TIMEOUT", "LLM_MALFORMED_RESPONSE"})
"""Reasons of errors of a provider that pass without a change of the request."""
OVERLOAD = frozenset(
    {"LLM_AGENT_BUSY", "SANDBOX_QUEUE_FULL", "SANDBOX_TIMEOUT", "MACHINE_OVERLOADED", "RENDER_QUEUE_FULL"}
)
"""Reasons of a service that has no place or no processor for a call now, or had none until the call's deadline."""
_CUT = frozenset({"CANCELLED"})
"""Reasons of a call that a server cut when it stopped."""
DEFAULT_SECONDS = 600.0
LONGEST_QUEUE_SECONDS = 24 * 3600.0
_FIRST_PAUSE = 10.0
_LONGEST_PAUSE = 300.0
_QUEUE_PAUSE = 2.0
_LONGEST_QUEUE_PAUSE = 30.0


@dataclass(frozen=True)
class Wait:
    """A pause before a call is repeated.

    :param warning: reason of the session's warning.
    :param pause: seconds until the next attempt.
    :param seconds_left: seconds that may be waited after it.
    """

    warning: str
    pause: float
    seconds_left: float


def warning_of(error: DressageError) -> str:
    """Return the reason of the warning about an error that passes; empty if it does not pass."""
    if error.reason in PROVIDER:
        return "PROVIDER_UNAVAILABLE"
    if error.reason in OVERLOAD:
        return "SERVICE_BUSY"
    return "SERVICE_UNAVAILABLE" if isinstance(error, Unavailable) or error.reason in _CUT else ""


def patience(spec: v1.SessionSpec) -> float:
    """Return for how many seconds a session waits for an outage to end."""
    return spec.provider_wait.ToTimedelta().total_seconds() if spec.HasField("provider_wait") else DEFAULT_SECONDS


Sleep = Callable[[float], Awaitable[None]]
Report = Callable[[DressageError, Wait], Awaitable[None]]


async def through_outages(
    call: Callable[[], Awaitable[Result]],
    *,
    seconds: float,
    queue_seconds: float,
    report: Report,
    sleep: Sleep = asyncio.sleep,
) -> Result:
    """Return the result of an idempotent call, which is repeated during outages and overload.

    :param seconds: how long to wait for outages in total, without the time of the calls.
    :param queue_seconds: how long to wait for a place in total.
    :param report: called before each pause.
    :raises DressageError: the last error.
    """
    # Counted apart: a day in a queue must not use up the patience for an outage (decision 0053).
    waited = {True: 0.0, False: 0.0}
    attempts = {True: 0, False: 0}
    while True:
        try:
            return await call()
        except DressageError as error:
            warning = warning_of(error)
            queued = warning == "SERVICE_BUSY"
            first, longest = (_QUEUE_PAUSE, _LONGEST_QUEUE_PAUSE) if queued else (_FIRST_PAUSE, _LONGEST_PAUSE)
            most = queue_seconds if queued else seconds
            # The exponent is bounded, because a day of attempts would exceed the range of a float.
            pause = min(first * 2 ** min(attempts[queued], 20), longest, most - waited[queued])
            if not warning or pause <= 0:
                raise
            await report(error, Wait(warning, pause, most - waited[queued] - pause))
            await sleep(pause)
            waited[queued] += pause
            attempts[queued] += 1


def with_cost_of_all(
    call: Callable[[], Awaitable[agent_pb.TaskResult]],
) -> Callable[[], Awaitable[agent_pb.TaskResult]]:
    """Return a call whose result, and whose errors, have the cost of all its attempts."""
    spent = v1.Cost()

    async def once() -> agent_pb.TaskResult:
        try:
            result = await call()
        except DressageError as error:
            add_cost(spent, cost_of(error))
            attach_cost(error, spent)
            raise
        add_cost(result.cost, spent)
        return result

    return once


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
    seconds_left = _seconds_left(context, session)

    async def report(error: DressageError, wait: Wait) -> None:
        await context.engine.controller.release(context.session)  # the trainer's lease is not held meanwhile
        # In a thread: a write to the database would stop the event loop, which all calls share.
        await asyncio.to_thread(_report, context, number, error, wait)

    return await through_outages(
        once,
        seconds=min(patience(context.spec), seconds_left),
        queue_seconds=min(LONGEST_QUEUE_SECONDS, seconds_left),
        report=report,
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
    rest = f"{wait.seconds_left:.0f} s" if wait.seconds_left < 120 else f"{wait.seconds_left / 60:.0f} minutes"
    next_ = f"the next attempt is in {wait.pause:.0f} s, the last one {rest} later"
    message = f"{error.message.rstrip('.')}. The session waits: {next_}"
    # One event a minute for all concurrent calls.
    minute = int(context.store.now().timestamp() // 60)
    context.store.warn(wait.warning, message, iteration=number, key=f"outage/{number}/{minute}")
