"""The console and the API behind nginx, which is configured from the Ingresses that the chart renders."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
import pytest_asyncio
import trustme
from dressage.api.internal.v1 import run_service_pb2_grpc
from dressage.api.v1 import environment_service_pb2, environment_service_pb2_grpc
from dressage.serving.channels import connect
from dressage_console import wiring
from dressage_console.forwarding import Limits, Upstream
from dressage_console.http_server import HttpServer, bind

from tests.integration.orchestrator.stack import Stack
from tests.servers import console_behind_proxy as checks
from tests.servers import proxy
from tests.unit.chart.rendering import component, of_kind

TOKEN, VIEWER = "a-token-of-40-characters-0123456789abcdef", "a-token-of-a-viewer-0123456789abcdef0123"
CONSOLE, API = "console.example.org", "dressage.example.org"
NGINX = proxy.program()

pytestmark = pytest.mark.skipif(NGINX is None, reason="nginx is not available: tools/system-packages nginx")


def page(folder: Path) -> Path:
    """A small page in the form that the build has."""
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text('<html><script type="module" src="/assets/index-ab12.js"></script></html>')
    for suffix in ("", ".gz"):
        body = b"export const a = 1;\n" * 1000
        (folder / "assets" / f"index-ab12.js{suffix}").write_bytes(gzip.compress(body) if suffix else body)
    return folder


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class Front:
    site: checks.Site
    port: int


@pytest_asyncio.fixture
async def front(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Front]:
    monkeypatch.setenv("DRESSAGE_TRAINER_GO", str(tmp_path / "go"))
    principals = tmp_path / "principals.toml"
    digest = hashlib.sha256(VIEWER.encode()).hexdigest()
    principals.write_text(f'[[principals]]\nname = "vera"\nrole = "viewer"\ntoken_sha256 = "{digest}"\n')
    stack = Stack(tmp_path)
    stack.options |= {"auth_token": TOKEN, "principals_file": principals}
    authority = trustme.CA()
    for name in ("r-dressage-tls-console", "r-dressage-tls", "own"):
        leaf = authority.issue_cert(*((CONSOLE, API) if name != "own" else ("localhost",)))
        (tmp_path / name).mkdir()
        leaf.cert_chain_pems[0].write_to_path(tmp_path / name / "tls.crt")
        leaf.private_key_pem.write_to_path(tmp_path / name / "tls.key")
    await stack.neighbours.start()
    await stack.start()
    channel = connect(stack.service.address)
    upstream = Upstream(channel, Limits(call_seconds=30, stream_seconds=120, max_streams=8))
    app = wiring.application(upstream, hosts=(CONSOLE,), static=page(tmp_path / "page"), secure_cookies=True)
    own = (tmp_path / "own" / "tls.crt", tmp_path / "own" / "tls.key")
    server = HttpServer(app, bind("127.0.0.1:0"), grace_seconds=1, tls=own)
    backends = {"r-dressage-console": await server.start(), "r-dressage-orchestrator": stack.service.address}
    port = free_port()
    # The console with TLS of its own; the orchestrator of this test has none.
    ingresses = [entry for entry in of_kind("ingress-tls", "Ingress") if component(entry) == "console"]
    for entry in (json.loads(json.dumps(e)) for e in of_kind("ingress-tls", "Ingress")):
        if component(entry) == "orchestrator":
            entry["metadata"]["annotations"][f"{proxy.ANNOTATION}backend-protocol"] = "GRPC"
            ingresses.append(entry)
    text = proxy.configuration(
        ingresses,
        listen=f"127.0.0.1:{port}",
        scratch=tmp_path,
        upstream=lambda service, port: backends[service],
        certificate=lambda secret: tmp_path / secret,
    )
    (tmp_path / "nginx.conf").write_text(text)
    assert NGINX
    options = ("-e", "stderr", "-c", str(tmp_path / "nginx.conf"), "-g", "daemon off;")
    process = await asyncio.create_subprocess_exec(NGINX, *options)
    try:
        await listening(port)
        pem = authority.cert_pem.bytes().decode()
        yield Front(checks.Site(f"127.0.0.1:{port}", CONSOLE, pem, TOKEN, VIEWER), port)
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), 20)
        upstream.cancel_streams()
        await server.stop()
        await channel.close()
        await stack.stop()
        await stack.neighbours.stop()


async def listening(port: int) -> None:
    for _ in range(200):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.05)
        else:
            writer.close()
            return
    raise AssertionError("nginx does not listen")


@pytest.mark.asyncio
async def test_page_login_calls_streams_and_artifacts_come_through(front: Front) -> None:
    await asyncio.to_thread(checks.check_page, front.site)
    await asyncio.to_thread(checks.check_login, front.site)
    session = await asyncio.to_thread(checks.waiting_session, front.site)
    await asyncio.to_thread(checks.check_viewer, front.site, session)
    await asyncio.to_thread(checks.check_stream, front.site, session)
    await asyncio.to_thread(checks.check_artifact, front.site, session)


@pytest.mark.asyncio
async def test_grpc_comes_through_and_trainers_calls_do_not(front: Front) -> None:
    credentials = grpc.ssl_channel_credentials(front.site.authority.encode())
    names = [("grpc.ssl_target_name_override", API), ("grpc.default_authority", API)]
    metadata = (("authorization", f"Bearer {TOKEN}"),)
    async with grpc.aio.secure_channel(f"127.0.0.1:{front.port}", credentials, options=names) as channel:
        stub = environment_service_pb2_grpc.EnvironmentServiceStub(channel)
        request = environment_service_pb2.ListEnvironmentsRequest(page_size=1)
        answer = await stub.ListEnvironments(request, metadata=metadata, timeout=20)
        assert len(answer.environments) == 1
        work = run_service_pb2_grpc.RunServiceStub(channel).Work(metadata=metadata, timeout=20)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await work.read()
        # nginx's 404; where nginx ends the stream before gRPC has read the status, it is a removed stream.
        removed = "RST_STREAM" in (caught.value.details() or "")
        assert caught.value.code() == (grpc.StatusCode.INTERNAL if removed else grpc.StatusCode.UNIMPLEMENTED)
