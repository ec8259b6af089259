"""One call, as often as it takes: per-attempt and total deadlines, backoff with jitter, errors as domain errors.

Retries are ours rather than the service config's because gRPC's have no deadline per attempt: a call that hangs on one
dead backend would eat the whole budget. A request is built once, so its request_id is the same in every attempt.
UNAVAILABLE is always tried again, and a call over the rate limit after the server's delay; an attempt that ran
out of its own time only if the call is safe to repeat.
"""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import grpc
import grpc.aio

from dressage import errors
from dressage.rpc_errors import from_rpc

Request = TypeVar("Request")
Response = TypeVar("Response")

RATE_LIMITED = "RATE_LIMITED"
"""Reason of a call that the server did not begin because the caller made too many."""

_MAX_MESSAGE_BYTES = 16 * 1024 * 1024


def some_request_id(request_id: str | None) -> str:
    """Return the caller's request id, or a new one, which is the same in every attempt of the call."""
    return request_id if request_id is not None else uuid.uuid4().hex


@dataclass(frozen=True)
class CallPolicy:
    """How long and how often a client tries."""

    attempt_seconds: float = 20.0
    total_seconds: float = 60.0
    slow_seconds: float = 300.0  # both, for calls that wait for a language model
    initial_backoff: float = 0.2
    max_backoff: float = 5.0
    watch_reconnects: int = 10  # in a row, without an event in between
    stream_seconds: float = 3600.0  # a stream is renewed after so long

    def backoff(self, failures: int, jitter: float) -> float:
        """Seconds to wait after so many failures in a row; jitter in 0..1 takes off up to half."""
        return min(self.max_backoff, self.initial_backoff * 2.0 ** (failures - 1)) * (1 - 0.5 * jitter)


class UnaryStub(Protocol):
    """A unary method of a generated stub."""

    def __call__(self, request: Any, *, timeout: float, metadata: Sequence[tuple[str, str]]) -> Awaitable[Any]: ...


class StreamStub(Protocol):
    """A method of a generated stub that answers with a stream."""

    def __call__(self, request: Any, *, timeout: float, metadata: Sequence[tuple[str, str]]) -> AsyncIterator[Any]: ...


@dataclass(frozen=True)
class Caller:
    """Calls stubs of one channel under one policy."""

    channel: grpc.aio.Channel
    address: str
    metadata: tuple[tuple[str, str], ...] = ()
    policy: CallPolicy = field(default_factory=CallPolicy)
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    jitter: Callable[[], float] = random.random

    async def unary(
        self, stub: UnaryStub, request: Any, *, repeatable: bool = True, slow: bool = False, patient: bool = False
    ) -> Any:
        """The response of a unary call.

        :param repeatable: whether an attempt that timed out may be made again (reads, and writes with a request_id).
        :param slow: whether the call waits for a language model.
        :param patient: whether the server may have to load a model's library first; it then has as long as a slow call.
        :raises DressageError: as the server reported it; DeadlineExceeded or Unavailable once the total time is over.
        """
        policy = self.policy
        begun = self.clock()
        deadline = begun + (policy.slow_seconds if slow or patient else policy.total_seconds)
        failures = 0
        while True:
            left = deadline - self.clock()
            timeout = min(left, policy.slow_seconds if slow else policy.attempt_seconds)
            try:
                return await stub(request, timeout=max(timeout, 0.001), metadata=self.metadata)
            except grpc.aio.AioRpcError as error:
                failures += 1
                wait = policy.backoff(failures, self.jitter())
                limited = from_rpc(error)
                if isinstance(limited, errors.ResourceExhausted) and limited.reason == RATE_LIMITED:
                    wait = limited.retry_seconds + wait
                    again = self.clock() + wait < deadline
                    if again:
                        await self.sleep(wait)
                        continue
                    raise limited from error
                again = error.code() is grpc.StatusCode.UNAVAILABLE or (
                    repeatable and error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
                )
                # A server that cannot be reached is not loading anything.
                reached = slow or error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
                if not again or self.clock() + wait >= (deadline if reached else begun + policy.total_seconds):
                    raise from_rpc(error, address=self.address) from error
                await self.sleep(wait)

    def stream(self, stub: StreamStub, request: Any) -> AsyncIterator[Any]:
        """The messages of one streaming call, without retries; errors are gRPC's own."""
        return stub(request, timeout=self.policy.stream_seconds, metadata=self.metadata)

    async def renewed_stream(self, stub: StreamStub, make_request: Callable[[], Any]) -> AsyncIterator[Any]:
        """The messages of a stream that is opened again after UNAVAILABLE or when its own deadline ends it.

        :param make_request: makes the request each time the stream is opened, so that it can continue where it ended.
        :raises Unavailable: after `watch_reconnects` failures in a row.
        """
        failures = 0
        while True:
            try:
                async for message in self.stream(stub, make_request()):
                    failures = 0
                    yield message
                return
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.UNAVAILABLE and failures < self.policy.watch_reconnects:
                    failures += 1
                    await self.sleep(self.policy.backoff(failures, self.jitter()))
                elif error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                    raise from_rpc(error, address=self.address) from error


CHANNEL_OPTIONS: list[tuple[str, Any]] = [
    ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.enable_retries", 0),  # see the module's docstring
    ("grpc.max_reconnect_backoff_ms", 2_000),
]
