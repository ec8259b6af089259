"""What every response and request of the console obeys, against other sites in the same browser.

A page of another site could send requests to a server on loopback, with the browser's cookies. Two checks refuse them:
the Host header must be a known name (against DNS rebinding), and an Origin header, if there is one, must name this server.
Malformed ones are refused first, so that nothing behind parses them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
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
        refusal = self._refusal(Headers(scope=scope))
        app = PlainTextResponse(refusal[1], refusal[0]) if refusal else self._app

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("content-security-policy", _DEFAULT_POLICY)
            await send(message)

        try:
            await app(scope, receive, send_with_headers)
        except ClientDisconnect:  # nobody waits for an answer
            return

    def _refusal(self, headers: Headers) -> tuple[int, str] | None:
        """Status and text of the answer to a request that is not served."""
        host, origin = headers.get("host", ""), headers.get("origin")
        parts = _HOST.fullmatch(host)
        if host and parts is None:
            return 400, "host: malformed; expected a name or an address, and a port"
        if self._hosts and (parts is None or parts["name"].strip("[]").lower() not in self._hosts):
            return 403, "host: not a name of this server; see DRESSAGE_CONSOLE_ALLOWED_HOSTS"
        if origin is None:
            return None
        site = _ORIGIN.fullmatch(origin)
        if site is None and origin != "null":
            return 400, "origin: malformed; expected SCHEME://HOST"
        if site is None or site["host"].lower() != host.lower():
            return 403, "origin: requests of other sites are refused"
        return None


_HOST = re.compile(r"(?P<name>[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{1,5})?", re.ASCII)
_ORIGIN = re.compile(rf"[A-Za-z][A-Za-z0-9+.-]{{0,30}}://(?P<host>{_HOST.pattern})", re.ASCII)
