"""uvicorn inside a process with other servers: it uses a given socket, and leaves signals to the process.

The kernel closes a connection whose client neither acknowledges nor reads for some minutes.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import uvicorn
from dressage.errors import FailedPrecondition, Unavailable
from starlette.types import ASGIApp

from dressage_console.connections import Config, ConnectionLimits

_START_SECONDS = 10.0
_IDLE_SECONDS = 75
_UNREAD_SECONDS = 300
_HEAD_BYTES = 32_768
"""Tokens of an identity provider are in cookies, one for each port."""


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the handlers of the process in place."""
        yield


def bind(address: str) -> socket.socket:
    """Return a socket that listens on host:port.

    :raises FailedPrecondition: if the address cannot be listened on.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, int(port)), family=family, backlog=256)
        # Accepted connections inherit these options. A browser that paused a video requests the rest anew.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNREAD_SECONDS * 1000)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return listening
    except OSError as error:
        cause = os.strerror(error.errno) if error.errno else str(error)
        raise FailedPrecondition(f"the console cannot listen on {address}: {cause}", reason="ADDRESS_IN_USE") from error


class HttpServer:
    """Serves an ASGI application.

    :param listening: from `bind`.
    :param grace_seconds: seconds that running requests may take to end when the server stops.
    :param tls: certificate chain and private key (PEM), read again when they are replaced; None: no TLS.
    :param limits: of connections.
    """

    def __init__(
        self,
        app: ASGIApp,
        listening: socket.socket,
        *,
        grace_seconds: float,
        tls: tuple[Path, Path] | None = None,
        limits: ConnectionLimits = ConnectionLimits(),  # noqa: B008
    ) -> None:
        config = Config(
            app,
            limits,
            ssl_certfile=tls[0] if tls else None,
            ssl_keyfile=tls[1] if tls else None,
            log_config=None,
            log_level="error",  # a line for each malformed request would fill the log
            access_log=False,
            server_header=False,
            lifespan="off",
            ws="none",
            forwarded_allow_ips=list(limits.proxies),
            h11_max_incomplete_event_size=_HEAD_BYTES,
            timeout_keep_alive=_IDLE_SECONDS,
            timeout_graceful_shutdown=max(1, round(grace_seconds)),
        )
        if tls is not None:
            config.load()
            assert config.ssl is not None
            _follow(config.ssl, *tls)
        self._server = _Server(config)
        self._socket = listening
        self._task: asyncio.Task[None] | None = None
        self._grace = grace_seconds

    async def start(self) -> str:
        """Start serving and return host:port.

        :raises Unavailable: if it does not start in time.
        """
        self._task = asyncio.create_task(self._server.serve(sockets=[self._socket]))
        deadline = asyncio.get_running_loop().time() + _START_SECONDS
        while not self._server.started:
            if self._task.done() or asyncio.get_running_loop().time() > deadline:
                await self.stop()
                raise Unavailable("the console's HTTP server did not start; see the log")
            await asyncio.sleep(0.005)
        host, port = self._socket.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    async def stop(self) -> None:
        """Stop listening, let running requests end, and close."""
        if self._task is None:
            return
        self._server.should_exit = True
        done, _ = await asyncio.wait({self._task}, timeout=self._grace + 5)
        if not done:
            self._server.force_exit = True
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        self._socket.close()


def _follow(context: ssl.SSLContext, cert: Path, key: Path) -> None:
    """Let a server's context serve the present content of the files."""

    def stamp() -> tuple[int, int]:
        return cert.stat().st_mtime_ns, key.stat().st_mtime_ns

    served = [stamp()]

    def renew(connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        """Called before each handshake."""
        with suppress(
            OSError
        ):  # while a file is being replaced, the present certificate is kept; ssl's errors are OSErrors
            now = stamp()
            if now != served[0]:
                fresh = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                fresh.load_cert_chain(cert, key)
                context.load_cert_chain(cert, key)
                connection.context = fresh
                served[0] = now

    context.sni_callback = renew
