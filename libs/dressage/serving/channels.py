"""Client channels: retry policy for UNAVAILABLE, keepalive, bearer token, message sizes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
from pydantic import SecretStr

from dressage.errors import FailedPrecondition
from dressage.serving.server import MAX_MESSAGE_BYTES

# AIP-194: only UNAVAILABLE is generally safe to retry; requests that create something have a request_id.
_SERVICE_CONFIG = json.dumps(
    {
        "methodConfig": [
            {
                "name": [{}],
                "retryPolicy": {
                    "maxAttempts": 5,
                    "initialBackoff": "0.1s",
                    "maxBackoff": "2s",
                    "backoffMultiplier": 2,
                    "retryableStatusCodes": ["UNAVAILABLE"],
                },
            }
        ],
        "loadBalancingConfig": [{"round_robin": {}}],
    }
)

OPTIONS: list[tuple[str, Any]] = [
    ("grpc.service_config", _SERVICE_CONFIG),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.max_reconnect_backoff_ms", 3_000),
]


class _Token(
    grpc.aio.UnaryUnaryClientInterceptor,
    grpc.aio.UnaryStreamClientInterceptor,
    grpc.aio.StreamUnaryClientInterceptor,
    grpc.aio.StreamStreamClientInterceptor,
):
    """Adds the bearer token to every call."""

    def __init__(self, token: str) -> None:
        self._header = ("authorization", f"Bearer {token}")

    def _with_token(self, details: Any) -> Any:
        metadata = grpc.aio.Metadata(*(details.metadata or ()), self._header)
        return details._replace(metadata=metadata)

    async def intercept_unary_unary(self, continuation: Callable[..., Any], details: Any, request: Any) -> Any:
        return await continuation(self._with_token(details), request)

    async def intercept_unary_stream(self, continuation: Callable[..., Any], details: Any, request: Any) -> Any:
        return await continuation(self._with_token(details), request)

    async def intercept_stream_unary(self, continuation: Callable[..., Any], details: Any, requests: Any) -> Any:
        return await continuation(self._with_token(details), requests)

    async def intercept_stream_stream(self, continuation: Callable[..., Any], details: Any, requests: Any) -> Any:
        return await continuation(self._with_token(details), requests)


def read_authorities(file: Path | None) -> str:
    """Return the PEM certificates of a file for `connect`; empty without a file.

    :raises FailedPrecondition: if it cannot be read or has none.
    """
    if file is None:
        return ""
    try:
        text = file.read_text("ascii")
    except (OSError, UnicodeError) as error:
        raise FailedPrecondition(f"{file}: cannot be read: {error}", reason="BAD_CERTIFICATE") from error
    if "-----BEGIN CERTIFICATE-----" not in text:
        raise FailedPrecondition(f"{file}: has no PEM certificate", reason="BAD_CERTIFICATE")
    return text


def connect(address: str, *, token: SecretStr | str | None = None, tls_ca: str = "") -> grpc.aio.Channel:
    """Return a channel to ``address`` (host:port, or any gRPC target); it connects on the first call.

    :param tls_ca: PEM certificates that verify the server; empty: no TLS.
    """
    kinds = _Token(token.get_secret_value() if isinstance(token, SecretStr) else token) if token else None
    # grpc.aio sorts interceptors by their first matching kind, so each kind needs its own object.
    interceptors = [_only(kinds, kind) for kind in _KINDS] if kinds else None
    if tls_ca:
        credentials = grpc.ssl_channel_credentials(tls_ca.encode())
        return grpc.aio.secure_channel(address, credentials, options=OPTIONS, interceptors=interceptors)
    return grpc.aio.insecure_channel(address, options=OPTIONS, interceptors=interceptors)


_KINDS = {
    grpc.aio.UnaryUnaryClientInterceptor: "intercept_unary_unary",
    grpc.aio.UnaryStreamClientInterceptor: "intercept_unary_stream",
    grpc.aio.StreamUnaryClientInterceptor: "intercept_stream_unary",
    grpc.aio.StreamStreamClientInterceptor: "intercept_stream_stream",
}


def _only(token: _Token, kind: type) -> Any:
    """Return an interceptor of exactly one kind with the method of ``token``."""
    method = _KINDS[kind]
    return type(f"Token{kind.__name__}", (kind,), {method: staticmethod(getattr(token, method))})()
