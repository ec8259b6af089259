"""Artifacts by GET and HEAD, with ETag and Range, so that videos seek and downloads resume.

The bytes come from `ReadArtifact`, under the same login as every call. An artifact may contain what generated code wrote:
only videos and pictures are shown as what they are, text as plain text, everything else is a download, and a sandbox
policy keeps a browser from running any of it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from email.utils import formatdate
from typing import Any

import grpc
from connectrpc.errors import ConnectError
from dressage.api.v1 import artifact_service_pb2 as pb
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from dressage_console.forwarding import SERVICES, Upstream
from dressage_console.login import authorization

_METHODS = SERVICES["dressage.v1.ArtifactService"].methods_by_name
_DISPLAYABLE = ("video/mp4", "image/png", "image/jpeg", "image/gif", "image/webp")
_TEXT = ("application/json", "application/jsonl")
_HTTP = {
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
}


@dataclass(frozen=True)
class ByteRange:
    """Bytes `start` to `stop`, exclusive."""

    start: int
    stop: int


def parse_range(header: str | None, size: int) -> ByteRange | None:
    """Parse a Range header (RFC 9110, section 14).

    :param size: size of the artifact in bytes.
    :returns: None if the whole artifact is to be sent: no header, another unit, several ranges or a malformed one.
    :raises ValueError: if the range is well-formed and contains no byte of the artifact.
    """
    unit, separator, text = (header or "").partition("=")
    first, dash, last = text.strip().partition("-")
    if unit.strip().lower() != "bytes" or not separator or not dash or not _digits(first, last):
        return None
    if not first:
        length = min(int(last), size)
        if not length:
            raise ValueError("empty suffix")
        return ByteRange(size - length, size)
    start = int(first)
    if last and int(last) < start:
        return None
    if start >= size:
        raise ValueError("beyond the end")
    return ByteRange(start, min(int(last) + 1, size) if last else size)


def _digits(first: str, last: str) -> bool:
    """Whether these are the positions of one range: ASCII digits of a bounded length, at least one of both given."""
    texts = [text for text in (first, last) if text]
    return bool(texts) and all(text.isascii() and text.isdigit() and len(text) < 19 for text in texts)


def routes(upstream: Upstream) -> list[Route]:
    """`/artifacts/{key}`."""

    async def read(request: Request) -> Response:
        key, header = request.path_params["key"], authorization(request.headers)
        try:
            get = pb.GetArtifactRequest(key=key)
            artifact = await upstream.unary(_METHODS["GetArtifact"], get, authorization=header)
        except grpc.aio.AioRpcError as error:
            return _failure(error)
        headers = _headers(artifact, download="download" in request.query_params)
        if _matches(request.headers.get("if-none-match"), headers["etag"]):
            return Response(status_code=304, headers={k: v for k, v in headers.items() if k != "content-type"})
        header_range = request.headers.get("range")
        if request.headers.get("if-range", headers["etag"]) != headers["etag"]:
            header_range = None
        try:
            part = parse_range(header_range, artifact.size)
        except ValueError:
            return Response(status_code=416, headers={"content-range": f"bytes */{artifact.size}"})
        whole = part or ByteRange(0, artifact.size)
        headers["content-length"] = str(whole.stop - whole.start)
        if part is not None:
            headers["content-range"] = f"bytes {part.start}-{part.stop - 1}/{artifact.size}"
        status = 206 if part else 200
        if request.method == "HEAD" or whole.start == whole.stop:
            return Response(status_code=status, headers=headers)
        try:
            chunks = await _open(upstream, key, whole, header)
        except grpc.aio.AioRpcError as error:
            return _failure(error)
        except ConnectError as error:
            return JSONResponse({"message": error.message}, 503)
        return StreamingResponse(chunks, status_code=status, headers=headers)

    return [Route("/artifacts/{key:path}", read, methods=["GET", "HEAD"])]


async def _open(upstream: Upstream, key: str, part: ByteRange, header: str | None) -> AsyncIterator[bytes]:
    """Open the stream and wait for its first chunk, so that an error can still become a status."""
    stack = AsyncExitStack()
    request = pb.ReadArtifactRequest(key=key, offset=part.start)
    stream = upstream.stream(_METHODS["ReadArtifact"], request, authorization=header)
    try:
        messages = aiter(await stack.enter_async_context(stream))
        first: Any = await anext(messages, None)
    except BaseException:
        await stack.aclose()
        raise

    async def chunks() -> AsyncIterator[bytes]:
        left = part.stop - part.start
        async with stack:
            message = first
            while message is not None and left > 0:
                data = message.data[:left]
                left -= len(data)
                yield data
                message = await anext(messages, None) if left else None

    return chunks()


def _headers(artifact: pb.Artifact, *, download: bool) -> dict[str, str]:
    kind = artifact.content_type.partition(";")[0]
    displayable = kind in _DISPLAYABLE
    text = kind.startswith("text/") or kind in _TEXT
    seconds, nanos = artifact.update_time.seconds, artifact.update_time.nanos
    headers = {
        "accept-ranges": "bytes",
        # Keys are written once or replaced whole, so size and time identify the content.
        "etag": f'"{artifact.size:x}-{seconds:x}-{nanos:x}"',
        "last-modified": formatdate(seconds, usegmt=True),
        "cache-control": "private, no-cache",
        "content-type": kind if displayable else "text/plain; charset=utf-8" if text else "application/octet-stream",
        "content-security-policy": "sandbox; default-src 'none'; media-src 'self'; img-src 'self'",
    }
    if download or not (displayable or text):
        name = "".join(c if c.isalnum() or c in "._-" else "_" for c in artifact.key.rpartition("/")[2]) or "artifact"
        headers["content-disposition"] = f'attachment; filename="{name}"'
    return headers


def _matches(header: str | None, etag: str) -> bool:
    return header is not None and (
        header.strip() == "*" or etag in (e.strip().removeprefix("W/") for e in header.split(","))
    )


def _failure(error: grpc.aio.AioRpcError) -> Response:
    code = _HTTP.get(error.code(), 502)
    return JSONResponse(
        {"code": error.code().name.lower(), "message": error.details()}, code, {"cache-control": "no-store"}
    )
