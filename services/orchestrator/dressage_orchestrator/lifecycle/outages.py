"""Waits for a model provider that is down, or that refuses requests for their rate.

llm-agent repeats a request for about a minute, the client of llm-agent for another. After that an outage is reported as a
warning of the session, and the task is repeated with growing pauses for as long as the session allows. The task is idempotent:
replies that were received before are journalled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import DressageError
from dressage.serving.costs import add_cost, attach_cost, attached_cost

REASONS = frozenset({"LLM_UNAVAILABLE", "LLM_RATE_LIMITED", "LLM_TIMEOUT", "LLM_MALFORMED_RESPONSE"})
"""Reasons of errors that pass without a change of the request."""
DEFAULT_SECONDS = 600.0
_FIRST_PAUSE = 10.0
_LONGEST_PAUSE = 300.0

Sleep = Callable[[float], Awaitable[None]]


def patience(spec: v1.SessionSpec) -> float:
    """Return for how many seconds a session waits."""
    return spec.provider_wait.ToTimedelta().total_seconds() if spec.HasField("provider_wait") else DEFAULT_SECONDS


async def through_outages(
    call: Callable[[], Awaitable[agent_pb.TaskResult]],
    *,
    seconds: float,
    report: Callable[[DressageError, float, float], Awaitable[None]],
    sleep: Sleep = asyncio.sleep,
) -> agent_pb.TaskResult:
    """Return the result of a task, which is repeated during an outage.

    :param seconds: how long to wait in total, without the time of the calls.
    :param report: called before each pause, with the error, the seconds until the next attempt and those left after it.
    :raises DressageError: the last error, with the cost of all attempts.
    """
    spent, waited, pause = v1.Cost(), 0.0, _FIRST_PAUSE
    while True:
        try:
            result = await call()
        except DressageError as error:
            add_cost(spent, attached_cost(error))
            rest = min(pause, seconds - waited)
            if error.reason not in REASONS or rest <= 0:
                attach_cost(error, spent)
                raise
            await report(error, rest, seconds - waited - rest)
            await sleep(rest)
            waited, pause = waited + rest, min(2 * pause, _LONGEST_PAUSE)
            continue
        add_cost(result.cost, spent)
        return result
