"""Retries transient failures within limits: rate limits, server errors, timeouts, lost connections, malformed replies.

A refused key or a bad request fails at once. The last failure becomes a domain error. gRPC does not retry UNAVAILABLE on top of
these retries, since `Converse` sends a message before its first request.
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
    """Limits of retries.

    :param attempts: maximum number of requests, >= 1.
    :param first_wait: seconds before the second request, doubled each time, with a jitter of up to one half.
    :param longest_wait: maximum wait in seconds; a provider that requires more is not retried.
    """

    attempts: int = 4
    first_wait: float = 1.0
    longest_wait: float = 60.0


class RetryingProvider:
    """A provider with retries.

    :param jitter: returns numbers in [0, 1); tests replace it and `sleep`.
    :param on_retry: is called with a message before each retry.
    """

    def __init__(
        self,
        inner: Provider,
        policy: RetryPolicy,
        *,
        sleep: Sleep = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
        on_retry: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._inner = inner
        self._policy = policy
        self._sleep = sleep
        self._wait = _Wait(policy, jitter)
        self._on_retry = on_retry

    async def complete(self, request: CompletionRequest) -> Reply:
        """Return the reply, after at most ``policy.attempts`` requests.

        :raises DressageError: with the reason ``LLM_…`` of the last failure.
        """
        try:
            async for attempt in AsyncRetrying(
                retry=retry_if_exception(self._is_retryable),
                stop=stop_after_attempt(self._policy.attempts),
                wait=self._wait,
                sleep=self._sleep,
                before_sleep=self._report,
                reraise=True,
            ):
                with attempt:
                    return await self._inner.complete(request)
        except ProviderFault as fault:
            kind, reason = _ERRORS[fault.kind]
            raise kind(f"{request.model}: {fault.message}", reason=reason, metadata={"model": request.model}) from None
        raise AssertionError("tenacity ends with a reply or an exception")

    async def describe(self, model: str, api_base: str = "") -> ModelDescription:
        """As the inner provider."""
        return await self._inner.describe(model, api_base)

    def _is_retryable(self, error: BaseException) -> bool:
        if not isinstance(error, ProviderFault) or error.kind not in RETRYABLE:
            return False
        # A longer wait is an outage, for which the session waits without holding a request (decision 0049).
        return error.retry_after is None or error.retry_after <= self._policy.longest_wait

    def _report(self, state: RetryCallState) -> None:
        fault = state.outcome.exception() if state.outcome else None
        if isinstance(fault, ProviderFault):
            self._on_retry(f"attempt {state.attempt_number} failed ({fault.kind}); retrying")


class _Wait(wait_base):
    """The wait that the provider requires, but at least an exponential backoff with jitter."""

    def __init__(self, policy: RetryPolicy, jitter: Callable[[], float]) -> None:
        self._policy = policy
        self._jitter = jitter

    def __call__(self, retry_state: RetryCallState) -> float:
        fault = retry_state.outcome.exception() if retry_state.outcome else None
        backoff = self._policy.first_wait * 2.0 ** (retry_state.attempt_number - 1)
        backoff = min(backoff, self._policy.longest_wait) * (0.5 + 0.5 * self._jitter())
        required = fault.retry_after if isinstance(fault, ProviderFault) else None
        return max(required or 0.0, backoff)
