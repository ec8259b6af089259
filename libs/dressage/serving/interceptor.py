"""The server interceptor: metrics around auth around validation around the handler, and errors mapped once.

One class does all four, because their order matters and because every RPC kind needs its own wrapper anyway. Health and
reflection are open: probes carry no token.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import structlog

from dressage import errors
from dressage.serving.errors import to_grpc
from dressage.serving.metrics import GrpcMetrics
from dressage.serving.validation import MessageValidator

_OPEN_SERVICES = ("grpc.health.", "grpc.reflection.")


class ServiceInterceptor(grpc.aio.ServerInterceptor):
    """Wraps every handler of a server.

    :param token: bearer token that callers must show; None: no auth.
    :param exempt: full service names that authenticate by other means (a run token, say).
    """

    def __init__(self, *, metrics: GrpcMetrics, token: str | None, exempt: frozenset[str] = frozenset()) -> None:
        self._metrics = metrics
        self._token = token
        self._exempt = exempt
        self._validate = MessageValidator()
        self._log = structlog.get_logger("dressage.grpc")

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler]],
        details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler:
        """Returns the handler of the call, wrapped."""
        handler = await continuation(details)
        if handler is None:
            return handler
        _, service, method = details.method.split("/", 2)
        call = _Call(service=service, method=method, authorised=self._authorised(service, details))
        requests = (lambda items: self._validated(call, items)) if handler.request_streaming else None
        if handler.response_streaming:
            behaviour = self._streaming(call, handler, requests)
            make = grpc.stream_stream_rpc_method_handler if requests else grpc.unary_stream_rpc_method_handler
        else:
            behaviour = self._unary(call, handler, requests)
            make = grpc.stream_unary_rpc_method_handler if requests else grpc.unary_unary_rpc_method_handler
        return make(
            behaviour,
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )

    def _authorised(self, service: str, details: grpc.HandlerCallDetails) -> bool:
        if self._token is None or service in self._exempt or service.startswith(_OPEN_SERVICES):
            return True
        expected = f"Bearer {self._token}".encode()
        given = dict(details.invocation_metadata or ()).get("authorization", "")
        return hmac.compare_digest(given.encode() if isinstance(given, str) else given, expected)

    def _admit(self, call: _Call, request: Any) -> None:
        if not call.authorised:
            raise errors.Unauthenticated(
                "this server asks for a bearer token; set DRESSAGE_TOKEN to the token that it was installed with",
                reason="TOKEN_MISSING_OR_WRONG",
            )
        if request is not None:
            self._validate(request)

    async def _validated(self, call: _Call, items: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for item in items:
            self._validate(item)
            yield item

    def _unary(self, call: _Call, handler: Any, requests: Any) -> Any:
        inner = handler.stream_unary if requests else handler.unary_unary

        async def behaviour(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            with _Measured(self._metrics, call, "client_stream" if requests else "unary") as measured:
                try:
                    self._admit(call, None if requests else request)
                    return await inner(requests(request) if requests else request, context)
                except BaseException as error:
                    await self._abort(call, measured, context, error)

        return behaviour

    def _streaming(self, call: _Call, handler: Any, requests: Any) -> Any:
        inner = handler.stream_stream if requests else handler.unary_stream

        async def behaviour(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[Any]:
            with _Measured(self._metrics, call, "bidi_stream" if requests else "server_stream") as measured:
                try:
                    self._admit(call, None if requests else request)
                    answer = inner(requests(request) if requests else request, context)
                    if hasattr(answer, "__aiter__"):
                        async for item in answer:
                            yield item
                    else:  # a coroutine that writes by itself, as reflection's does
                        await answer
                except BaseException as error:
                    await self._abort(call, measured, context, error)

        return behaviour

    async def _abort(self, call: _Call, measured: _Measured, context: Any, error: BaseException) -> None:
        """Ends the call with the status that ``error`` maps to."""
        if isinstance(error, (asyncio.CancelledError, GeneratorExit)):
            measured.code = "CANCELLED"
            raise error
        if isinstance(error, grpc.aio.AbortError):
            measured.code = "ABORTED"
            raise error
        if not isinstance(error, Exception):
            raise error
        if not isinstance(error, errors.DressageError):
            self._log.error("call failed", service=call.service, method=call.method, exc_info=error)
            error = errors.Internal("something went wrong inside the server; its log tells what", reason="UNEXPECTED")
        status = to_grpc(error)
        measured.code = status.code.name
        await context.abort(status.code, status.details, status.trailing_metadata)


class _Call:
    """What is known of a call before it begins."""

    def __init__(self, *, service: str, method: str, authorised: bool) -> None:
        self.service = service
        self.method = method
        self.authorised = authorised


class _Measured:
    """Counts and times one call."""

    def __init__(self, metrics: GrpcMetrics, call: _Call, kind: str) -> None:
        self._metrics = metrics
        self._labels = (call.service, call.method, kind)
        self.code = "OK"

    def __enter__(self) -> _Measured:
        self._metrics.started.labels(*self._labels).inc()
        self._metrics.in_flight.labels(*self._labels).inc()
        self._begin = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self._metrics.seconds.labels(*self._labels).observe(time.perf_counter() - self._begin)
        self._metrics.in_flight.labels(*self._labels).dec()
        self._metrics.handled.labels(*self._labels, self.code).inc()
