"""No reply is read further than a bound, so that a server cannot fill the memory.

litellm reads whole bodies. All its asynchronous clients take their transport from one factory; `bound_replies` puts a transport
around that one, which refuses a body that is declared too long before the first byte of it, and any other at the byte that is
one too many. Compression is not asked for; a body that comes compressed all the same is held to a smaller bound.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx

MAX_BODY_BYTES = 4 * 1024 * 1024
"""A reply of `MAX_REPLY_BYTES` of text, escaped as JSON, and what goes with it."""

_MAX_COMPRESSED_BYTES = 128 * 1024
_MARK = "_dressage_bounded"


class ReplyTooLong(httpx.TransportError):
    """The body is longer than the bound; the connection is closed."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the reply is longer than {limit} bytes; it was not read any further")
        self.limit = limit


class BoundedTransport(httpx.AsyncBaseTransport):
    """A transport whose bodies end, or fail, within a bound.

    :param limit: bytes of one body.
    """

    def __init__(self, inner: httpx.AsyncBaseTransport, *, limit: int = MAX_BODY_BYTES) -> None:
        self._inner = inner
        self._limit = limit

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """See httpx."""
        request.headers["accept-encoding"] = "identity"
        response = await self._inner.handle_async_request(request)
        plain = response.headers.get("content-encoding", "identity").lower() in ("", "identity")
        limit = self._limit if plain else min(self._limit, _MAX_COMPRESSED_BYTES)
        declared = response.headers.get("content-length", "")
        if declared.isdigit() and int(declared) > limit:
            await response.aclose()
            raise ReplyTooLong(limit)
        stream = response.stream
        assert isinstance(stream, httpx.AsyncByteStream)
        response.stream = _BoundedStream(stream, limit)
        return response

    async def aclose(self) -> None:
        """See httpx."""
        await self._inner.aclose()


class _BoundedStream(httpx.AsyncByteStream):
    def __init__(self, inner: httpx.AsyncByteStream, limit: int) -> None:
        self._inner = inner
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        read = 0
        async for part in self._inner:
            read += len(part)
            if read > self._limit:
                await self._inner.aclose()
                raise ReplyTooLong(self._limit)
            yield part

    async def aclose(self) -> None:
        await self._inner.aclose()


def bound_replies(handler: Any) -> None:
    """Bounds the bodies of all clients that are made from now on; harmless if repeated.

    :param handler: litellm's ``AsyncHTTPHandler``.
    """
    made = handler.create_async_transport
    if getattr(made, _MARK, False):
        return

    def create(*arguments: Any, **options: Any) -> BoundedTransport:
        return BoundedTransport(made(*arguments, **options) or httpx.AsyncHTTPTransport())

    setattr(create, _MARK, True)
    handler.create_async_transport = staticmethod(create)


def too_long(error: BaseException) -> ReplyTooLong | None:
    """The refusal that an error of a client library was caused by; None if it was something else."""
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        if isinstance(found, ReplyTooLong):
            return found
        seen.add(id(found))
        found = found.__cause__ or found.__context__
    return None
