"""The S3 store's own matters: settings, certificates, refusals that name the remedy, repeats, presigned addresses."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import minio.time
import pytest
from dressage.artifacts import Grant, download, open_store, transfer, upload
from dressage.artifacts.opening import s3_options
from dressage.artifacts.s3 import S3Store
from dressage.artifacts.s3_client import FileProvider, StoreClock
from dressage.artifacts.s3_options import S3Options
from dressage.errors import FailedPrecondition, InvalidArgument, Unavailable

from tests.servers.seaweed import S3Server

SECRET = "a-secret-that-must-not-show"


@pytest.fixture(autouse=True)
def _no_settings_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("DRESSAGE_S3_", "AWS_"))]:
        monkeypatch.delenv(name)


class Proxy:
    """Between the store and a client: answers according to `plan`, else forwards the request.

    :ivar plan: of the next requests: a status to answer with, "page" to answer 503 as no S3 store does, or "lose" to forward
        and drop the response.
    """

    def __init__(self, target: str) -> None:
        self.plan: list[int | str] = []
        self.seen: list[str] = []
        outer, address = self, urlsplit(target).netloc

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _handle(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                outer.seen.append(self.command)
                step = outer.plan.pop(0) if outer.plan else "pass"
                if isinstance(step, int):
                    self._answer(step, b"", {})
                    return
                if step == "page":
                    self._answer(503, b"<Error/>", {"Content-Type": "text/xml"})
                    return
                upstream = HTTPConnection(address)
                upstream.request(self.command, self.path, body, dict(self.headers))
                answer = upstream.getresponse()
                data = answer.read()
                if step == "lose":
                    self.close_connection = True
                    return
                if step == "half":
                    self.send_response(200)
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data[: len(data) // 2])
                    self.close_connection = True
                    return
                self._answer(answer.status, data, dict(answer.headers))

            def _answer(self, status: int, data: bytes, headers: dict[str, str]) -> None:
                self.send_response(status)
                length = headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(data))
                for name, value in headers.items():
                    if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                        self.send_header(name, value)
                self.send_header("Content-Length", length)
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _handle  # noqa: N815

            def log_message(self, *_: object) -> None:
                """Quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[Proxy]:
    proxy = Proxy(s3_server.endpoint)
    yield proxy
    proxy.server.shutdown()
    proxy.server.server_close()


def quick(options: S3Options, prefix: str = "own") -> S3Store:
    """A store that waits little between tries."""
    return S3Store("own-tests", prefix, options=options, sleep=lambda seconds: time.sleep(seconds / 50))


def test_a_store_that_is_away_for_a_moment_is_asked_again(s3_server: S3Server, proxy: Proxy) -> None:
    store = quick(s3_server.options(endpoint=proxy.url))
    proxy.plan = [503, 500, "page"]
    assert store.put("a", b"1")
    proxy.plan = [503, "page"]
    assert [info.key for info in store.list("a")] == ["a"]
    data = os.urandom(3_000_000)
    store.put("b", data)
    proxy.seen.clear()
    proxy.plan = [503, "pass", 503, "half"]  # the look, then the contents, then their second half
    assert store.get("b") == data
    assert proxy.seen == ["HEAD", "HEAD", "GET", "GET", "GET"]
    proxy.plan = [503] * 1000
    hurried = quick(s3_server.options(retry_seconds=0.0), "own")
    hurried._client = store._client
    with pytest.raises(Unavailable, match="HTTP 503"):
        hurried.get("a")


def test_a_conditional_write_whose_answer_was_lost_is_known_as_our_own(s3_server: S3Server, proxy: Proxy) -> None:
    store = quick(s3_server.options(endpoint=proxy.url), "lost")
    proxy.plan = ["lose"]
    assert store.put("journal", b"mine", if_absent=True)
    assert proxy.seen[-3:] == ["PUT", "PUT", "HEAD"]
    proxy.plan = ["lose"]
    assert not store.put("journal", b"mine", if_absent=True)
    store.delete_prefix("journal")


def test_unfinished_parts_are_dropped(s3_server: S3Server, proxy: Proxy) -> None:
    store = quick(s3_server.options(endpoint=proxy.url, part_bytes=5 << 20, retry_seconds=0.0), "parts")
    proxy.plan = ["pass", "pass", 400]
    with pytest.raises(Unavailable):
        store.put("large", b"x" * (11 << 20))
    assert proxy.seen[-4:] == ["POST", "PUT", "PUT", "DELETE"]
    assert not store.exists("large")


def refused(call: Callable[[], Any]) -> Unavailable:
    with pytest.raises(Unavailable) as caught:
        call()
    assert SECRET not in str(caught.value) and SECRET not in repr(caught.value.__cause__)
    return caught.value


def test_refusals_name_the_setting_and_the_remedy(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    S3Store("own-tests", options=s3_server.options())
    hasty: dict[str, Any] = {"retry_seconds": 0.0, "create_bucket": False}

    def open_with(**more: Any) -> Callable[[], Any]:
        return lambda: S3Store("own-tests", options=s3_server.options(**{**hasty, **more}))

    error = refused(open_with(secret_key=SECRET))
    assert error.reason == "S3_CREDENTIALS_REFUSED" and "DRESSAGE_S3_SECRET_KEY" in error.message
    error = refused(open_with(access_key="nobody", secret_key=SECRET))
    assert error.reason == "S3_CREDENTIALS_REFUSED" and "DRESSAGE_S3_ACCESS_KEY" in error.message
    error = refused(lambda: S3Store("no-such-bucket", options=s3_server.options(**hasty)))
    assert error.reason == "S3_BUCKET_MISSING" and "'no-such-bucket'" in error.message
    assert "DRESSAGE_S3_CREATE_BUCKET" in error.message
    for endpoint in ("http://127.0.0.1:1", "http://nowhere.invalid"):
        error = refused(open_with(endpoint=endpoint))
        assert error.reason == "S3_UNREACHABLE" and endpoint in error.message
    error = refused(open_with(endpoint=s3_server.endpoint.replace("http:", "https:")))
    assert error.reason == "S3_TLS_FAILED" and "write http://" in error.message
    right = minio.time.utcnow
    monkeypatch.setattr(minio.time, "utcnow", lambda: right() - timedelta(hours=2))
    error = refused(open_with())
    assert error.reason == "S3_CLOCK_SKEW" and "clock" in error.message


def test_tls_by_an_authority_of_our_own(
    s3_server: S3Server, authority: tuple[Path, Path] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if authority is None or not s3_server.https:
        pytest.skip("needs the program `openssl` and our own server")
    certificate = authority[0]
    error = refused(lambda: quick(s3_server.options(endpoint=s3_server.https, retry_seconds=0.0)))
    assert error.reason == "S3_TLS_FAILED" and "DRESSAGE_S3_CA_FILE" in error.message
    error = refused(lambda: quick(s3_server.options(endpoint=s3_server.https.replace("https:", "http:"))))
    assert error.reason == "S3_TLS_FAILED" and "write https://" in error.message
    store = quick(s3_server.options(endpoint=s3_server.https, ca_file=certificate), "tls")
    assert store.put("a", b"1") and not store.put("a", b"2", if_absent=True) and store.get("a") == b"1"
    with pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
        download(store.grant_get("a"), tmp_path / "a")
    monkeypatch.setenv(transfer.CA_VARIABLE, str(certificate))
    download(store.grant_get("a"), tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == b"1"


def test_trainers_may_see_the_store_at_another_address(s3_server: S3Server, proxy: Proxy, tmp_path: Path) -> None:
    store = quick(s3_server.options(public_endpoint=proxy.url), "public")
    source = tmp_path / "f"
    source.write_bytes(b"contents")
    assert store.grant_put("f").url.startswith(proxy.url)
    proxy.seen.clear()
    upload(store.grant_put("f"), source)
    assert proxy.seen == ["PUT"] and store.get("f") == b"contents"
    proxy.plan = ["half"]
    with pytest.raises(Unavailable, match="4 of 8 bytes"):
        download(store.grant_get("f"), tmp_path / "g")
    assert not (tmp_path / "g").exists()


def test_a_grant_expires(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    store = quick(s3_server.options(grant_seconds=3600, put_grant_seconds=60))
    store.put("a", b"x")
    assert "X-Amz-Expires=60&" in store.grant_put("a").url and "X-Amz-Expires=3600&" in store.grant_get("a").url


def test_a_grant_counts_by_the_clock_of_the_store(s3_server: S3Server, tmp_path: Path) -> None:
    slow = StoreClock(wall=lambda: datetime.now(UTC) - timedelta(minutes=10))
    store = S3Store("own-tests", "own", options=s3_server.options(), clock=slow)
    source = tmp_path / "f"
    source.write_bytes(b"contents")
    upload(store.grant_put("late", size=8), source)
    assert store.get("late") == b"contents"


def test_the_clock_of_the_store_does_not_follow_the_time_of_the_machine() -> None:
    ticks = iter([5.0, 65.0])
    clock = StoreClock(wall=lambda: datetime(2030, 1, 1, tzinfo=UTC), monotonic=lambda: next(ticks))
    for unreadable in (None, "", "yesterday"):
        clock.observe(unreadable)
    assert clock.now() == datetime(2030, 1, 1, tzinfo=UTC)
    clock.observe("Tue, 01 Jan 2019 10:00:00 GMT")
    assert clock.now() == datetime(2019, 1, 1, 10, 1, tzinfo=UTC)


def test_virtual_host_style_puts_the_bucket_in_the_host_name() -> None:
    options = S3Options(endpoint="https://s3.example.org", access_key="k", secret_key=SECRET, addressing="virtual")
    grant: Grant = S3Store("bucket", "p", options=options, check=False).grant_get("a/b")
    assert grant.url.startswith("https://bucket.s3.example.org/p/a/b?") and SECRET not in grant.url
    path = S3Store("bucket", "p", options=options.model_copy(update={"addressing": "path"}), check=False)
    assert path.grant_get("a/b").url.startswith("https://s3.example.org/bucket/p/a/b?")


def test_settings_come_from_the_environment_and_the_mounted_file(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidArgument, match="DRESSAGE_S3_ACCESS_KEY"):
        open_store("s3://own-tests/x")
    monkeypatch.setenv("DRESSAGE_S3_ENDPOINT", f"http://k:{SECRET}@host")
    with pytest.raises(InvalidArgument, match="DRESSAGE_S3_ENDPOINT") as caught:
        open_store("s3://own-tests/x")
    assert SECRET not in str(caught.value)
    monkeypatch.delenv("DRESSAGE_S3_ENDPOINT")
    config = tmp_path / "config.toml"
    config.write_text(f'store_url = "s3://other/x"\n[s3]\nendpoint = "{s3_server.endpoint}"\nregion = "eu-x"\n')
    monkeypatch.setenv("DRESSAGE_CONFIG", str(config))
    for name, value in s3_server.environment().items():
        if name != "DRESSAGE_S3_ENDPOINT":
            monkeypatch.setenv(name, value)
    monkeypatch.setenv("DRESSAGE_S3_REGION", "us-east-1")
    options = s3_options()
    assert options.endpoint == s3_server.endpoint and options.region == "us-east-1"
    assert s3_server.secret_key not in repr(options)
    store = open_store("s3://own-tests/x/y")
    assert store.put("k", b"1") and open_store("s3://own-tests/x").get("y/k") == b"1"
    for bad in ("s3://", "s3://UPPER/x", "s3://own-tests/../x", "s3://own-tests/x?y", "http://example.org/x", ""):
        with pytest.raises(InvalidArgument):
            open_store(bad)


def test_credentials_in_files_are_read_again_when_they_change(s3_server: S3Server, tmp_path: Path) -> None:
    files = tmp_path / "access", tmp_path / "secret"
    files[0].write_text(s3_server.access_key + "\n")
    files[1].write_text("wrong\n")
    options = S3Options(
        endpoint=s3_server.endpoint,
        access_key_file=files[0],
        secret_key_file=files[1],
        retry_seconds=0,
        create_bucket=True,
    )
    assert refused(lambda: quick(options)).reason == "S3_CREDENTIALS_REFUSED"
    store = S3Store("own-tests", "files", options=options, check=False)
    files[1].write_text(s3_server.secret_key + "\n")
    os.utime(files[1], ns=(1, 1))
    assert store.put("a", b"1")
    files[1].unlink()
    with pytest.raises(FailedPrecondition, match="SECRET_KEY_FILE"):
        FileProvider(*files).retrieve()
