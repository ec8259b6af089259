"""What every response and request of the console obeys, against other sites in the same browser.

A page of another site could send requests to a server on loopback, with the browser's cookies. Two checks refuse them:
the Host header must be a known name (against DNS rebinding), and an Origin header, if there is one, must name this server.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")

_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}
_DEFAULT_POLICY = "default-src 'none'; frame-ancestors 'none'"


class Protection:
    """ASGI middleware: checks Host and Origin, and adds security headers.

    :param hosts: accepted names without ports; empty: any.
    """

    def __init__(self, app: ASGIApp, hosts: Sequence[str] = ()) -> None:
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        problem = self._problem(Headers(scope=scope))
        app = PlainTextResponse(problem, 403) if problem else self._app

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("content-security-policy", _DEFAULT_POLICY)
            await send(message)

        await app(scope, receive, send_with_headers)

    def _problem(self, headers: Headers) -> str | None:
        host = headers.get("host", "")
        name = urlsplit(f"//{host}").hostname if _is_host(host) else None
        if self._hosts and (name is None or name.lower() not in self._hosts):
            return "host: not a name of this server; see DRESSAGE_CONSOLE_ALLOWED_HOSTS"
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            return "origin: requests of other sites are refused"
        return None


def _is_host(host: str) -> bool:
    return bool(host) and not any(c in host for c in "/\\@?# ")
