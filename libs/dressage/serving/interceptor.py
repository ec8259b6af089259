"""The server interceptor: metrics, authentication, validation, authorisation and error mapping around each handler.

One class does all of it, because their order matters and every RPC kind needs its own wrapper. A caller without a token is
refused before its request is read, so it costs no message and waits for none. Health and reflection need no token, because
probes have none; their streams have a limit of their own.

A stream is checked again while it is open: a caller whose token was revoked, whose role changed or whose resource was deleted
receives nothing further.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import structlog
from google.protobuf.message import DecodeError

from dressage import errors
from dressage.serving.access import Authenticate, Gate, Principal, current_principal
from dressage.serving.errors import to_grpc
from dressage.serving.metrics import GrpcMetrics
from dressage.serving.validation import MessageValidator

_OPEN_SERVICES = ("grpc.health.", "grpc.reflection.")
_MAX_OPEN_STREAMS = 64
"""Streams of callers without a token, at the same time."""
RECHECK_SECONDS = 5.0
"""Longest time between two checks of the caller of an open stream."""
_TRUSTED_SECONDS = 1.0
"""Time after a check in which responses are sent without another one."""


class ServiceInterceptor(grpc.aio.ServerInterceptor):
    """Wraps every handler of a server.

    :param authenticate: recognises callers by their bearer token; None: no authentication.
    :param gate: decides what a caller may do; None: everything.
    :param exempt: full names of services with another authentication, such as a run token.
    """

    def __init__(
        self,
        *,
        metrics: GrpcMetrics,
        authenticate: Authenticate | None,
        gate: Gate | None = None,
        exempt: frozenset[str] = frozenset(),
    ) -> None:
        self._metrics = metrics
        self._authenticate = authenticate
        self._gate = gate
        self._exempt = exempt
        self._open_streams = 0
        self._validate = MessageValidator()
        self._log = structlog.get_logger("dressage.grpc")

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler]],
        details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler:
        """Return the wrapped handler of the call."""
        handler = await continuation(details)
        if handler is None:
            return handler
        _, service, method = details.method.split("/", 2)
        call = _Call(service=service, method=method, details=details, kind=_kind(handler))
        refusal = await self._identify(call)
        if refusal is not None:  # a handler of streams begins before a request is there
            return grpc.stream_stream_rpc_method_handler(self._refuse(call, refusal))
        requests = (lambda items: self._validate_each(call, items)) if handler.request_streaming else None
        if handler.response_streaming:
            behaviour = self._streaming(call, handler, requests)
            make = grpc.stream_stream_rpc_method_handler if requests else grpc.unary_stream_rpc_method_handler
        else:
            behaviour = self._unary(call, handler, requests)
            make = grpc.stream_unary_rpc_method_handler if requests else grpc.unary_unary_rpc_method_handler
        return make(
            behaviour,
            request_deserializer=_tolerant(handler.request_deserializer),
            response_serializer=handler.response_serializer,
        )

    async def _identify(self, call: _Call) -> Exception | None:
        """Recognise the caller of a call; returns why it is refused."""
        if self._authenticate is None or self._is_open(call.service):
            return None
        try:
            call.principal = await self._authenticate(call.token)
        except Exception as error:
            return error
        if call.principal is not None:
            return None
        return errors.Unauthenticated(
            "bearer token missing or wrong. Set DRESSAGE_TOKEN to the token of the server.",
            reason="TOKEN_MISSING_OR_WRONG",
        )

    async def _check(self, call: _Call, request: Any) -> None:
        """Validate the request of a call, and check that its caller may make it."""
        call.request = request
        current_principal.set(call.principal)  # each call has a task, and thus a context, of its own
        if call.principal is not None and self._gate is not None:
            self._gate.enter(call.principal, call.name)
        if request is not None:
            self._check_message(request)
        if call.principal is not None and self._gate is not None:
            # Last, because the owner is found by fields of the request, which must be valid.
            await self._gate.check(call.principal, call.name, request)

    async def _check_again(self, call: _Call, principal: Principal, gate: Gate) -> None:
        """Check that the caller of an open stream may still receive it.

        :raises Unauthenticated: if the token is not valid any more.
        """
        now = await self._authenticate(call.token) if self._authenticate is not None else principal
        if now is None or now.name != principal.name:
            raise errors.Unauthenticated("the bearer token is not valid any more", reason="TOKEN_REVOKED")
        gate.check_role(now, call.name)
        await gate.check(now, call.name, call.request)

    async def _while_permitted(self, call: _Call, responses: AsyncGenerator[Any, None]) -> AsyncIterator[Any]:
        """Yield responses as long as the caller may receive them."""
        principal, gate = call.principal, self._gate
        async with aclosing(responses):
            if principal is None or gate is None:
                async for item in responses:
                    yield item
                return
            checked = time.monotonic()
            while True:
                # In a task, because a timeout must not interrupt the handler.
                step = asyncio.create_task(_next(responses))
                try:
                    while True:
                        left = checked + RECHECK_SECONDS - time.monotonic()
                        await asyncio.wait((step,), timeout=max(0.0, left))
                        if time.monotonic() - checked >= _TRUSTED_SECONDS:
                            await self._check_again(call, principal, gate)
                            checked = time.monotonic()
                        if step.done():
                            break
                    item = step.result()
                finally:
                    if not step.done():
                        step.cancel()
                        await asyncio.wait((step,))
                if item is _END:
                    return
                yield item

    def _check_message(self, message: Any) -> None:
        """Validate a message, and drop its unknown fields.

        :raises InvalidArgument: also for bytes that are no message.
        """
        if isinstance(message, _MalformedRequest):
            raise errors.InvalidArgument(
                f"the request is not a message of this method: {message.problem}", reason="MALFORMED_REQUEST"
            )
        # What this server does not understand would be stored and returned, at any size.
        message.DiscardUnknownFields()
        self._validate(message)

    def _is_open(self, service: str) -> bool:
        return service in self._exempt or service.startswith(_OPEN_SERVICES)

    async def _validate_each(self, call: _Call, items: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for item in items:
            self._check_message(item)
            yield item

    @contextmanager
    def _measure(self, call: _Call) -> Iterator[_Measurement]:
        """Count and measure a call, and record it for the audit."""
        with _Measurement(self._metrics, call) as measurement:
            try:
                yield measurement
            finally:
                if self._gate is not None and not self._is_open(call.service):
                    self._gate.record(call.principal, call.name, call.request, call.response, measurement.code)

    def _unary(self, call: _Call, handler: Any, requests: Any) -> Any:
        inner = handler.stream_unary if requests else handler.unary_unary

        async def behaviour(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            with self._measure(call) as measurement:
                try:
                    await self._check(call, None if requests else request)
                    call.response = await inner(requests(request) if requests else request, context)
                    return call.response
                except BaseException as error:
                    await self._abort(call, measurement, context, error)

        return behaviour

    def _refuse(self, call: _Call, error: Exception) -> Any:
        async def behaviour(requests: Any, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[Any]:
            with self._measure(call) as measurement:
                await self._abort(call, measurement, context, error)
                yield

        return behaviour

    @contextmanager
    def _stream(self, call: _Call) -> Iterator[None]:
        """Count a stream of answers while the context is open.

        :raises ResourceExhausted: for too many.
        """
        if call.principal is not None and self._gate is not None:
            with self._gate.stream(call.principal, call.name):
                yield
        elif not call.service.startswith(_OPEN_SERVICES):
            yield
        elif self._open_streams >= _MAX_OPEN_STREAMS:
            message = f"{self._open_streams} open streams of health and reflection, the limit; try again later"
            raise errors.ResourceExhausted(message, reason="TOO_MANY_STREAMS")
        else:
            self._open_streams += 1
            try:
                yield
            finally:
                self._open_streams -= 1

    def _streaming(self, call: _Call, handler: Any, requests: Any) -> Any:
        inner = handler.stream_stream if requests else handler.unary_stream

        async def behaviour(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[Any]:
            with self._measure(call) as measurement:
                try:
                    await self._check(call, None if requests else request)
                    with self._stream(call):
                        response = inner(requests(request) if requests else request, context)
                        if hasattr(response, "__aiter__"):
                            async for item in self._while_permitted(call, response):
                                yield item
                        else:  # a coroutine that writes by itself, as that of reflection does
                            await response
                except BaseException as error:
                    await self._abort(call, measurement, context, error)

        return behaviour

    async def _abort(self, call: _Call, measurement: _Measurement, context: Any, error: BaseException) -> None:
        """End the call with the status that ``error`` maps to."""
        if isinstance(error, (asyncio.CancelledError, GeneratorExit)):
            measurement.code = "CANCELLED"
            raise error
        if isinstance(error, grpc.aio.AbortError):
            measurement.code = "ABORTED"
            raise error
        if not isinstance(error, Exception):
            raise error
        if not isinstance(error, errors.DressageError):
            request_id = secrets.token_hex(6)
            names = {"service": call.service, "method": call.method, "request_id": request_id}
            self._log.error("call failed", **names, exc_info=error)
            message = f"Internal error; see the server log (request id {request_id})"
            error = errors.Internal(message, reason="UNEXPECTED", metadata={"request_id": request_id})
        status = to_grpc(error)
        measurement.code = status.code.name
        await context.abort(status.code, status.details, status.trailing_metadata)


_END = object()
"""In place of a response after the last one."""


async def _next(responses: AsyncIterator[Any]) -> Any:
    return await anext(responses, _END)


@dataclass(frozen=True)
class _MalformedRequest:
    """Stands for a request whose bytes are no message of its type."""

    problem: str


def _kind(handler: grpc.RpcMethodHandler) -> str:
    """The kind of a method in the metrics."""
    if handler.response_streaming:
        return "bidi_stream" if handler.request_streaming else "server_stream"
    return "client_stream" if handler.request_streaming else "unary"


def _tolerant(deserialize: Callable[[bytes], Any] | None) -> Callable[[bytes], Any] | None:
    """Return a deserializer that does not raise: gRPC maps its errors to INTERNAL or UNKNOWN, but they are the caller's."""
    if deserialize is None:
        return None

    def tolerant(data: bytes) -> Any:
        try:
            return deserialize(data)
        except DecodeError as error:
            return _MalformedRequest(str(error))

    return tolerant


class _Call:
    """Service, method and bearer token of a call."""

    def __init__(self, *, service: str, method: str, details: grpc.HandlerCallDetails, kind: str) -> None:
        self.service = service
        self.method = method
        self.kind = kind
        header = dict(details.invocation_metadata or ()).get("authorization", "")
        scheme, _, token = (header if isinstance(header, str) else header.decode("latin-1")).partition(" ")
        self.token = token if scheme == "Bearer" else ""
        self.principal: Principal | None = None
        self.request: Any = None
        self.response: Any = None

    @property
    def name(self) -> str:
        """`package.Service/Method`."""
        return f"{self.service}/{self.method}"


class _Measurement:
    """Counts one call and measures its duration."""

    def __init__(self, metrics: GrpcMetrics, call: _Call) -> None:
        self._metrics = metrics
        self._labels = (call.service, call.method, call.kind)
        self.code = "OK"

    def __enter__(self) -> _Measurement:
        self._metrics.started.labels(*self._labels).inc()
        self._metrics.in_flight.labels(*self._labels).inc()
        self._begin = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self._metrics.seconds.labels(*self._labels).observe(time.perf_counter() - self._begin)
        self._metrics.in_flight.labels(*self._labels).dec()
        self._metrics.handled.labels(*self._labels, self.code).inc()
