"""The console's HTTP side before a real orchestrator: Connect by its own client and by plain HTTP, artifacts, login."""

from __future__ import annotations

import asyncio
import hashlib
import json
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from connectrpc.client import ConnectClient
from connectrpc.code import Code
from connectrpc.compat import google_protobuf_binary_codec, google_protobuf_json_codec
from connectrpc.errors import ConnectError
from connectrpc.method import IdempotencyLevel, MethodInfo, StreamType
from dressage.api.v1 import environment_service_pb2 as environments
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb
from dressage.serving.channels import connect
from dressage_console import wiring
from dressage_console.forwarding import SERVICES, Limits, Upstream
from dressage_console.http_server import HttpServer, bind
from dressage_console.settings import Settings
from google.protobuf.message_factory import GetMessageClass
from google.rpc import error_details_pb2

from tests.fakes.specs import reward_session
from tests.integration.orchestrator.stack import Stack

TOKEN = "a-token-of-40-characters-0123456789abcdef"
VIDEO = bytes(range(256)) * 9000  # longer than a chunk of the stream, 1 MiB
KEY = "sessions/s1/iterations/1/videos/100_median.mp4"


@dataclass
class Front:
    """The console, the orchestrator behind it, and an HTTP client with the token."""

    url: str
    upstream: Upstream
    stack: Stack
    http: httpx.AsyncClient

    def client(self, codec: Any = None) -> ConnectClient:
        return ConnectClient(self.url, codec=codec or google_protobuf_binary_codec())


def method(service: str, name: str) -> MethodInfo[Any, Any]:
    """A method as generated client code would describe it."""
    descriptor = SERVICES[service].methods_by_name[name]
    return MethodInfo(
        name=name,
        service_name=service,
        input=GetMessageClass(descriptor.input_type),
        output=GetMessageClass(descriptor.output_type),
        idempotency_level=IdempotencyLevel.UNKNOWN,
        stream_type=StreamType.SERVER_STREAM if descriptor.server_streaming else StreamType.UNARY,
    )


SESSIONS = "dressage.v1.SessionService"
HEADERS = {"authorization": f"Bearer {TOKEN}"}


@asynccontextmanager
async def console(stack: Stack, *, max_streams: int = 8, static: Path | None = None) -> AsyncIterator[Front]:
    channel = connect(stack.service.address)
    upstream = Upstream(channel, Limits(call_seconds=30, stream_seconds=120, max_streams=max_streams))
    app = wiring.application(upstream, hosts=("127.0.0.1",), **({"static": static} if static else {}))
    server = HttpServer(app, bind("127.0.0.1:0"), grace_seconds=1)
    url = f"http://{await server.start()}"
    try:
        async with httpx.AsyncClient(base_url=url, headers=HEADERS, timeout=30) as http:
            yield Front(url, upstream, stack, http)
    finally:
        upstream.cancel_streams()
        await server.stop()
        await channel.close()


@pytest_asyncio.fixture
async def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stack]:
    monkeypatch.setenv("DRESSAGE_TRAINER_GO", str(tmp_path / "go"))
    stack = Stack(tmp_path)
    stack.options["auth_token"] = TOKEN
    await stack.neighbours.start()
    try:
        await stack.start()
        yield stack
    finally:
        await stack.stop()
        await stack.neighbours.stop()


@pytest_asyncio.fixture
async def front(stack: Stack) -> AsyncIterator[Front]:
    async with console(stack) as front:
        yield front


async def waiting_session(front: Front) -> v1.Session:
    """A session that waits for approval, so that its stream is idle."""
    spec = reward_session(
        intent="run",
        environment="environments/Hopper-v5",
        seeds=1,
        steps_per_member=100,
        approve_before_evaluation=True,
    )
    request = pb.CreateSessionRequest(spec=spec)
    return await front.client().execute_unary(
        request=request, method=method(SESSIONS, "CreateSession"), headers=HEADERS, timeout_ms=30_000
    )


async def until(condition: Any, seconds: float = 10) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


async def drain(stream: AsyncIterator[Any]) -> None:
    async for _ in stream:
        pass


@pytest.mark.parametrize("codec", [google_protobuf_binary_codec(), google_protobuf_json_codec()], ids=["proto", "json"])
async def test_calls_and_streams_reach_the_orchestrator(front: Front, codec: Any):
    session = await waiting_session(front)
    client = front.client(codec)
    got = await client.execute_unary(
        request=pb.GetSessionRequest(name=session.name), method=method(SESSIONS, "GetSession"), headers=HEADERS
    )
    assert got.spec.intent == "run" and got.name == session.name
    kinds = []
    stream = client.execute_server_stream(
        request=pb.WatchSessionRequest(name=session.name), method=method(SESSIONS, "WatchSession"), headers=HEADERS
    )
    async with asyncio.timeout(30):
        async for answer in stream:
            kinds.append(answer.event.WhichOneof("payload"))
            if kinds[-1] == "approval_requested":
                break
    assert kinds[0] == "state_changed" and "agent_replied" in kinds


async def test_errors_arrive_with_their_details(front: Front):
    request = pb.CreateSessionRequest(spec=v1.SessionSpec(intent=" \n ", environment="environments/Hopper-v5"))
    with pytest.raises(ConnectError) as caught:
        await front.client().execute_unary(request=request, method=method(SESSIONS, "CreateSession"), headers=HEADERS)
    assert caught.value.code is Code.INVALID_ARGUMENT
    details = {detail.type_name: detail.message_bytes for detail in caught.value.details}
    bad = error_details_pb2.BadRequest.FromString(details["google.rpc.BadRequest"])
    assert bad.field_violations[0].field == "spec.intent"
    assert error_details_pb2.ErrorInfo.FromString(details["google.rpc.ErrorInfo"]).reason


async def test_json_of_a_person_is_checked(front: Front):
    path = f"/{SESSIONS}/ListSessions"
    good = await front.http.post(path, json={"pageSize": 5})
    assert good.status_code == 200 and good.json() == {}
    unknown = await front.http.post(path, json={"pageSise": 5})
    assert unknown.status_code == 400 and "pageSise" in unknown.json()["message"]
    # A form of another site's page can be sent without a preflight; it is no call.
    assert (await front.http.post(path, data={"a": "b"})).status_code == 415
    assert (await front.http.get(path)).status_code in (404, 405, 415)
    assert (await front.http.post(f"/{SESSIONS}/Nothing", json={})).status_code == 404


async def test_the_token_of_the_caller_decides(front: Front):
    path = f"/{SESSIONS}/ListSessions"
    async with httpx.AsyncClient(base_url=front.url) as stranger:
        refused = await stranger.post(path, json={})
        assert refused.status_code == 401 and refused.json()["code"] == "unauthenticated"
        assert (await stranger.get(f"/artifacts/{KEY}")).status_code == 401
        assert (await stranger.get("/usage")).status_code == 401
        assert (await front.http.get("/usage")).json()["configured"] is False
        wrong = await stranger.post(path, json={}, headers={"authorization": "Bearer wrong"})
        assert wrong.status_code == 401
        assert (await stranger.get("/login")).json() == {"authenticated": False, "oidc": None}


async def test_a_browser_logs_in_by_a_cookie_that_scripts_cannot_read(front: Front):
    front.stack.store.put(KEY, VIDEO)
    async with httpx.AsyncClient(base_url=front.url) as browser:
        assert (await browser.post("/login", json={"token": "wrong"})).status_code == 401
        assert (await browser.post("/login", data={"token": TOKEN})).status_code == 400
        answer = await browser.post("/login", json={"token": TOKEN})
        assert answer.status_code == 204
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie and "samesite=strict" in cookie and "secure" not in cookie
        assert front.url.rpartition(":")[2] in cookie.partition("=")[0], "cookies ignore ports, so the name has it"
        assert (await browser.get("/login")).json() == {"authenticated": True, "oidc": None}
        assert (await browser.post(f"/{SESSIONS}/ListSessions", json={})).status_code == 200
        assert (await browser.head(f"/artifacts/{KEY}")).status_code == 200
        await browser.delete("/login")
        assert (await browser.post(f"/{SESSIONS}/ListSessions", json={})).status_code == 401


async def test_pages_of_other_sites_are_refused(front: Front):
    path = f"/{SESSIONS}/ListSessions"
    assert (await front.http.post(path, json={}, headers={"origin": "http://localhost:3000"})).status_code == 403
    assert (await front.http.post(path, json={}, headers={"origin": "null"})).status_code == 403
    assert (await front.http.post(path, json={}, headers={"origin": front.url})).status_code == 200
    assert (await front.http.post(path, json={}, headers={"host": "rebound.example"})).status_code == 403
    page = await front.http.get("/sessions/anything")
    policy = page.headers["content-security-policy"]
    assert page.status_code == 200 and "default-src 'none'" in policy and "unsafe" not in policy
    assert (await front.http.get("/healthz")).headers["x-content-type-options"] == "nosniff"


async def test_a_client_that_leaves_cancels_the_upstream_stream(front: Front):
    session = await waiting_session(front)
    body = json.dumps({"name": session.name}).encode()
    async with httpx.AsyncClient(base_url=front.url, timeout=30) as browser:
        request = browser.build_request(
            "POST",
            f"/{SESSIONS}/WatchSession",
            content=struct.pack(">BI", 0, len(body)) + body,
            headers={"content-type": "application/connect+json", **HEADERS},
        )
        response = await browser.send(request, stream=True)
        received = b""
        async for chunk in response.aiter_raw():
            received += chunk
            if b"approvalRequested" in received:
                break
        assert front.upstream.open_streams == 1
        await response.aclose()
    await until(lambda: front.upstream.open_streams == 0)


async def test_a_stream_resumes_after_its_token(front: Front):
    session = await waiting_session(front)
    watch = method(SESSIONS, "WatchSession")
    tokens: list[str] = []
    for expected in (1, 2):
        request = pb.WatchSessionRequest(name=session.name, resume_token=tokens[-1] if tokens else "")
        stream = front.client().execute_server_stream(request=request, method=watch, headers=HEADERS)
        async with asyncio.timeout(20):
            async for answer in stream:
                assert answer.event.sequence == expected
                tokens.append(answer.resume_token)
                break


async def test_streams_have_a_bound_and_end_when_the_console_stops(stack: Stack):
    async with console(stack, max_streams=1) as front:
        session = await waiting_session(front)
        request, watch = pb.WatchSessionRequest(name=session.name), method(SESSIONS, "WatchSession")
        first = aiter(front.client().execute_server_stream(request=request, method=watch, headers=HEADERS))
        await anext(first)
        with pytest.raises(ConnectError) as refused:
            await anext(aiter(front.client().execute_server_stream(request=request, method=watch, headers=HEADERS)))
        assert refused.value.code is Code.RESOURCE_EXHAUSTED
        front.upstream.cancel_streams()
        with pytest.raises(ConnectError) as ended:
            await asyncio.wait_for(drain(first), 10)
        assert ended.value.code is Code.UNAVAILABLE, "a watcher reconnects"


async def test_the_callers_deadline_is_kept(front: Front):
    session = await waiting_session(front)
    watch = method(SESSIONS, "WatchSession")
    stream = front.client().execute_server_stream(
        request=pb.WatchSessionRequest(name=session.name), method=watch, headers=HEADERS, timeout_ms=700
    )
    with pytest.raises(ConnectError) as ended:
        await asyncio.wait_for(drain(stream), 10)
    assert ended.value.code is Code.DEADLINE_EXCEEDED
    await until(lambda: front.upstream.open_streams == 0)


async def test_videos_seek_by_ranges(front: Front):
    front.stack.store.put(KEY, VIDEO)
    whole = await front.http.get(f"/artifacts/{KEY}")
    assert whole.status_code == 200 and whole.headers["content-type"] == "video/mp4"
    assert hashlib.sha256(whole.content).digest() == hashlib.sha256(VIDEO).digest()
    size = len(VIDEO)
    for header, start, stop in [
        ("bytes=0-0", 0, 1),
        ("bytes=1500000-1500099", 1_500_000, 1_500_100),
        (f"bytes={size - 3}-", size - 3, size),
        ("bytes=-7", size - 7, size),
        ("bytes=5-99999999999", 5, size),
    ]:
        part = await front.http.get(f"/artifacts/{KEY}", headers={"range": header})
        assert part.status_code == 206 and part.content == VIDEO[start:stop], header
        assert part.headers["content-range"] == f"bytes {start}-{stop - 1}/{size}"
    beyond = await front.http.get(f"/artifacts/{KEY}", headers={"range": f"bytes={size}-"})
    assert beyond.status_code == 416 and beyond.headers["content-range"] == f"bytes */{size}"
    etag = whole.headers["etag"]
    assert (await front.http.get(f"/artifacts/{KEY}", headers={"if-none-match": etag})).status_code == 304
    changed = await front.http.get(f"/artifacts/{KEY}", headers={"if-range": '"other"', "range": "bytes=0-0"})
    assert changed.status_code == 200 and len(changed.content) == size
    await until(lambda: front.upstream.open_streams == 0)


async def test_generated_text_is_never_run_by_a_browser(front: Front):
    for name, kind, download in [
        ("a.html", "text/plain; charset=utf-8", False),
        ("a.svg", "application/octet-stream", True),
        ("a.npz", "application/octet-stream", True),
        ("reward.py", "text/plain; charset=utf-8", False),
    ]:
        key = f"sessions/s1/iterations/1/{name}"
        front.stack.store.put(key, b"<script>alert(1)</script>")
        answer = await front.http.get(f"/artifacts/{key}")
        assert answer.headers["content-type"] == kind and answer.headers["content-security-policy"].startswith(
            "sandbox"
        )
        assert ("content-disposition" in answer.headers) is download
    for bad in ("sessions/s1/none", "other/x", "sessions/%2e%2e/%2e%2e/etc/passwd"):
        assert (await front.http.get(f"/artifacts/{bad}")).status_code in (400, 404)


async def test_files_of_the_page_are_compressed_and_kept(stack: Stack, tmp_path: Path):
    static = tmp_path / "static"
    (static / "assets").mkdir(parents=True)
    (static / "index.html").write_text('<meta name="nonce" content="__DRESSAGE_NONCE__">')
    (static / "assets" / "app-1a2b.js").write_text("plain")
    (static / "assets" / "app-1a2b.js.br").write_bytes(b"packed")
    (static / "assets" / "mujoco-worker-3c4d.js").write_text("worker")
    (static / "assets" / "mujoco-5e6f.wasm").write_bytes(b"wasm")
    async with console(stack, static=static) as front:
        first, second = await front.http.get("/"), await front.http.get("/sessions/s1")
        assert first.text != second.text, "each page has a nonce of its own"
        nonce = first.text.split('content="')[1].split('"')[0]
        assert f"'nonce-{nonce}'" in first.headers["content-security-policy"]
        packed = await front.http.get("/assets/app-1a2b.js", headers={"accept-encoding": "identity"})
        assert packed.text == "plain" and "immutable" in packed.headers["cache-control"]
        assert "connect-src 'self'" in packed.headers["content-security-policy"], "a worker obeys its script's policy"
        worker = await front.http.get("/assets/mujoco-worker-3c4d.js")
        assert "script-src 'self' 'wasm-unsafe-eval';" in worker.headers["content-security-policy"]
        module = await front.http.get("/assets/mujoco-5e6f.wasm")
        assert module.headers["content-type"] == "application/wasm"
        for other in (first, packed, module):
            assert "unsafe" not in other.headers["content-security-policy"]
        async with front.http.stream("GET", "/assets/app-1a2b.js", headers={"accept-encoding": "br, gzip"}) as answer:
            assert answer.headers["content-encoding"] == "br"
            assert b"".join([chunk async for chunk in answer.aiter_raw()]) == b"packed"
        assert (await front.http.get("/assets/none.js")).status_code == 404


async def test_the_console_starts_alone_from_its_settings(stack: Stack):
    provider = {"oidc_issuer": "https://id.example.org/realms/lab", "oidc_client_id": "dressage"}
    service = await wiring.start(Settings(orchestrator_address=stack.service.address, grace_seconds=1, **provider))
    try:
        async with httpx.AsyncClient(base_url=f"http://{service.address}", headers=HEADERS) as http:
            answer = await http.post("/dressage.v1.EnvironmentService/ListEnvironments", json={"pageSize": 1})
            assert environments.Environment(name=answer.json()["environments"][0]["name"]).name
            oidc = (await http.get("/login")).json()["oidc"]
            assert oidc == {"issuer": "https://id.example.org/realms/lab", "clientId": "dressage"}
            page = await http.get("/login/callback?code=1")
            assert "connect-src 'self' https://id.example.org;" in page.headers["content-security-policy"]
    finally:
        await service.stop()
    await stack.stop()
    async with console_without(stack) as http:
        assert (await http.get("/login")).status_code == 502


@asynccontextmanager
async def console_without(stack: Stack) -> AsyncIterator[httpx.AsyncClient]:
    """The console of an orchestrator that is not there."""
    service = await wiring.start(Settings(orchestrator_address="127.0.0.1:1", grace_seconds=1))
    try:
        async with httpx.AsyncClient(base_url=f"http://{service.address}", timeout=30) as http:
            yield http
    finally:
        await service.stop()
