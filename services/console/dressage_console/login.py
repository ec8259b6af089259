"""The login of browsers: the bearer token in a cookie that scripts cannot read.

A page sends the token once, from the fragment of its address or a form. The token is checked by a call of the
orchestrator and then kept in a cookie (HttpOnly, SameSite=Strict), because `<video>` and downloads send no header. Cookies
ignore ports, so the cookie's name contains the port: two servers of one machine do not log each other out.

A caller who sends wrong tokens may try again at a limited rate. The limit holds for an address, and for a network of IPv6.

With an identity provider the page gets the token there, by the authorization code flow with PKCE, and sends it in the same way.
"""

from __future__ import annotations

import ipaddress
import json
import math
import re
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Any

import grpc
from dressage.serving.rates import TokenBuckets
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from dressage_console.forwarding import Upstream

_MAX_TOKEN = 8_192
_SENDABLE = re.compile(rf"[ -~]{{1,{_MAX_TOKEN + 100}}}")
_ATTEMPTS_PER_SECOND = 0.5
_BURST_SECONDS = 20.0
"""Ten wrong tokens at once."""
_HTTP = {grpc.StatusCode.UNAUTHENTICATED: 401, grpc.StatusCode.PERMISSION_DENIED: 403}


@dataclass(frozen=True)
class Provider:
    """An identity provider (OpenID Connect), and the page's client id there."""

    issuer: str
    client_id: str

    @property
    def origin(self) -> str:
        """Scheme, host and port: the only other place that the page may connect to."""
        scheme, _, rest = self.issuer.partition("://")
        return f"{scheme}://{rest.partition('/')[0]}"


def cookie_name(host: str) -> str:
    """Name of the cookie for a value of the Host header."""
    port = host.rpartition(":")[2]
    return f"dressage-token-{port}" if port.isascii() and port.isdigit() else "dressage-token"


def authorization(headers: Any) -> str | None:
    """The value of the Authorization header to send on: the caller's own, or that of its cookie.

    :param headers: any mapping with `get`, case-insensitive.
    :returns: None also for a value that gRPC could not send.
    """
    value = headers.get("authorization") or _from_cookie(headers)
    return value if value and _SENDABLE.fullmatch(value) else None


def _from_cookie(headers: Any) -> str:
    try:
        cookie = SimpleCookie(headers.get("cookie") or "")
    except CookieError:
        return ""
    entry = cookie.get(cookie_name(headers.get("host") or ""))
    return f"Bearer {entry.value}" if entry is not None and entry.value else ""


def address_of(request: Request) -> str:
    """The caller's address, by which attempts are counted: a host has all addresses of an IPv6 network."""
    text = request.client.host if request.client else ""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return text
    return str(address) if address.version == 4 else str(ipaddress.ip_network((address, 64), strict=False))


def routes(upstream: Upstream, *, secure: bool = False, provider: Provider | None = None) -> list[Route]:
    """`/login`: GET whether calls are accepted and where people log in, POST a token, DELETE the cookie.

    :param provider: where people log in; None: with a token only.
    :param secure: browsers come by HTTPS, whatever this server sees: the cookie is for HTTPS only.
    """

    async def read(request: Request) -> Response:
        code = await probe(upstream, authorization(request.headers))
        oidc = {"issuer": provider.issuer, "clientId": provider.client_id} if provider else None
        body = {"authenticated": code == 200, "oidc": oidc}
        return JSONResponse(body, code if code == 502 else 200, _NO_STORE)

    attempts = TokenBuckets(burst_seconds=_BURST_SECONDS)

    async def log_in(request: Request) -> Response:
        token = await _token(request)
        if token is None:
            return JSONResponse({"message": 'expected {"token": "…"}'}, 400, _NO_STORE)
        # Taken before the token is known to be wrong, so that attempts at the same time count.
        address = address_of(request)
        wait = attempts.take(address, _ATTEMPTS_PER_SECOND)
        if wait > 0:
            message = {"message": f"Too many wrong tokens from {address}. Try again in {math.ceil(wait)} s."}
            return JSONResponse(message, 429, {**_NO_STORE, "retry-after": str(math.ceil(wait))})
        code = await probe(upstream, f"Bearer {token}")
        if code not in (401, 403):
            attempts.give_back(address, _ATTEMPTS_PER_SECOND)
        if code != 200:
            text = "The token is wrong." if code in (401, 403) else "The server does not answer."
            return JSONResponse({"message": text}, code, _NO_STORE)
        response = Response(status_code=204, headers=_NO_STORE)
        https = secure or request.url.scheme == "https"
        name = cookie_name(request.headers.get("host", ""))
        response.set_cookie(name, token, httponly=True, samesite="strict", secure=https, path="/")
        return response

    async def log_out(request: Request) -> Response:
        response = Response(status_code=204, headers=_NO_STORE)
        name = cookie_name(request.headers.get("host", ""))
        response.delete_cookie(name, httponly=True, samesite="strict", path="/")
        return response

    return [
        Route("/login", read, methods=["GET"]),
        Route("/login", log_in, methods=["POST"]),
        Route("/login", log_out, methods=["DELETE"]),
    ]


_NO_STORE = {"cache-control": "no-store"}


async def _token(request: Request) -> str | None:
    """The token of the body; None if the body has another form. Tokens are visible ASCII without separators of cookies."""
    # JSON only: browsers send another site's forms without asking first.
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        return None
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > 2 * _MAX_TOKEN:
            return None
    try:
        token = json.loads(body)["token"]
    except (ValueError, KeyError, TypeError):
        return None
    allowed = isinstance(token, str) and 0 < len(token) <= _MAX_TOKEN
    return token if allowed and all("!" <= c <= "~" and c not in '",;\\' for c in token) else None


async def probe(upstream: Upstream, header: str | None) -> int:
    """Call the orchestrator and return the HTTP status that its answer corresponds to: 200 if it accepts the caller."""
    try:
        await upstream.recognise(header)
    except grpc.aio.AioRpcError as error:
        return _HTTP.get(error.code(), 502)
    return 200
