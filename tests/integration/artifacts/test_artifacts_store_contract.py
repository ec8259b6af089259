"""What every artifact store must do, asked of a directory and of a real S3 server alike."""

from __future__ import annotations

import itertools
import os
import threading
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
import urllib3
from dressage.artifacts import ArtifactStore, DirectoryStore, Grant, download, upload
from dressage.artifacts.s3 import S3Store
from dressage.errors import InvalidArgument, NotFound, PermissionDenied, Unavailable
from dressage.serving.stores import MeteredStore, store_metrics
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test
from prometheus_client import CollectorRegistry

from tests.servers.seaweed import S3Server

_NUMBERS = itertools.count()
SEGMENT = st.from_regex(r"\A[A-Za-z0-9_][A-Za-z0-9_.:=+@-]{0,6}\Z")
KEYS = st.lists(SEGMENT, min_size=1, max_size=4).map("/".join)
FEW_KEYS = st.from_regex(r"\A[ab_]{1,2}(/[ab]{1,2}[.=]?[a]?){0,2}\Z")
PART = 5 << 20


def fresh(kind: str, folder: Path, server: S3Server) -> ArtifactStore:
    """An empty store."""
    if kind == "directory":
        return DirectoryStore(folder / f"store{next(_NUMBERS)}")
    options = server.options(part_bytes=PART)
    return S3Store("contract", f"{os.getpid()}/{next(_NUMBERS)}", options=options)


@pytest.fixture(params=["directory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path, s3_server: S3Server) -> ArtifactStore:
    return fresh(request.param, tmp_path, s3_server)


def test_what_is_put_comes_back(store: ArtifactStore, tmp_path: Path) -> None:
    source = tmp_path / "file"
    source.write_bytes(os.urandom(100_000))
    assert store.put("a/b.txt", b"text") and store.put("a/empty", b"") and store.put_file("a/c", source)
    assert store.get("a/b.txt") == b"text" and store.get("a/empty") == b"" and store.get("a/c") == source.read_bytes()
    assert b"".join(store.read("a/c", 999, offset=7)) == source.read_bytes()[7:]
    assert all(len(piece) <= 999 for piece in store.read("a/c", 999))
    assert list(store.read("a/b.txt", 3, offset=4)) == list(store.read("a/b.txt", 3, offset=99)) == []
    assert store.put("a/b.txt", b"other") and store.get("a/b.txt") == b"other"
    info = store.info("a/b.txt")
    assert info.size == 5 and abs((datetime.now(tz=UTC) - info.modified).total_seconds()) < 60
    with pytest.raises(NotFound):
        store.put_file("a/d", tmp_path / "missing")


def test_what_is_not_there_is_not_found(store: ArtifactStore, tmp_path: Path) -> None:
    store.put("a/b", b"1")
    for key in ("a", "a/c", "a/b/c"):
        assert not store.exists(key)
        for call in (store.get, store.info, lambda name: list(store.read(name))):
            with pytest.raises(NotFound):
                call(key)
    with pytest.raises(NotFound):
        download(store.grant_get("a/c"), tmp_path / "nothing")


def test_a_large_file_in_parts(store: ArtifactStore, tmp_path: Path) -> None:
    source = tmp_path / "large"
    source.write_bytes(os.urandom(2 * PART + 12_345))
    assert store.put_file("large", source, if_absent=True)
    assert not store.put_file("large", tmp_path / "large", if_absent=True)
    assert store.put("exact", source.read_bytes()[: 2 * PART])
    assert store.info("exact").size == 2 * PART
    assert store.get("large") == source.read_bytes()
    download(store.grant_get("large"), tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == source.read_bytes()


def test_put_if_absent_has_one_winner_among_many(store: ArtifactStore) -> None:
    barrier, won = threading.Barrier(8), []

    def contend(number: int) -> None:
        barrier.wait()
        if store.put("journal/1.json", str(number).encode(), if_absent=True):
            won.append(number)

    threads = [threading.Thread(target=contend, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1 and store.get("journal/1.json") == str(won[0]).encode()
    assert not store.put("journal/1.json", b"late", if_absent=True)


def test_grants_put_and_get_without_credentials(store: ArtifactStore, tmp_path: Path) -> None:
    source = tmp_path / "weights"
    source.write_bytes(os.urandom(300_000))
    upload(store.grant_put("policy/w"), source)
    assert store.get("policy/w") == source.read_bytes()
    download(store.grant_get("policy/w"), tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == source.read_bytes()
    upload(store.grant_put("policy/w"), _file(tmp_path, b""))
    assert store.get("policy/w") == b""


def test_a_reader_never_sees_half_a_file(store: ArtifactStore) -> None:
    """While it is overwritten, a reader gets one version or an error to read again, never a mixture."""
    versions = [bytes([number]) * 400_000 for number in range(4)]
    store.put("k", versions[0])
    stop = threading.Event()

    def overwrite() -> None:
        for version in itertools.cycle(versions):
            if stop.is_set():
                return
            store.put("k", version)

    thread = threading.Thread(target=overwrite)
    thread.start()
    whole, reasons = 0, set()
    try:
        for _ in range(15):
            try:
                assert store.get("k") in versions
                whole += 1
            except Unavailable as error:
                reasons.add(error.reason)
    finally:
        stop.set()
        thread.join()
    assert whole > 0 and reasons <= {"ARTIFACT_CHANGED"}


def test_listing_pages_and_deleting_in_batches(store: ArtifactStore) -> None:
    names = sorted([*(f"many/{number:04d}" for number in range(40)), "many.x", "many-", "mane/1"])
    for name in names:
        store.put(name, b"x")
    assert [info.key for info in store.list()] == names
    assert [info.key for info in store.list("many/00")] == [f"many/{number:04d}" for number in range(40)]
    assert [info.key for info in store.list("many")] == [name for name in names if name.startswith("many")]
    assert store.delete_prefix("many/") == 40 and store.delete_prefix("many/") == 0
    assert [info.key for info in store.list()] == ["mane/1", "many-", "many.x"]


def paged(store: ArtifactStore, prefix: str, size: int) -> list[str]:
    keys: list[str] = []
    while page := store.page(prefix, after=keys[-1] if keys else "", limit=size):
        assert len(page) <= size
        keys += [info.key for info in page]
    return keys


def test_pages_join_to_the_whole_list(store: ArtifactStore) -> None:
    """Also of keys whose order differs from that of their folders: ``a-b/c`` and ``a.b`` precede ``a/b``."""
    names = ["a/b", "a/c/d", "a-b/c", "a.b", "a0", "a+b/c/d", "b/a", "b/a0/x", "b/a-/x", "_"]
    for name in names:
        store.put(name, b"x")
    for prefix in ("", "a", "a/", "b/a", "c"):
        expected = sorted(name for name in names if name.startswith(prefix))
        for size in (1, 2, 3, 100):
            keys = paged(store, prefix, size)
            assert sorted(keys) == expected, (prefix, size)  # an order of the server's own loses and repeats nothing
            assert keys == expected or isinstance(store, S3Store)


def test_folders_are_listed_without_their_contents(store: ArtifactStore) -> None:
    for name in ("s/a/1", "s/a/2/3", "s/a-b/1", "s/b/1", "s/file", "t/c/1"):
        store.put(name, b"x")
    assert store.folders("s/") == ["a", "a-b", "b"]
    assert store.folders("none/") == []
    with pytest.raises(InvalidArgument, match="slash"):
        store.folders("s")


def test_remains_of_interrupted_writes_are_deleted(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    store.put("a/b/kept", b"x")
    old, new = tmp_path / "a/.tmp-old", tmp_path / "a/.tmp-new"
    for path in (old, new, tmp_path / "a/empty/.tmp-x"):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"half")
    for path in (old, tmp_path / "a/empty/.tmp-x", tmp_path / "a/empty"):
        os.utime(path, (0, 0))
    assert store.delete_remains(datetime.fromtimestamp(1000, tz=UTC)) == 2
    assert not old.exists() and new.exists() and store.get("a/b/kept") == b"x"
    assert store.delete_remains(datetime.now(tz=UTC) + timedelta(hours=1)) == 1
    assert store.list() == store.page() and not (tmp_path / "a/empty").exists()


BAD_KEYS = ["", "/a", "a//b", "a/", "../a", "a/../b", "a/.hidden", ".", "a\nb", "a b", "a\\b", "x" * 501]


@pytest.mark.parametrize("key", BAD_KEYS)
def test_bad_keys_are_refused(store: ArtifactStore, key: str) -> None:
    for call in (lambda name: store.put(name, b""), store.get, store.grant_put, store.info):
        with pytest.raises(InvalidArgument, match="key"):
            call(key)
    with pytest.raises(InvalidArgument, match="prefix"):
        store.delete_prefix("")
    assert store.list() == []


@pytest.mark.parametrize("kind", ["directory", "s3"])
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(key=KEYS, data=st.binary(max_size=50))
def test_every_key_is_kept_as_it_is(
    kind: str, key: str, data: bytes, tmp_path_factory: pytest.TempPathFactory, s3_server: S3Server
) -> None:
    """Characters that mean something in a URL included: nothing is decoded, folded or lost on the way."""
    kept = fresh(kind, tmp_path_factory.mktemp("keys"), s3_server)
    kept.put(key, data)
    assert kept.get(key) == data and [info.key for info in kept.list(key)] == [key]
    with urllib.request.urlopen(kept.grant_get(key).url) as answer:
        assert answer.read() == data


@pytest.mark.parametrize("kind", ["directory", "s3"])
def test_the_store_and_a_dictionary_do_the_same(kind: str, tmp_path: Path, s3_server: S3Server) -> None:
    class Machine(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.store = fresh(kind, tmp_path, s3_server)
            self.model: dict[str, bytes] = {}

        @rule(key=FEW_KEYS, data=st.binary(max_size=20), if_absent=st.booleans())
        def put(self, key: str, data: bytes, if_absent: bool) -> None:
            if any(known.startswith(key + "/") or key.startswith(known + "/") for known in self.model):
                return  # no directory store can hold both `a` and `a/b`
            written = self.store.put(key, data, if_absent=if_absent)
            assert written == (not (if_absent and key in self.model))
            if written:
                self.model[key] = data

        @rule(key=FEW_KEYS)
        def look(self, key: str) -> None:
            assert self.store.exists(key) == (key in self.model)
            if key in self.model:
                assert b"".join(self.store.read(key, 3, offset=1)) == self.model[key][1:]

        @rule(prefix=st.one_of(st.just(""), FEW_KEYS))
        def enumerate(self, prefix: str) -> None:
            expected = sorted((key, len(data)) for key, data in self.model.items() if key.startswith(prefix))
            assert [(info.key, info.size) for info in self.store.list(prefix)] == expected
            assert sorted(paged(self.store, prefix, 2)) == [key for key, _ in expected]

        @rule(prefix=FEW_KEYS)
        def delete(self, prefix: str) -> None:
            doomed = [key for key in self.model if key.startswith(prefix)]
            assert self.store.delete_prefix(prefix) == len(doomed)
            for key in doomed:
                del self.model[key]

    run_state_machine_as_test(Machine, settings=settings(max_examples=6, stateful_step_count=10, deadline=None))


def test_metrics_count_bytes_seconds_and_failures(store: ArtifactStore) -> None:
    registry = CollectorRegistry()
    metered = MeteredStore(store, store_metrics(registry))
    metered.put("a", b"12345")
    assert not metered.put("a", b"123", if_absent=True)
    assert metered.get("a") == b"12345" and list(metered.read("a", 2)) == [b"12", b"34", b"5"]
    with pytest.raises(NotFound):
        metered.get("missing")
    value = registry.get_sample_value
    assert value("dressage_artifact_bytes_total", {"operation": "put"}) == 5
    assert value("dressage_artifact_bytes_total", {"operation": "get"}) == 10
    assert value("dressage_artifact_seconds_count", {"operation": "get"}) == 3
    with pytest.raises(Unavailable):
        MeteredStore(_Broken(), store_metrics(registry)).put("a", b"")  # type: ignore[arg-type]
    assert value("dressage_artifact_errors_total", {"operation": "put", "reason": "AWAY"}) == 1


class _Broken:
    def put(self, key: str, data: bytes, *, if_absent: bool = False, synced: bool = True) -> bool:
        raise Unavailable("away", reason="AWAY")


def test_a_refused_grant_is_an_error(s3_server: S3Server, tmp_path: Path) -> None:
    kept = S3Store("contract", "refused", options=s3_server.options())
    granted = kept.grant_put("a")
    for spoiled in (granted.url.replace("/a?", "/b?"), granted.url[:-4] + "0000"):
        with pytest.raises(PermissionDenied) as refused:
            upload(Grant(spoiled), _file(tmp_path, b"x"))
        assert "X-Amz" not in refused.value.message
    assert kept.list() == []


def _put(url: str, data: bytes, headers: dict[str, str]) -> int:
    """The status of a request that a writer may make as it likes."""
    return urllib3.request("PUT", url, body=data, headers=headers, retries=False).status


def test_the_store_refuses_what_a_grant_is_not_for(s3_server: S3Server) -> None:
    kept = S3Store("contract", "bound", options=s3_server.options())
    granted = kept.grant_put("a", size=5, writer="sessions/s/runs/r1/attempts/2")
    others = {"x-amz-meta-writer": "sessions/s/runs/r1/attempts/1"}
    for data, headers in (
        (b"1234", granted.headers | {"Content-Length": "4"}),
        (b"123456", granted.headers | {"Content-Length": "6"}),
        (b"", granted.headers | {"Content-Length": "0"}),
        (b"12345", granted.headers | others),
        (b"12345", {"Content-Length": "5"}),
    ):
        assert _put(granted.url, data, dict(headers)) == 403, (data, headers)
        assert kept.list() == []
    assert _put(granted.url, b"12345", dict(granted.headers)) == 200 and kept.get("a") == b"12345"
    stored = kept._client.minio.stat_object("contract", "bound/a")
    assert stored.metadata is not None and stored.metadata["x-amz-meta-writer"].endswith("/attempts/2")


def test_a_grant_ends(s3_server: S3Server) -> None:
    kept = S3Store("contract", "ends", options=s3_server.options())

    def put(age: float) -> int:
        now, headers = datetime.now(UTC) - timedelta(seconds=age), {"Content-Length": "1"}
        seconds = kept.options.put_grant_seconds
        url = kept._public.presign("PUT", "ends/a", headers=headers, seconds=seconds, now=now)
        return _put(url, b"x", headers)

    assert (put(50), put(62)) == (200, 403)


def test_grants_of_reading_are_signed_as_the_client_signs(s3_server: S3Server) -> None:
    kept = S3Store("contract", "p", options=s3_server.options())
    now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    mine = kept._public.presign("GET", "p/a b/ü", headers={}, seconds=60, now=now)
    theirs = kept._public.minio.get_presigned_url(
        "GET", "contract", "p/a b/ü", expires=timedelta(seconds=60), request_date=now
    )
    assert dict(parse_qsl(urlsplit(mine).query)) == dict(parse_qsl(urlsplit(theirs).query))
    assert urlsplit(mine).path == urlsplit(theirs).path


def _file(folder: Path, data: bytes) -> Path:
    path = folder / "upload"
    path.write_bytes(data)
    return path


@pytest.fixture(autouse=True)
def _no_settings_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("DRESSAGE_S3_", "AWS_"))]:
        monkeypatch.delenv(name)
