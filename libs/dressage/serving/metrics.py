"""Prometheus metrics of gRPC servers (``grpc_server_*``) and their HTTP endpoint."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from dressage.errors import InvalidArgument

_BUCKETS = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0, 300.0, 1800.0)


@dataclass(frozen=True)
class GrpcMetrics:
    """The metric families of a gRPC server."""

    started: Counter
    handled: Counter
    seconds: Histogram
    in_flight: Gauge


_FAMILIES: dict[int, GrpcMetrics] = {}


def grpc_metrics(registry: CollectorRegistry = REGISTRY) -> GrpcMetrics:
    """Return the families of ``registry``; they are created once for all servers of a process."""
    key = id(registry)
    if key not in _FAMILIES:
        labels = ["grpc_service", "grpc_method", "grpc_type"]
        _FAMILIES[key] = GrpcMetrics(
            started=Counter("grpc_server_started", "Calls begun.", labels, registry=registry),
            handled=Counter("grpc_server_handled", "Calls ended, by code.", [*labels, "grpc_code"], registry=registry),
            seconds=Histogram(
                "grpc_server_handling_seconds",
                "Seconds from begin to end of a call.",
                labels,
                buckets=_BUCKETS,
                registry=registry,
            ),
            in_flight=Gauge("grpc_server_in_flight", "Calls under way.", labels, registry=registry),
        )
        info = Gauge("dressage_build_info", "Version of this process; always 1.", ["version"], registry=registry)
        info.labels(package_version()).set(1)
    return _FAMILIES[key]


_SANDBOX_KILLS: dict[int, Counter] = {}


def sandbox_kills(registry: CollectorRegistry = REGISTRY) -> Counter:
    """Return the counter of generated code that the sandbox ended, by reason; services of one process share it."""
    key = id(registry)
    if key not in _SANDBOX_KILLS:
        kills = Counter(
            "dressage_sandbox_kills", "Generated code that the sandbox had to end.", ["reason"], registry=registry
        )
        for reason in ("memory", "sandbox", "timeout"):
            kills.labels(reason)
        _SANDBOX_KILLS[key] = kills
    return _SANDBOX_KILLS[key]


def package_version() -> str:
    """Return the installed version of Dressage; ``unknown`` if it is not installed as a package."""
    try:
        return version("dressage")
    except PackageNotFoundError:
        return "unknown"


def expose(address: str | None, registry: CollectorRegistry = REGISTRY) -> Any:
    """Start the HTTP endpoint for Prometheus on ``address`` (host:port); does nothing for None.

    :raises InvalidArgument: if the address is not host:port.
    """
    if not address:
        return None
    host, _, port = address.rpartition(":")
    if not port.isdigit():
        raise InvalidArgument(field="metrics_address", value=address, expected="host:port, for example 127.0.0.1:9100")
    return start_http_server(int(port), addr=host or "0.0.0.0", registry=registry)
