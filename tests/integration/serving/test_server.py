"""The bootstrap on a real server: health, reflection, validation, auth, errors, metrics, drain."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
from dressage import errors
from dressage.api.v1 import environment_service_pb2 as pb
from dressage.api.v1 import environment_service_pb2_grpc as pb_grpc
from dressage.rpc_errors import from_rpc
from dressage.serving import interceptor
from dressage.serving import server as server_module
from dressage.serving.access import by_tokens
from dressage.serving.channels import connect
from dressage.serving.server import GrpcServer
from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client import REGISTRY
from pydantic import SecretStr

SERVICE = "dressage.v1.EnvironmentService"
GRPCURL = Path(sys.executable).parent / "grpcurl"


class Environments(pb_grpc.EnvironmentServiceServicer):
    """Answers one name, and fails in two ways for two others."""

    async def GetEnvironment(self, request, context):
        if request.name.endswith("missing"):
            raise errors.NotFound("no such environment", reason="ENVIRONMENT_UNKNOWN", metadata={"known": "A, B"})
        if request.name.endswith("broken"):
            raise RuntimeError("secret detail")
        if request.name.endswith("slow"):
            await asyncio.sleep(0.3)
        return pb.Environment(name=request.name)


async def _started(token: str | None = None) -> tuple[GrpcServer, str]:
    known = by_tokens({"client": SecretStr(token)} if token else {})
    server = GrpcServer(service_name="test", address="127.0.0.1:0", authenticate=known)
    server.add(pb_grpc.add_EnvironmentServiceServicer_to_server, Environments(), SERVICE)
    return server, await server.start()


async def _failure(address: str, name: str, token: str | None = None) -> errors.DressageError:
    async with connect(address, token=token) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await pb_grpc.EnvironmentServiceStub(channel).GetEnvironment(pb.GetEnvironmentRequest(name=name), timeout=5)
    return from_rpc(caught.value)


async def test_errors_keep_kind_reason_and_metadata_over_the_wire():
    server, address = await _started()
    missing = await _failure(address, "environments/missing")
    assert isinstance(missing, errors.NotFound)
    assert (missing.reason, missing.metadata) == ("ENVIRONMENT_UNKNOWN", {"known": "A, B"})
    broken = await _failure(address, "environments/broken")
    assert isinstance(broken, errors.Internal) and "secret detail" not in broken.message
    invalid = await _failure(address, "nonsense")
    assert isinstance(invalid, errors.InvalidArgument)
    assert invalid.field == "name" and "nonsense" in invalid.message
    await server.stop()


async def test_token_is_asked_for_but_not_by_health():
    server, address = await _started("open sesame")
    refused = await _failure(address, "environments/x")
    assert isinstance(refused, errors.Unauthenticated)
    assert isinstance(await _failure(address, "environments/x", "wrong"), errors.Unauthenticated)
    async with connect(address, token="open sesame") as channel:
        reply = await pb_grpc.EnvironmentServiceStub(channel).GetEnvironment(
            pb.GetEnvironmentRequest(name="environments/x"), timeout=5
        )
        assert reply.name == "environments/x"
    async with connect(address) as channel:
        health = await health_pb2_grpc.HealthStub(channel).Check(
            health_pb2.HealthCheckRequest(service=SERVICE), timeout=5
        )
        assert health.status == health_pb2.HealthCheckResponse.SERVING
    await server.stop()


async def test_calls_under_way_end_before_the_server_does():
    server, address = await _started()
    async with connect(address) as channel:
        call = pb_grpc.EnvironmentServiceStub(channel).GetEnvironment(
            pb.GetEnvironmentRequest(name="environments/slow"), timeout=5
        )
        pending = asyncio.ensure_future(_value(call))
        await asyncio.sleep(0.1)
        await server.stop()
        assert (await pending).name == "environments/slow"


async def test_a_caller_without_a_token_is_refused_before_its_message(monkeypatch: pytest.MonkeyPatch):
    parsed = []
    monkeypatch.setattr(
        pb.GetEnvironmentRequest, "FromString", lambda data: parsed.append(data) or pb.GetEnvironmentRequest()
    )
    server, address = await _started("open sesame")

    async def nothing():
        await asyncio.sleep(30)
        yield b""

    async with grpc.aio.insecure_channel(address) as channel:
        method = f"/{SERVICE}/GetEnvironment"
        for call in (
            channel.stream_unary(method)(nothing(), timeout=5),
            channel.unary_unary(method)(b"\xff" * 1000, timeout=5),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert not parsed
    await server.stop()


async def test_streams_that_need_no_token_are_limited(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(interceptor, "_MAX_OPEN_STREAMS", 3)
    server, address = await _started("open sesame")
    async with grpc.aio.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        held = [stub.Watch(health_pb2.HealthCheckRequest(), timeout=30) for _ in range(3)]
        for stream in held:
            await anext(aiter(stream))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await anext(aiter(stub.Watch(health_pb2.HealthCheckRequest(), timeout=5)))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (await stub.Check(health_pb2.HealthCheckRequest(), timeout=5)).status, "probes are answered"
        for stream in held:
            stream.cancel()
    await server.stop()


async def test_connections_are_limited_and_silent_ones_end(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server_module, "MAX_CONNECTIONS", 5)
    handshake = ("grpc.server_handshake_timeout_ms", 4000)
    options = [option for option in server_module._OPTIONS if option[0] != handshake[0]]
    monkeypatch.setattr(server_module, "_OPTIONS", [*options, handshake])
    server, address = await _started("open sesame")
    host, _, port = address.rpartition(":")
    silent = [await asyncio.open_connection(host, int(port)) for _ in range(12)]

    async def end(reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(ConnectionError):
            while await reader.read(4096):
                pass

    ends = [asyncio.create_task(end(reader)) for reader, _ in silent]
    async with asyncio.timeout(20):
        while sum(task.done() for task in ends) < 7:
            await asyncio.sleep(0.01)
        assert not all(task.done() for task in ends), "five are within the limit, until the handshake's time is over"
        await asyncio.wait(ends)
    assert isinstance(await _failure(address, "environments/x", "wrong"), errors.Unauthenticated)
    for _, writer in silent:
        writer.close()
    await server.stop()


async def test_long_headers_are_refused_and_the_server_answers_on():
    server, address = await _started("open sesame")
    assert isinstance(await _failure(address, "environments/x", "a" * 8_000), errors.Unauthenticated)
    async with connect(address, token="b" * 100_000) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await pb_grpc.EnvironmentServiceStub(channel).GetEnvironment(pb.GetEnvironmentRequest(), timeout=5)
        assert caught.value.code() is not grpc.StatusCode.UNAUTHENTICATED
    assert isinstance(await _failure(address, "environments/x", "wrong"), errors.Unauthenticated)
    await server.stop()


async def _value(call):
    return await call


async def test_grpcurl_lists_and_calls():
    server, address = await _started()
    listed = await asyncio.to_thread(
        subprocess.run, [GRPCURL, "-plaintext", address, "list"], capture_output=True, text=True, timeout=20, check=True
    )
    assert SERVICE in listed.stdout.split()
    called = await asyncio.to_thread(
        subprocess.run,
        [GRPCURL, "-plaintext", "-d", '{"name": "environments/x"}', address, f"{SERVICE}/GetEnvironment"],
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    assert '"environments/x"' in called.stdout
    await server.stop()


async def test_a_taken_port_is_refused():
    server, address = await _started()
    second = GrpcServer(service_name="second", address=address)
    with pytest.raises(errors.FailedPrecondition):
        await second.start()
    await server.stop()


async def test_calls_are_counted_by_code():
    server, address = await _started()
    labels = {"grpc_service": SERVICE, "grpc_method": "GetEnvironment", "grpc_type": "unary", "grpc_code": "NOT_FOUND"}
    before = REGISTRY.get_sample_value("grpc_server_handled_total", labels) or 0
    await _failure(address, "environments/missing")
    assert REGISTRY.get_sample_value("grpc_server_handled_total", labels) == before + 1
    await server.stop()
