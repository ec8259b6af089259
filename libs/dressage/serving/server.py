"""A ``grpc.aio`` server with health, reflection, TLS, the interceptor and a drain on SIGTERM.

A server that other machines reach must recognise its callers: without tokens it refuses to start. With TLS it also listens in
clear on a loopback port of its own, for processes of this machine, which need no certificate to trust.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import grpc
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from dressage.addresses import is_private
from dressage.errors import DressageError, FailedPrecondition
from dressage.serving import logs
from dressage.serving.access import Authenticate, Gate, by_tokens
from dressage.serving.interceptor import ServiceInterceptor
from dressage.serving.metrics import expose as expose_metrics
from dressage.serving.metrics import grpc_metrics
from dressage.serving.settings import ServingSettings, SettingsT, load

# When a server that was not shut down is garbage-collected, grpc logs the object itself at debug level. A handler that keeps
# the record then keeps a dangling pointer, and the process crashes.
logging.getLogger("grpc._cython.cygrpc").setLevel(logging.INFO)

MAX_MESSAGE_BYTES = 16 * 1024 * 1024

MAX_CONNECTIONS = 4_096
_MAX_DESCRIPTORS = 65_536

_OPTIONS = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # A port in use by another process must be an error; with SO_REUSEPORT both would share the calls.
    ("grpc.so_reuseport", 0),
    ("grpc.keepalive_permit_without_calls", 1),
    # On a busy machine, delayed keepalive pings arrive together; the server must not close the connection for that.
    ("grpc.http2.max_ping_strikes", 100),
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
    # Connections of callers that send nothing: during the handshake, and afterwards.
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_connection_idle_ms", 600_000),
    ("grpc.max_concurrent_streams", 2_000),
    # Headers: a bearer token has at most 8 KiB.
    ("grpc.max_metadata_size", 16 * 1024),
    ("grpc.absolute_max_metadata_size", 32 * 1024),
    # A peer that is stopped or unreachable keeps its TCP connection; only pings show that it does not answer. A busy peer
    # answers them, because its gRPC library does so outside of the interpreter.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 60_000),
    ("grpc.http2.ping_timeout_ms", 60_000),
    ("grpc.http2.max_pings_without_data", 0),
]


@dataclass(frozen=True)
class RunningService:
    """A started service: its address and how to stop it."""

    address: str
    stop: Callable[[], Awaitable[None]]
    local_address: str = ""
    """Address for processes of this machine, without TLS, if it differs."""


@dataclass(frozen=True)
class TlsFiles:
    """Certificate chain and private key of a server, in PEM files that may be replaced while it runs."""

    cert: Path
    key: Path

    def credentials(self) -> grpc.ServerCredentials:
        """Return credentials that follow the files.

        :raises FailedPrecondition: if a file cannot be read or is not PEM.
        """
        first = self._read()
        if not (first[1].startswith(b"-----BEGIN") and first[0].lstrip().startswith(b"-----BEGIN")):
            raise FailedPrecondition(f"{self.cert}, {self.key}: not PEM files", reason="BAD_CERTIFICATE")
        served = [first]

        def fetch() -> grpc.ServerCertificateConfiguration | None:
            """Called before each handshake; None keeps the present certificate."""
            try:
                now = self._read()
            except FailedPrecondition:  # while it is being replaced
                return None
            if now == served[0]:
                return None
            served[0] = now
            return grpc.ssl_server_certificate_configuration([now])

        return grpc.dynamic_ssl_server_credentials(grpc.ssl_server_certificate_configuration([first]), fetch)

    def _read(self) -> tuple[bytes, bytes]:
        """The key and the certificate chain."""
        try:
            return self.key.read_bytes(), self.cert.read_bytes()
        except OSError as error:
            raise FailedPrecondition(f"{error.filename}: {error.strerror}", reason="BAD_CERTIFICATE") from error


def connection_limit(most: int) -> int:
    """Return how many connections a server may have open: `most`, or what leaves descriptors for the rest of the process.

    Raises the process's limit of descriptors towards the hard limit first: its soft value is often 1024.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = _MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < highest:
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest, hard))
        soft = highest
    return most if soft == resource.RLIM_INFINITY else min(most, soft // 4)


class GrpcServer:
    """The gRPC server of a service.

    :param service_name: name in the log.
    :param address: host:port to listen on; port 0 chooses a free one.
    :param authenticate: recognises callers; None: no authentication, on loopback only.
    :param gate: decides what a caller may do; None: everything.
    :param exempt: full names of services with another authentication.
    :param tls: certificate and key; None: no TLS.
    :param health_address: host:port of health checks without TLS; None: none but on the address.
    :param grace_seconds: seconds that running calls may take to end when the server stops.
    :raises FailedPrecondition: if the address is not loopback and callers need no token.
    """

    def __init__(
        self,
        *,
        service_name: str,
        address: str,
        authenticate: Authenticate | None = None,
        gate: Gate | None = None,
        exempt: Sequence[str] = (),
        tls: TlsFiles | None = None,
        health_address: str | None = None,
        grace_seconds: float = 10.0,
    ) -> None:
        self._name = service_name
        self._address = address
        self._grace = grace_seconds
        self._services: list[str] = []
        self._health = health.aio.HealthServicer()
        # Here rather than in each service, so that none can forget it (decision 0054).
        if authenticate is None and not is_private(address):
            raise FailedPrecondition(
                f"{service_name} refuses to listen on {address} without credentials, because it is not loopback. "
                "Set the tokens of its callers (AUTH_TOKEN or PEER_TOKENS), or listen on 127.0.0.1.",
                reason="TOKEN_REQUIRED",
            )
        self._tls = tls
        self._health_address = health_address
        self._probes: grpc.aio.Server | None = None
        self.local_address = ""
        interceptor = ServiceInterceptor(
            metrics=grpc_metrics(), authenticate=authenticate, gate=gate, exempt=frozenset(exempt)
        )
        limit = ("grpc.max_allowed_incoming_connections", connection_limit(MAX_CONNECTIONS))
        self.server = grpc.aio.server(interceptors=[interceptor], options=[*_OPTIONS, limit])
        self._log = structlog.get_logger("dressage.serving").bind(service=service_name)

    @classmethod
    def from_settings(
        cls,
        service_name: str,
        settings: ServingSettings,
        *,
        authenticate: Authenticate | None = None,
        gate: Gate | None = None,
        exempt: Sequence[str] = (),
    ) -> Self:
        """Return a server as the settings describe it.

        :param authenticate: recognises callers; by default by the tokens of the settings.
        """
        tls = TlsFiles(settings.tls_cert, settings.tls_key) if settings.tls_cert and settings.tls_key else None
        return cls(
            service_name=service_name,
            address=settings.address,
            authenticate=authenticate or by_tokens(settings.callers()),
            gate=gate,
            exempt=exempt,
            tls=tls,
            health_address=settings.health_address,
            grace_seconds=settings.grace_seconds,
        )

    def add(self, add_to_server: Callable[[Any, Any], None], servicer: Any, full_name: str) -> None:
        """Add a servicer; ``full_name`` is the name of the proto service, for health and reflection."""
        add_to_server(servicer, self.server)
        self._services.append(full_name)

    async def start(self) -> str:
        """Start listening and return the bound host:port.

        :raises FailedPrecondition: if the address cannot be bound.
        """
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self.server)
        names = [*self._services, health.SERVICE_NAME, reflection.SERVICE_NAME]
        reflection.enable_server_reflection(names, self.server)
        host, _, _ = self._address.rpartition(":")
        try:
            port = await self._listen(self.server, self._address, self._tls)
        except FailedPrecondition:
            await self.server.start()  # only a started server can be stopped
            await self.server.stop(None)
            raise
        if self._tls is not None:  # trainers and commands of this machine need no certificate that names 127.0.0.1
            self.local_address = f"127.0.0.1:{await self._listen(self.server, '127.0.0.1:0', None)}"
        await self.server.start()
        if self._health_address:
            self._probes = grpc.aio.server(options=_OPTIONS)
            health_pb2_grpc.add_HealthServicer_to_server(self._health, self._probes)
            await self._listen(self._probes, self._health_address, None)
            await self._probes.start()
        for name in ["", *self._services]:
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        bound = f"{host or '127.0.0.1'}:{port}"
        self.local_address = self.local_address or bound
        self._log.info("listening", address=bound, tls=self._tls is not None)
        return bound

    @staticmethod
    async def _listen(server: grpc.aio.Server, address: str, tls: TlsFiles | None) -> int:
        """Add a port to a server and return its number."""
        try:
            if tls is None:
                return int(server.add_insecure_port(address))
            return int(server.add_secure_port(address, await asyncio.to_thread(tls.credentials)))
        except RuntimeError as error:
            raise FailedPrecondition(
                f"cannot listen on {address}: is another process using that port?", reason="ADDRESS_IN_USE"
            ) from error

    async def stop(self) -> None:
        """Set health checks to NOT_SERVING, wait up to the grace period for running calls, and stop."""
        await self._health.enter_graceful_shutdown()
        await self.server.stop(self._grace)
        if self._probes is not None:
            await self._probes.stop(None)
        self._log.info("stopped")


async def run_until_signal(*services: RunningService) -> None:
    """Wait for SIGTERM or SIGINT, then stop the services in the given order."""
    shutdown_requested = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, shutdown_requested.set)
    await shutdown_requested.wait()
    for service in services:
        await service.stop()


def main(kind: type[SettingsT], start: Callable[[SettingsT], Awaitable[RunningService]]) -> int:
    """Run a service alone: read the settings, start it and serve until SIGTERM; returns the exit status."""
    settings = load(kind)
    logs.configure(format=settings.log_format, level=settings.log_level)

    async def serve() -> None:
        expose_metrics(settings.metrics_address)
        await run_until_signal(await start(settings))

    try:
        asyncio.run(serve())
    except DressageError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return 1
    return 0
