"""The public API by the Connect protocol, forwarded to the orchestrator.

The endpoints come from the descriptors of the protos, so a new method needs no code here. A call is decoded (proto or
JSON), sent on by gRPC with the caller's bearer token and deadline, and its result or status is returned with all details.
Validation, authentication and errors stay in the orchestrator. When a caller leaves, its upstream call is cancelled.

To decode a message takes time of all callers, so the console reads the message of a caller only if the orchestrator recognises
its token, and bounds the number of values in JSON.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
from connectrpc.code import Code
from connectrpc.codec import Codec
from connectrpc.compat import google_protobuf_binary_codec, google_protobuf_json_codec
from connectrpc.errors import ConnectError, ErrorDetail
from connectrpc.interceptor import MetadataInterceptor
from connectrpc.method import IdempotencyLevel, MethodInfo, StreamType
from connectrpc.request import RequestContext
from connectrpc.server import ConnectASGIApplication, Endpoint
from dressage.api.v1 import (
    artifact_service_pb2,
    benchmark_service_pb2,
    environment_service_pb2,
    intent_service_pb2,
    session_service_pb2,
)
from dressage.serving.server import MAX_MESSAGE_BYTES
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass
from google.rpc import status_pb2
from protobuf.wkt import Any as WireAny
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse

_FILES = (
    artifact_service_pb2,
    benchmark_service_pb2,
    environment_service_pb2,
    intent_service_pb2,
    session_service_pb2,
)
SERVICES: Mapping[str, ServiceDescriptor] = {
    service.full_name: service for file in _FILES for service in file.DESCRIPTOR.services_by_name.values()
}
"""The services of the public API by full name."""

_PROBE = SERVICES["dressage.v1.EnvironmentService"].methods_by_name["ListEnvironments"]
_PROBE_MS = 10_000.0
_KNOWN_SECONDS = 30.0
_MAX_KNOWN = 10_000
_MAX_JSON_VALUES = 100_000
_STATUS_DETAILS = "grpc-status-details-bin"
_STOPPING = "the console is stopping; try again"


@dataclass(frozen=True)
class Limits:
    """Bounds of forwarded calls."""

    call_seconds: float
    """Deadline of a call whose caller states none."""
    stream_seconds: float
    """The same of a stream."""
    max_streams: int
    """Open streams; further ones are refused."""


class Upstream:
    """Calls of the orchestrator on behalf of callers.

    :param channel: to the orchestrator; the caller of this class closes it.
    """

    def __init__(self, channel: grpc.aio.Channel, limits: Limits) -> None:
        self._channel = channel
        self._limits = limits
        self._streams: set[Any] = set()
        self._stopping = False

    async def unary(
        self, method: MethodDescriptor, request: Any, *, authorization: str | None, timeout_ms: float | None = None
    ) -> Any:
        """Call a unary method.

        :param authorization: value of the caller's header.
        :raises grpc.aio.AioRpcError: with the orchestrator's status.
        """
        call = self._channel.unary_unary(
            _path(method),
            request_serializer=type(request).SerializeToString,
            response_deserializer=GetMessageClass(method.output_type).FromString,
        )
        seconds = self._limits.call_seconds if timeout_ms is None else timeout_ms / 1000
        return await call(request, metadata=_metadata(authorization), timeout=seconds)

    async def recognise(self, authorization: str | None) -> None:
        """Ask the orchestrator whether it accepts a caller.

        :raises grpc.aio.AioRpcError: if it does not, or does not answer.
        """
        request = environment_service_pb2.ListEnvironmentsRequest(page_size=1)
        await self.unary(_PROBE, request, authorization=authorization, timeout_ms=_PROBE_MS)

    @asynccontextmanager
    async def stream(
        self, method: MethodDescriptor, request: Any, *, authorization: str | None, timeout_ms: float | None = None
    ) -> AsyncIterator[AsyncIterator[Any]]:
        """Open a server stream; leaving the context cancels it.

        :raises ConnectError: RESOURCE_EXHAUSTED beyond the limit, UNAVAILABLE while stopping.
        """
        if self._stopping:
            raise ConnectError(Code.UNAVAILABLE, _STOPPING)
        if len(self._streams) >= self._limits.max_streams:
            message = (
                f"the console has {len(self._streams)} open streams, its limit (DRESSAGE_CONSOLE_MAX_STREAMS); "
                "close pages, or try again later"
            )
            raise ConnectError(Code.RESOURCE_EXHAUSTED, message)
        open_stream = self._channel.unary_stream(
            _path(method),
            request_serializer=type(request).SerializeToString,
            response_deserializer=GetMessageClass(method.output_type).FromString,
        )
        seconds = self._limits.stream_seconds if timeout_ms is None else timeout_ms / 1000
        call = open_stream(request, metadata=_metadata(authorization), timeout=seconds)
        self._streams.add(call)
        try:
            yield call
        finally:
            self._streams.discard(call)
            call.cancel()

    @property
    def open_streams(self) -> int:
        """Number of streams that are open now."""
        return len(self._streams)

    @property
    def stopping(self) -> bool:
        """Whether open streams were cancelled because the console stops."""
        return self._stopping

    def cancel_streams(self) -> None:
        """End open streams and refuse new ones, so that watchers do not delay a shutdown."""
        self._stopping = True
        for call in list(self._streams):
            call.cancel()


class KnownCallers(MetadataInterceptor[None]):
    """Refuses a call before its message is read, unless the orchestrator recognises the caller.

    A recognised token is remembered for some seconds. The orchestrator authenticates the call itself again.
    """

    def __init__(
        self,
        upstream: Upstream,
        authorization: Callable[[Any], str | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._upstream = upstream
        self._authorization = authorization
        self._clock = clock
        self._until: OrderedDict[bytes, float] = OrderedDict()

    async def on_start(self, ctx: RequestContext[Any, Any]) -> None:
        header = self._authorization(ctx.request_headers)
        key = hashlib.sha256((header or "").encode()).digest()
        if self._clock() < self._until.get(key, -math.inf):
            return
        try:
            await self._upstream.recognise(header)
        except grpc.aio.AioRpcError as error:
            raise to_connect(error) from error
        self._until[key] = self._clock() + _KNOWN_SECONDS
        self._until.move_to_end(key)
        if len(self._until) > _MAX_KNOWN:
            self._until.popitem(last=False)


class BoundedJson(Codec[Any, Any]):
    """JSON with a limited number of values: a few bytes each become an object, and are converted one after another."""

    def __init__(self) -> None:
        # Unknown fields of JSON are mistakes of a person; those of proto come from newer clients.
        self._codec = google_protobuf_json_codec(ignore_unknown_fields=False)

    def name(self) -> str:
        return str(self._codec.name())

    def encode(self, message: Any) -> bytes:
        return bytes(self._codec.encode(message))

    def decode(self, data: bytes | bytearray, message_class: type[Any]) -> Any:
        if sum(data.count(sign) for sign in (b"{", b"[", b",")) > _MAX_JSON_VALUES:
            message = f"the request has more than {_MAX_JSON_VALUES} values in JSON; send it as proto"
            raise ConnectError(Code.RESOURCE_EXHAUSTED, message)
        return self._codec.decode(data, message_class)


class PublicApi(ConnectASGIApplication[Upstream]):
    """An ASGI application with one service of the public API.

    :param callers: refuses unknown callers.
    """

    def __init__(
        self,
        service: ServiceDescriptor,
        upstream: Upstream,
        authorization: Callable[[Any], str | None],
        callers: KnownCallers,
    ) -> None:
        self._descriptor = service
        super().__init__(
            service=upstream,
            endpoints=lambda upstream: {
                _path(method): _endpoint(method, upstream, authorization) for method in service.methods
            },
            interceptors=[callers],
            codecs=[google_protobuf_binary_codec(), BoundedJson()],
            read_max_bytes=MAX_MESSAGE_BYTES,
        )

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request."""
        problem = _malformed_header(scope["headers"])
        if problem:
            await PlainTextResponse(f"{problem}: malformed; expected UTF-8", 400)(scope, receive, send)
        elif Headers(scope=scope).get("content-type", "").startswith("application/grpc"):
            text = "gRPC is served at the address of the API; this one serves the Connect protocol"
            await PlainTextResponse(text, 415)(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)

    @property
    def path(self) -> str:
        """Prefix of the paths of all methods."""
        return f"/{self._descriptor.full_name}"


def _endpoint(method: MethodDescriptor, upstream: Upstream, authorization: Callable[[Any], str | None]) -> Any:
    info: MethodInfo[Any, Any] = MethodInfo(
        name=method.name,
        service_name=method.containing_service.full_name,
        input=GetMessageClass(method.input_type),
        output=GetMessageClass(method.output_type),
        # Only POST is served: its content type makes browsers ask before another site's page may send it.
        idempotency_level=IdempotencyLevel.UNKNOWN,
        stream_type=StreamType.SERVER_STREAM if method.server_streaming else StreamType.UNARY,
    )

    async def unary(request: Any, context: Any) -> Any:
        try:
            return await upstream.unary(
                method,
                request,
                authorization=authorization(context.request_headers),
                timeout_ms=context.timeout_ms,
            )
        except grpc.aio.AioRpcError as error:
            raise to_connect(error) from error

    async def stream(request: Any, context: Any) -> AsyncIterator[Any]:
        opened = upstream.stream(
            method, request, authorization=authorization(context.request_headers), timeout_ms=context.timeout_ms
        )
        try:
            async with opened as messages:
                async for message in messages:
                    yield message
        except asyncio.CancelledError:
            if not upstream.stopping:
                raise
            raise ConnectError(Code.UNAVAILABLE, _STOPPING) from None
        except grpc.aio.AioRpcError as error:
            raise to_connect(error) from error

    return Endpoint.server_stream(info, stream) if method.server_streaming else Endpoint.unary(info, unary)


def _malformed_header(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Name of the first header that the library cannot decode; empty: none."""
    for name, value in headers:
        try:
            value.decode()
        except UnicodeDecodeError:
            return name.decode("ascii", "replace")
    return ""


def to_connect(error: grpc.aio.AioRpcError) -> ConnectError:
    """Return the status of a failed upstream call with its details."""
    name = error.code().name.replace("CANCELLED", "CANCELED")
    raw = next((value for key, value in error.trailing_metadata() or () if key == _STATUS_DETAILS), None)
    status = status_pb2.Status.FromString(raw) if isinstance(raw, bytes) else status_pb2.Status()
    details = [ErrorDetail(WireAny(type_url=detail.type_url, value=detail.value)) for detail in status.details]
    return ConnectError(Code[name], error.details() or "", details)


def _path(method: MethodDescriptor) -> str:
    return f"/{method.containing_service.full_name}/{method.name}"


def _metadata(authorization: str | None) -> grpc.aio.Metadata:
    return grpc.aio.Metadata(("authorization", authorization)) if authorization else grpc.aio.Metadata()
