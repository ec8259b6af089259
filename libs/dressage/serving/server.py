"""A ``grpc.aio`` server with health, reflection, the interceptor and a drain on SIGTERM."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from pydantic import SecretStr

from dressage.errors import FailedPrecondition
from dressage.serving.interceptor import ServiceInterceptor
from dressage.serving.metrics import grpc_metrics

# When a server that was not shut down is garbage-collected, grpc logs the object itself at debug level. A handler that keeps
# the record then keeps a dangling pointer, and the process crashes.
logging.getLogger("grpc._cython.cygrpc").setLevel(logging.INFO)

MAX_MESSAGE_BYTES = 16 * 1024 * 1024

_OPTIONS = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # A port in use by another process must be an error; with SO_REUSEPORT both would share the calls.
    ("grpc.so_reuseport", 0),
    ("grpc.keepalive_permit_without_calls", 1),
    # On a busy machine, delayed keepalive pings arrive together; the server must not close the connection for that.
    ("grpc.http2.max_ping_strikes", 0),
]


@dataclass(frozen=True)
class RunningService:
    """A started service: its address and how to stop it."""

    address: str
    stop: Callable[[], Awaitable[None]]


class GrpcServer:
    """The gRPC server of a service.

    :param service_name: name in the log.
    :param address: host:port to listen on; port 0 chooses a free one.
    :param token: bearer token that callers must send; None: no authentication.
    :param exempt: full names of services with another authentication.
    :param grace_seconds: seconds that running calls may take to end when the server stops.
    """

    def __init__(
        self,
        *,
        service_name: str,
        address: str,
        token: SecretStr | None = None,
        exempt: Sequence[str] = (),
        grace_seconds: float = 10.0,
    ) -> None:
        self._name = service_name
        self._address = address
        self._grace = grace_seconds
        self._services: list[str] = []
        self._health = health.aio.HealthServicer()
        secret = token.get_secret_value() if token else None
        interceptor = ServiceInterceptor(metrics=grpc_metrics(), token=secret, exempt=frozenset(exempt))
        self.server = grpc.aio.server(interceptors=[interceptor], options=_OPTIONS)
        self._log = structlog.get_logger("dressage.serving").bind(service=service_name)

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
            port = self.server.add_insecure_port(self._address)
        except RuntimeError as error:
            await self.server.start()  # only a started server can be stopped
            await self.server.stop(None)
            raise FailedPrecondition(
                f"cannot listen on {self._address}: is another process using that port?", reason="ADDRESS_IN_USE"
            ) from error
        await self.server.start()
        for name in ["", *self._services]:
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        bound = f"{host or '127.0.0.1'}:{port}"
        self._log.info("listening", address=bound)
        return bound

    async def stop(self) -> None:
        """Set health checks to NOT_SERVING, wait up to the grace period for running calls, and stop."""
        await self._health.enter_graceful_shutdown()
        await self.server.stop(self._grace)
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
