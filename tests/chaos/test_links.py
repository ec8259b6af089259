"""Links and the clock: what each disturbance does to real HTTP and gRPC connections, and to a process."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
import pytest
import urllib3

from tests.chaos.clock import Clock
from tests.chaos.links import Link, Loop
from tests.servers.ports import free_ports

METHOD = "/test.Test/Call"


class Http:
    """A server that counts requests."""

    def __init__(self) -> None:
        counted = self.bodies = []  # type: ignore[var-annotated]

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_PUT(self) -> None:
                counted.append(self.rfile.read(int(self.headers["content-length"])))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def loop() -> Iterator[Loop]:
    running = Loop()
    yield running
    running.close()


def put(link: Link, body: bytes) -> int:
    return urllib3.request("PUT", f"http://127.0.0.1:{link.port}/", body=body, retries=False, timeout=5).status


def test_a_store_is_slow_busy_absent_and_there_again(loop: Loop) -> None:
    http = Http()
    link = Link(loop, "store", port=free_ports(1)[0], target=http.server.server_address[1])
    assert put(link, b"1") == 200
    link.treat("busy")
    assert put(link, b"2") == 503 and put(link, bytes(500_000)) == 503
    link.treat("absent")
    with pytest.raises(urllib3.exceptions.HTTPError):
        put(link, b"3")
    link.treat("slow", delay=0.3)
    begun = time.monotonic()
    assert put(link, b"4") == 200 and time.monotonic() - begun >= 0.6
    link.treat("open")
    assert put(link, b"5") == 200
    assert http.bodies == [b"1", b"4", b"5"]
    link.close()
    http.server.shutdown()


class Calls(grpc.GenericRpcHandler):
    """Records the requests of a method, and answers with them."""

    def __init__(self) -> None:
        self.received: list[bytes] = []

    def service(self, details: Any) -> Any:
        def call(request: bytes, context: Any) -> bytes:
            self.received.append(request)
            return request

        return grpc.unary_unary_rpc_method_handler(call)


def test_grpc_calls_are_cut_and_duplicated(loop: Loop) -> None:
    calls = Calls()
    server = grpc.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((calls,))
    link = Link(loop, "grpc", port=free_ports(1)[0], target=server.add_insecure_port("127.0.0.1:0"))
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{link.port}") as channel:
        call = channel.unary_unary(METHOD)
        assert call(b"first", timeout=10) == b"first" and call(b"second", timeout=10) == b"second"
        assert link.duplicate() == 1
        deadline = time.monotonic() + 20
        while len(calls.received) < 4 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert sorted(calls.received) == [b"first", b"first", b"second", b"second"]
        assert link.cut() >= 1
        try:
            answer = call(b"third", timeout=10, wait_for_ready=True)
        except grpc.RpcError as error:  # sent into the connection before the client noticed that it is cut
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
            answer = call(b"third", timeout=10, wait_for_ready=True)
        assert answer == b"third"
    server.stop(0).wait()
    link.close()


def test_a_set_clock_leaves_sleeps_and_the_monotonic_clock_alone(tmp_path: Path) -> None:
    clock = Clock.find(tmp_path)
    if clock is None:
        pytest.skip("libfaketime or a C compiler is not installed")
    clock.jump(7200)
    code = "import time; a = time.monotonic(); time.sleep(0.2); print(time.time(), time.monotonic() - a)"
    before = time.time()
    answer = subprocess.run(
        [sys.executable, "-c", code], env=clock.environment(), capture_output=True, text=True, check=True
    )
    now, slept = map(float, answer.stdout.split())
    assert 7190 < now - before < 7260 and 0.2 <= slept < 10
