"""Connections of the console: how many there may be, and how long a client may let them wait.

uvicorn bounds the size of a request's head, the time between requests and the number of requests; it waits for ever for the
rest of a request, and at its limit it refuses everybody. Here a request has to arrive in time. At the limit, of one
address or of all, the connection goes first that waits for its client: one that is idle, sends its request or does not
read the answer. Connections whose request is being answered stay, so clients that stall displace each other only.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import h11
import structlog
import uvicorn
from dressage.serving.server import connection_limit
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

_LOG_SECONDS = 60.0
_TOO_MANY = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\nconnection: close\r\nretry-after: 5\r\n"
    b"content-length: 21\r\n\r\nToo many connections."
)
_TOO_SLOW = (
    b"HTTP/1.1 408 Request Timeout\r\ncontent-type: text/plain\r\nconnection: close\r\n"
    b"content-length: 35\r\n\r\nThe request did not arrive in time."
)


@dataclass(frozen=True)
class ConnectionLimits:
    """Bounds of connections."""

    total: int = 1_000
    per_address: int = 128
    """Connections of one address; 0: no limit."""
    head_seconds: float = 10.0
    """Time in which the head of a request has to arrive."""
    body_seconds: float = 60.0
    """The same of its body."""
    proxies: Sequence[str] = ()
    """Addresses or networks of proxies, which name their callers and have no limit for one address."""

    def is_proxy(self, address: str) -> bool:
        """Whether an address is one of the proxies."""
        try:
            host = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(host in ipaddress.ip_network(network) for network in self.proxies)


@dataclass
class Connections:
    """The open connections, in the order of their arrival."""

    limits: ConnectionLimits
    total: int = field(init=False)
    _all: dict[Connection, None] = field(default_factory=dict)
    _by_address: dict[str, dict[Connection, None]] = field(default_factory=dict)
    _next_entry: float = 0.0

    def __post_init__(self) -> None:
        self.total = connection_limit(self.limits.total)

    def add(self, connection: Connection, address: str, now: float) -> bool:
        """Add a connection; another one that waits for its client may be closed for it.

        :returns: whether there is a place.
        """
        own = self._by_address.get(address, {})
        most = 0 if self.limits.is_proxy(address) else self.limits.per_address
        place = (not most or len(own) < most or self._displace(own, address, now)) and (
            len(self._all) < self.total or self._displace(self._all, address, now)
        )
        if place:
            self._all[connection] = None
            self._by_address.setdefault(address, {})[connection] = None
        return place

    def remove(self, connection: Connection, address: str) -> None:
        """Remove a connection; nothing happens if it is not there."""
        self._all.pop(connection, None)
        own = self._by_address.get(address)
        if own is not None:
            own.pop(connection, None)
            if not own:
                del self._by_address[address]

    def _displace(self, connections: Iterable[Connection], address: str, now: float) -> bool:
        """Close the first connection that waits for its client; returns whether there was one."""
        if now >= self._next_entry:
            self._next_entry = now + _LOG_SECONDS
            structlog.get_logger("dressage.console").warning(
                "too many connections", address=address, open=len(self._all), limits=str(self.limits)
            )
        victim = next((connection for connection in connections if connection.waits_for_client), None)
        if victim is None:
            return False
        victim.drop()
        return True


class Connection(H11Protocol):
    """A connection whose requests have to arrive in time."""

    config: Config

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, object],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._table = self.config.connections
        self._address = ""
        self._stage = ""
        """The part of a request that has to arrive in time: head or body; empty: none."""
        self._deadline: asyncio.TimerHandle | None = None

    @property
    def waits_for_client(self) -> bool:
        """Whether nothing happens before the client sends or reads."""
        return self._stage != "" or self.cycle is None or self.cycle.response_complete or self.flow.write_paused

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._address = self.client[0] if self.client else ""
        if self._table.add(self, self._address, self.loop.time()):
            self._expect()
        else:
            transport.write(_TOO_MANY)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._await_part("")
        self._table.remove(self, self._address)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        self._expect()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._expect()

    def shutdown(self) -> None:
        if self._stage:
            self.drop()
        else:
            super().shutdown()

    def drop(self) -> None:
        """Close without waiting for the client."""
        self._table.remove(self, self._address)
        self.transport.abort()

    def _expect(self) -> None:
        """Set the deadline of the part of a request that has to arrive now."""
        state = self.conn.their_state
        if self.transport.is_closing():
            self._await_part("")
        elif state is h11.SEND_BODY:
            self._await_part("body")
        elif state is h11.IDLE and (self.cycle is None or self.conn.trailing_data[0]):
            self._await_part("head")
        else:  # the request is there, or none has begun and the time between requests is limited
            self._await_part("")

    def _await_part(self, stage: str) -> None:
        if stage == self._stage:
            return
        if self._deadline is not None:
            self._deadline.cancel()
        limits = self._table.limits
        self._stage, self._deadline = stage, None
        if stage:
            seconds = limits.head_seconds if stage == "head" else limits.body_seconds
            self._deadline = self.loop.call_later(seconds, self._end)

    def _end(self) -> None:
        """The request did not arrive in time."""
        if self._stage == "head" and self.conn.our_state is h11.IDLE and not self.transport.is_closing():
            self.transport.write(_TOO_SLOW)
            self.transport.close()
        else:
            self.transport.abort()


class Config(uvicorn.Config):
    """uvicorn's settings, with limits of connections."""

    def __init__(self, app: ASGIApp, limits: ConnectionLimits, **options: object) -> None:
        self.connections = Connections(limits)
        super().__init__(app, http=Connection, **options)  # type: ignore[arg-type]
