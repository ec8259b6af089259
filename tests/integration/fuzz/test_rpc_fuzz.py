"""Every RPC of every service answers whatever it is sent: with a result or an error of the caller's, and in time.

The methods are those of the descriptors, so a new RPC is included. ``--fuzz-requests N`` sends more requests.
"""

from __future__ import annotations

import asyncio
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import dressage.api.internal.v1
import dressage.api.v1
import grpc
import pytest
from dressage.api.v1 import environment_service_pb2 as environments_pb
from dressage.api.v1 import environment_service_pb2_grpc as environments_grpc
from dressage.serving.channels import connect
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from structlog.testing import capture_logs

from tests.integration.fuzz.conftest import Services
from tests.integration.fuzz.messages import Messages
from tests.integration.fuzz.valid import valid_requests

_SECONDS = 20.0
_STREAM_SECONDS = 1.0
"""Streams that follow something are left after this time."""
_CONCURRENT = 8
_FAULTS = frozenset({grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.DATA_LOSS})
_CLIENT_FAILED = "Internal error from Core"
"""Details of a status that grpc.aio's client makes where the server ends a call while the client still sends."""
_FOLLOWING = frozenset({"WatchSession", "WatchBenchmark", "Work", "Converse"})


def methods() -> Iterator[MethodDescriptor]:
    for package in (dressage.api.v1, dressage.api.internal.v1):
        for module in sorted(entry.name for entry in pkgutil.iter_modules(package.__path__)):
            if module.endswith("_pb2"):
                for service in import_module(f"{package.__name__}.{module}").DESCRIPTOR.services_by_name.values():
                    yield from service.methods


METHODS = {f"{method.containing_service.name}.{method.name}": method for method in methods()}


def test_the_methods_are_those_of_all_services() -> None:
    services = {name.partition(".")[0] for name in METHODS}
    assert {"SessionService", "ArtifactService", "MaintenanceService", "RunService", "JudgeService"} <= services
    assert len(services) >= 10 and len(METHODS) >= 35


async def send(
    channel: grpc.aio.Channel, method: MethodDescriptor, payloads: list[bytes]
) -> tuple[grpc.StatusCode, str]:
    """Send requests as bytes; status and details, OK for a stream that is left while it runs."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    following = method.name in _FOLLOWING
    seconds = _STREAM_SECONDS if following else _SECONDS
    sending = _all(payloads) if method.client_streaming else payloads[0]
    kind = ("stream" if method.client_streaming else "unary", "stream" if method.server_streaming else "unary")
    call = getattr(channel, "_".join(kind))(path)(sending, timeout=seconds)
    try:
        if method.server_streaming:
            async for _ in call:
                pass
        else:
            await call
    except grpc.aio.AioRpcError as error:
        if following and error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return grpc.StatusCode.OK, ""
        if error.details() == _CLIENT_FAILED:  # a fault of the server is in its log as well
            return grpc.StatusCode.CANCELLED, ""
        return error.code(), error.details() or ""
    return grpc.StatusCode.OK, ""


async def _all(payloads: list[bytes]) -> Any:
    for payload in payloads:
        yield payload


def payloads_of(method: MethodDescriptor, seed: int, services: Services) -> list[bytes]:
    """The requests of one call: random messages, changed valid ones, and every fifth bytes that are no such message."""
    messages = Messages(f"{method.full_name}/{seed}", services.pool)
    count = 3 if method.client_streaming else 1
    valid = valid_requests().get(method.input_type.full_name)
    if valid and seed % 3:
        requests = [messages.changed(valid[seed % len(valid)])]
    else:
        requests = [messages.message(method.input_type) for _ in range(count)]
    if method.containing_service.name == "RunService" and seed % 2:
        requests[0] = _hello(requests[0], services)
    return [messages.garbage(entry) if seed % 5 == 4 else entry.SerializeToString() for entry in requests]


def _hello(message: Any, services: Services) -> Message:
    """The first message of a trainer with a valid token, so that what follows is looked at."""
    message.hello.run, message.hello.attempt = services.pool[3], 1
    message.hello.token = services.run_token()
    return message  # type: ignore[no-any-return]


async def test_no_request_is_a_fault_of_the_server(services: Services, requests_per_method: int) -> None:
    slots, faults = asyncio.Semaphore(_CONCURRENT), []
    with capture_logs() as log:
        async with connect(services.addresses[""]) as public:
            channels = {name: connect(address) if name else public for name, address in services.addresses.items()}

            async def one(name: str, method: MethodDescriptor, seed: int) -> None:
                async with slots:
                    channel = channels.get(method.containing_service.name, public)
                    sent = payloads_of(method, seed, services)
                    code, details = await send(channel, method, sent)
                    if code in _FAULTS or code is grpc.StatusCode.DEADLINE_EXCEEDED:
                        faults.append(f"{name} seed {seed}: {code.name} {details[:200]!r} for {sent[0][:200]!r}")

            # Seeds first, so that requests of all methods run at the same time.
            work = [one(*entry, seed) for seed in range(requests_per_method) for entry in METHODS.items()]
            await asyncio.gather(*work)
            stub: Any = environments_grpc.EnvironmentServiceStub(public)
            known = await stub.GetEnvironment(
                environments_pb.GetEnvironmentRequest(name="environments/CartPole-v1"), timeout=10
            )
            for channel in channels.values():
                await channel.close()
    assert known.name == "environments/CartPole-v1"
    failed = [entry for entry in log if entry["event"] == "call failed"]
    reasons = sorted({f"{entry['service']}.{entry['method']}: {entry.get('exc_info')!r}" for entry in failed})
    assert faults == [] and reasons == [], "\n".join([*reasons, *faults[:20]])


@pytest.mark.parametrize("token", ["NQ", "bnVsbA", "MWU0MDA", "e30", "W10", "WzEsMl0", "WzEsMiwzXQ", "\x00", "é"])
async def test_a_page_token_of_any_kind_is_refused(services: Services, token: str) -> None:
    from dressage.api.v1 import session_service_pb2 as pb
    from dressage.api.v1 import session_service_pb2_grpc as rpc

    async with connect(services.addresses[""]) as channel:
        stub: Any = rpc.SessionServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.ListSessions(pb.ListSessionsRequest(page_token=token), timeout=10)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
