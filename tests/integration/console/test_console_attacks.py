"""`dressage serve` and a stranger on its port: what the stranger sends costs little, is answered shortly, and logs no token."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import httpx
import pytest

from tests.e2e.serving import Server
from tests.waiting import wait_until

PATHS = (
    "/dressage.v1.SessionService/ListSessions",
    "/dressage.v1.SessionService/WatchSession",
    "/login",
    "/artifacts/sessions/s1/reward.py",
    "/usage",
    "/",
)


@dataclass
class Site:
    """A served data folder, its console's port, and the token."""

    server: Server
    port: int
    token: str

    @property
    def http(self) -> httpx.Client:
        return httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=30)

    def send(self, data: bytes, *, wait: bool = True) -> bytes:
        """What the console answers to raw bytes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as connection:
            connection.sendall(data)
            answer = b""
            with suppress(ConnectionResetError):
                while wait and (chunk := connection.recv(65536)):
                    answer += chunk
            return answer

    def status(self, method: str, path: str, headers: bytes, body: bytes = b"", host: bytes | None = None) -> int:
        name = host if host is not None else b"127.0.0.1:%d" % self.port
        head = b"%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n" % (method.encode(), path.encode(), name)
        length = b"Content-Length: %d\r\n" % len(body) if body else b""
        answer = self.send(head + length + headers + b"\r\n" + body)
        return int(answer.split(b" ", 2)[1])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Server(tmp_path_factory.mktemp("attacked")) as server:
        token = json.loads((server.data_dir / "server.json").read_text())["token"]
        line = wait_until(lambda: re.search(r"console: http://127\.0\.0\.1:(\d+)", server.log()))
        yield Site(server, int(line[1]), token)


def half_login(site: Site) -> bytes:
    body = b'{"token": "'
    return (
        b"POST /login HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\n"
        b"Content-Length: 1000\r\n\r\n%s" % (site.port, body)
    )


def test_half_sent_logins_delay_no_other_caller_and_log_little(site: Site):
    before = len(site.server.log())
    with site.server.client() as client:
        client.list_environments()
        for _ in range(20):
            site.send(half_login(site), wait=False)
        begun = time.monotonic()
        client.list_environments()
        assert time.monotonic() - begun < 2
    site.status("GET", "/healthz", b"")
    assert len(site.server.log()) - before < 2_000, "callers that leave are no news"


@pytest.mark.parametrize(
    "name", [b"localhost:\xb2", b"localhost:x", b"a b", b"[::1", b"127.0.0.1:999999", b"a,b", b"\xff"]
)
def test_a_malformed_host_is_refused_before_anything_reads_it(site: Site, name: bytes):
    body = json.dumps({"token": site.token}).encode()
    headers = b"Content-Type: application/json\r\n"
    assert site.status("POST", "/login", headers, body, host=name) == 400
    assert_log_is_clean(site)


@pytest.mark.parametrize(
    ("origin", "status"),
    [(b"http://[", 400), (b"http://a\xb2", 400), (b"//", 400), (b"x" * 5000, 400), (b"null", 403), (b"http://a", 403)],
)
def test_a_malformed_origin_is_refused_too(site: Site, origin: bytes, status: int):
    assert site.status("GET", "/healthz", b"Origin: " + origin + b"\r\n") == status
    assert_log_is_clean(site)


@pytest.mark.parametrize("path", PATHS)
def test_no_header_of_a_stranger_is_an_error_of_the_server(site: Site, path: str):
    bearer = b"Bearer " + site.token.encode()
    values = (
        b"\xff\xfe",
        b"Bearer \xb2",
        bearer + b"\xb2",
        b"a\tb",
        b"x" * 9000,
        b'a="\\012"',
        b"=;=;,",
        b"-1",
        b"1e99",
    )
    name = b"dressage-token-%d" % site.port
    headers = [
        (b"Authorization", values),
        (b"Cookie", (*values, name + b'="' + site.token.encode() + b'\\012"', name + b"=\xff", b"a" * 15000)),
        (b"Range", (*values, b"bytes=\xb2-", b"bytes=" + b"9" * 4000 + b"-")),
        (b"Content-Type", (*values, b"application/grpc", b"application/grpc+proto", b"application/connect+x")),
        (b"Connect-Timeout-Ms", values),
        (b"Content-Encoding", (*values, b"gzip", b"br")),
        (b"Connect-Content-Encoding", values),
        (b"Accept-Encoding", values),
        (b"If-None-Match", values),
        (b"X-Forwarded-For", (*values, b"\xb2, 1.2.3.4")),
        (b"X-Forwarded-Proto", values),
        (b"Upgrade", (b"websocket\r\nConnection: upgrade", b"h2c")),
        (b"Expect", values),
        (b"Transfer-Encoding", (b"gzip", b"chunked, chunked")),
    ]
    for method in ("GET", "POST"):
        for header, candidates in headers:
            for value in candidates:
                status = site.status(method, path, header + b": " + value + b"\r\n")
                assert status < 500 or status == 501, (method, header, value, status)
    for query in ("?message=%ff&encoding=%ff&base64=1", "?encoding=json&message=%7b&compression=x", "?download=%00"):
        assert site.status("GET", path + query, b"Authorization: " + bearer + b"\r\n") < 500
    assert_log_is_clean(site)


def test_a_stranger_does_not_get_a_message_decoded(site: Site):
    body = b"[" * 2_000_000
    begun = time.monotonic()
    assert site.status("POST", PATHS[0], b"Content-Type: application/json\r\n", body) == 401
    assert time.monotonic() - begun < 2
    with site.http as http:
        many = b'{"spec":{"criteria":[' + b"{}," * 120_000 + b"{}]}}"
        headers = {"authorization": f"Bearer {site.token}", "content-type": "application/json"}
        refused = http.post("/dressage.v1.SessionService/CreateSession", content=many, headers=headers)
        assert refused.status_code == 429 and "100000 values" in refused.json()["message"]


def test_wrong_tokens_are_limited_and_no_token_is_logged(site: Site):
    with site.http as http:
        statuses = [http.post("/login", json={"token": "wrong"}).status_code for _ in range(14)]
        assert statuses[:10] == [401] * 10 and 429 in statuses[10:]
        limited = http.post("/login", json={"token": site.token}, headers={"x-forwarded-for": "1.2.3.4"})
        assert limited.status_code == 429 and int(limited.headers["retry-after"]) >= 1, "a header is not believed"
        wait_until(lambda: http.post("/login", json={"token": site.token}).status_code == 204, seconds=20, every=0.5)
    assert_log_is_clean(site)


def assert_log_is_clean(site: Site) -> None:
    log = site.server.log()
    assert site.token not in log and "Traceback" not in log and "locals" not in log


def test_a_server_under_attack_stops_on_sigterm(site: Site):
    """The last test of the module: it stops the server."""
    held = [socket.create_connection(("127.0.0.1", site.port)) for _ in range(100)]
    for connection in held[:50]:
        connection.sendall(half_login(site))
    for connection in held[50:]:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: ")
    begun = time.monotonic()
    assert site.server.stop() == 0
    assert time.monotonic() - begun < 15
    for connection in held:
        connection.close()
