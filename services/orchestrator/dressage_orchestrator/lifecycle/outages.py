"""Waits for what is down or overloaded: a model provider, llm-agent, judge.

llm-agent repeats a request to a provider for about a minute, the clients of the services for another. After that an outage is
reported as a warning of the session, and the call is repeated with growing pauses. Every call is idempotent: replies that
were received before are journalled.

An outage is waited for as long as the spec permits. Overload passes as other work ends, so a session waits for its place as
long as its budget of wall-clock time lasts, and a day without one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import DressageError, Unavailable
from dressage.serving.costs import add_cost, attach_cost, cost_of

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
    :param left: seconds that may be waited after it.
    """

    warning: str
    pause: float
    left: float


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
