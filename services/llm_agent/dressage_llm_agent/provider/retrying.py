"""A bounded second try for what may pass: rate limits, server faults, timeouts, cut connections, garbled replies.

A refused key or a bad request fails at once. What is left becomes a domain error; none of them is UNAVAILABLE's twin of a
client's own retry, since `Converse` sends a line before its first request, after which gRPC repeats nothing.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from dressage.errors import (
    DeadlineExceeded,
    DressageError,
    FailedPrecondition,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
)
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt
from tenacity.wait import wait_base

from dressage_llm_agent.provider.base import (
    RETRYABLE,
    CompletionRequest,
    ModelDescription,
    Provider,
    ProviderFault,
    Reply,
)

Sleep = Callable[[float], Awaitable[None]]
Notice = Callable[[str], None]

_ERRORS: dict[str, tuple[type[DressageError], str]] = {
    "rate_limited": (ResourceExhausted, "LLM_RATE_LIMITED"),
    "server": (Unavailable, "LLM_UNAVAILABLE"),
    "connection": (Unavailable, "LLM_UNAVAILABLE"),
    "malformed": (Unavailable, "LLM_MALFORMED_RESPONSE"),
    "timeout": (DeadlineExceeded, "LLM_TIMEOUT"),
    "too_large": (ResourceExhausted, "LLM_REPLY_TOO_LARGE"),
    "auth": (Unauthenticated, "LLM_KEY_REFUSED"),
    "bad_request": (FailedPrecondition, "LLM_BAD_REQUEST"),
}


@dataclass(frozen=True)
class RetryPolicy:
    """How often and how long.

    :param attempts: requests in all, >= 1.
    :param first_wait: seconds before the second, doubled each time and jittered by a half.
    :param longest_wait: bound of a wait in seconds; a provider that asks for more than this is given up at once.
    """

    attempts: int = 4
    first_wait: float = 1.0
    longest_wait: float = 60.0


class RetryingProvider:
    """A provider that tries again.

    :param jitter: numbers in [0, 1); time and chance are passed in for the tests.
    """

    def __init__(
        self,
        inner: Provider,
        policy: RetryPolicy,
        *,
        sleep: Sleep = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
        notice: Notice = lambda _: None,
    ) -> None:
        self._inner = inner
        self._policy = policy
        self._sleep = sleep
        self._wait = _Wait(policy, jitter)
        self._notice = notice

    async def complete(self, request: CompletionRequest) -> Reply:
        """The reply, after at most ``policy.attempts`` requests.

        :raises DressageError: with a reason ``LLM_…`` that says what went wrong the last time.
        """
        try:
            async for attempt in AsyncRetrying(
                retry=retry_if_exception(self._worth_it),
                stop=stop_after_attempt(self._policy.attempts),
                wait=self._wait,
                sleep=self._sleep,
                before_sleep=self._tell,
                reraise=True,
            ):
                with attempt:
                    return await self._inner.complete(request)
        except ProviderFault as fault:
            kind, reason = _ERRORS[fault.kind]
            raise kind(f"{request.model}: {fault.message}", reason=reason, metadata={"model": request.model}) from None
        raise AssertionError("tenacity ends by a reply or by an exception")

    async def describe(self, model: str) -> ModelDescription:
        """As the inner provider."""
        return await self._inner.describe(model)

    def _worth_it(self, error: BaseException) -> bool:
        if not isinstance(error, ProviderFault) or error.kind not in RETRYABLE:
            return False
        return error.retry_after is None or error.retry_after <= self._policy.longest_wait

    def _tell(self, state: RetryCallState) -> None:
        fault = state.outcome.exception() if state.outcome else None
        if isinstance(fault, ProviderFault):
            self._notice(f"attempt {state.attempt_number} failed ({fault.kind}); trying again")


class _Wait(wait_base):
    """What the provider asks for, else an exponential backoff with jitter."""

    def __init__(self, policy: RetryPolicy, jitter: Callable[[], float]) -> None:
        self._policy = policy
        self._jitter = jitter

    def __call__(self, retry_state: RetryCallState) -> float:
        fault = retry_state.outcome.exception() if retry_state.outcome else None
        backoff = self._policy.first_wait * 2.0 ** (retry_state.attempt_number - 1)
        backoff = min(backoff, self._policy.longest_wait) * (0.5 + 0.5 * self._jitter())
        asked = fault.retry_after if isinstance(fault, ProviderFault) else None
        return max(asked or 0.0, backoff) if asked is not None else backoff
