"""Limits the size of replies, so that a server cannot fill the memory.

litellm reads whole bodies. All its asynchronous clients get their transport from one factory; `bound_replies` wraps it. The
wrapper refuses a body whose declared length exceeds the limit before its first byte, and any other body at the first byte above
the limit. Requests do not accept compression; a compressed body has a smaller limit.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx

MAX_BODY_BYTES = 4 * 1024 * 1024
"""Enough for a reply of `MAX_REPLY_BYTES` of text, escaped as JSON, with its metadata."""

_MAX_COMPRESSED_BYTES = 128 * 1024
_MARK = "_dressage_bounded"


class ReplyTooLong(httpx.TransportError):
    """The body exceeds the limit; the connection is closed."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the reply is longer than {limit} bytes; the rest was not read")
        self.limit = limit


class BoundedTransport(httpx.AsyncBaseTransport):
    """A transport with a limit of the bodies' size.

    :param limit: bytes of one body.
    """

    def __init__(self, inner: httpx.AsyncBaseTransport, *, limit: int = MAX_BODY_BYTES) -> None:
        self._inner = inner
        self._limit = limit

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        request.headers["accept-encoding"] = "identity"
        response = await self._inner.handle_async_request(request)
        plain = response.headers.get("content-encoding", "identity").lower() in ("", "identity")
        limit = self._limit if plain else min(self._limit, _MAX_COMPRESSED_BYTES)
        declared = response.headers.get("content-length", "")
        if declared.isdecimal() and int(declared) > limit:
            await response.aclose()
            raise ReplyTooLong(limit)
        stream = response.stream
        assert isinstance(stream, httpx.AsyncByteStream)
        response.stream = _BoundedStream(stream, limit)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _BoundedStream(httpx.AsyncByteStream):
    def __init__(self, inner: httpx.AsyncByteStream, limit: int) -> None:
        self._inner = inner
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for part in self._inner:
            size += len(part)
            if size > self._limit:
                await self._inner.aclose()
                raise ReplyTooLong(self._limit)
            yield part

    async def aclose(self) -> None:
        await self._inner.aclose()


def bound_replies(handler: Any) -> None:
    """Limit the bodies of all clients that are created from now on; repeated calls have no effect.

    :param handler: litellm's ``AsyncHTTPHandler``.
    """
    create_transport = handler.create_async_transport
    if getattr(create_transport, _MARK, False):
        return

    def create(*arguments: Any, **options: Any) -> BoundedTransport:
        return BoundedTransport(create_transport(*arguments, **options) or httpx.AsyncHTTPTransport())

    setattr(create, _MARK, True)
    handler.create_async_transport = staticmethod(create)


def too_long(error: BaseException) -> ReplyTooLong | None:
    """Return the `ReplyTooLong` that caused an error of a client library; None for any other cause."""
    identities: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in identities:
        if isinstance(cause, ReplyTooLong):
            return cause
        identities.add(id(cause))
        cause = cause.__cause__ or cause.__context__
    return None
