"""Grants: files move by file URL and by presigned HTTP, and failures say which file and why."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from dressage.artifacts import DirectoryStore, Grant, atomic, download, upload
from dressage.errors import InvalidArgument, NotFound, PermissionDenied, Unavailable


class _Bucket(BaseHTTPRequestHandler):
    """Just enough of an object store for presigned requests: a signature header, PUT and GET."""

    files: dict[str, bytes] = {}

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("X-Signature") != "good":
            self._answer(403)
            return
        self.files[self.path] = body
        self._answer(200)

    def do_GET(self) -> None:
        if self.path == "/broken":
            self._answer(500)
        elif self.path in self.files:
            self._answer(200, self.files[self.path])
        else:
            self._answer(404)

    def _answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def bucket() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Bucket)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join(timeout=5)


def test_a_directory_grant_puts_where_the_store_reads(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "root with space")
    source = tmp_path / "weights"
    source.write_bytes(b"w" * 3_000_000)
    upload(store.grant_put("sessions/s/policy/w"), source)
    assert store.get("sessions/s/policy/w") == source.read_bytes()
    download(store.grant_get("sessions/s/policy/w"), tmp_path / "deep" / "copy")
    assert (tmp_path / "deep" / "copy").read_bytes() == source.read_bytes()


def test_http_grants_send_their_headers(tmp_path: Path, bucket: str) -> None:
    source = tmp_path / "f"
    source.write_bytes(b"x" * 2_000_000)
    upload(Grant(url=f"{bucket}/f", headers={"X-Signature": "good"}), source)
    download(Grant(url=f"{bucket}/f"), tmp_path / "g")
    assert (tmp_path / "g").read_bytes() == source.read_bytes()


def test_failures_name_the_file_and_hide_the_url(tmp_path: Path, bucket: str) -> None:
    source = tmp_path / "f"
    source.write_bytes(b"x")
    with pytest.raises(PermissionDenied, match="'f'") as refused:
        upload(Grant(url=f"{bucket}/f?sig=secret"), source)
    assert "secret" not in refused.value.message
    with pytest.raises(NotFound, match="'g'"):
        download(Grant(url=f"{bucket}/missing"), tmp_path / "g")
    with pytest.raises(Unavailable, match="500"):
        download(Grant(url=f"{bucket}/broken"), tmp_path / "g")
    with pytest.raises(Unavailable):
        download(Grant(url="http://127.0.0.1:1/x"), tmp_path / "g", timeout=2)
    with pytest.raises(NotFound):
        upload(Grant(url=f"{bucket}/f"), tmp_path / "nothing")
    with pytest.raises(InvalidArgument, match=r"grant\.url"):
        upload(Grant(url="ftp://example.org/x"), source)
    assert not (tmp_path / "g").exists()


def test_a_grant_is_for_the_size_that_was_declared(tmp_path: Path) -> None:
    store, source = DirectoryStore(tmp_path / "store"), tmp_path / "f"
    source.write_bytes(b"12345")
    granted = store.grant_put("a")
    upload(replace(granted, size=5), source)
    source.write_bytes(b"a file that grew")
    with pytest.raises(PermissionDenied, match="has 16 bytes, but the grant is for 5"):
        upload(replace(granted, size=5), source)
    assert store.get("a") == b"12345"


@pytest.mark.parametrize("size", [4, 6])
def test_a_copy_of_another_size_is_not_written(tmp_path: Path, size: int) -> None:
    (tmp_path / "source").write_bytes(b"12345")
    with pytest.raises(atomic.SizeDiffers):
        atomic.copy(tmp_path / "source", tmp_path / "copy", size=size)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
