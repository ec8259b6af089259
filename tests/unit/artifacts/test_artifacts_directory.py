"""The directory store: contents are read back, no path leaves the root, no reader gets a partial file."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from dressage.artifacts import DirectoryStore, check_key, open_store
from dressage.errors import InvalidArgument, NotFound
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

KEYS = st.from_regex(r"\A[a-z0-9_]{1,4}(/[a-z0-9_]{1,3}[.=]?[a-z]?){0,3}\Z")


@given(st.text())
def test_any_string_is_refused_or_stays_below_the_root(key: str) -> None:
    root = Path("/srv/store")
    try:
        check_key(key)
    except InvalidArgument:
        return
    joined = Path(root / key)
    assert joined.is_relative_to(root)
    assert ".." not in joined.parts and "\x00" not in key


BAD_KEYS = ["", "/a", "a//b", "a/", "../a", "a/../b", "a/.hidden", ".", "a\nb", "a b", "a\\b", "x" * 501]


@pytest.mark.parametrize("key", BAD_KEYS)
def test_bad_keys_are_refused(tmp_path: Path, key: str) -> None:
    store = DirectoryStore(tmp_path / "root")
    for call in (lambda: store.put(key, b""), lambda: store.get(key), lambda: store.grant_put(key)):
        with pytest.raises(InvalidArgument, match="key"):
            call()
    assert list(tmp_path.iterdir()) == [tmp_path / "root"]


class StoreAgainstDictionary(RuleBasedStateMachine):
    """The store and a plain dictionary do the same, whatever is asked of them in whatever order."""

    def __init__(self) -> None:
        super().__init__()
        import tempfile

        self.folder = tempfile.TemporaryDirectory()
        self.store = DirectoryStore(Path(self.folder.name))
        self.model: dict[str, bytes] = {}

    def _clashes(self, key: str) -> bool:
        # A directory store cannot hold both `a` and `a/b`; the layout of sessions never asks for it.
        return any(known.startswith(key + "/") or key.startswith(known + "/") for known in self.model)

    @rule(key=KEYS, data=st.binary(max_size=20), if_absent=st.booleans())
    def put(self, key: str, data: bytes, if_absent: bool) -> None:
        if self._clashes(key):
            return
        written = self.store.put(key, data, if_absent=if_absent)
        assert written == (not (if_absent and key in self.model))
        if written:
            self.model[key] = data

    @rule(key=KEYS)
    def look(self, key: str) -> None:
        assert self.store.exists(key) == (key in self.model)
        if key in self.model:
            assert self.store.get(key) == self.model[key]
            assert b"".join(self.store.read(key, 3, offset=1)) == self.model[key][1:]
            assert self.store.info(key).size == len(self.model[key])
        else:
            for call in (self.store.get, self.store.info, lambda name: list(self.store.read(name))):
                with pytest.raises(NotFound):
                    call(key)

    @rule(prefix=st.one_of(st.just(""), KEYS))
    def list(self, prefix: str) -> None:
        expected = sorted(key for key in self.model if key.startswith(prefix))
        assert [info.key for info in self.store.list(prefix)] == expected

    @rule(prefix=KEYS)
    def delete(self, prefix: str) -> None:
        doomed = [key for key in self.model if key.startswith(prefix)]
        assert self.store.delete_prefix(prefix) == len(doomed)
        for key in doomed:
            del self.model[key]

    def teardown(self) -> None:
        self.folder.cleanup()


TestStoreAgainstDictionary = StoreAgainstDictionary.TestCase
TestStoreAgainstDictionary.settings = settings(max_examples=15, stateful_step_count=15, deadline=None)


def test_only_copies_of_other_data_are_not_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    store = DirectoryStore(tmp_path)
    assert store.put("a/reply", b"paid for") and len(synced) == 2  # the file, and the name in its folder
    assert store.put("a/copy", b"1", synced=False) and store.put("a/copy", b"22", synced=False)
    assert not store.put("a/copy", b"333", if_absent=True, synced=False)
    assert len(synced) == 2 and store.get("a/copy") == b"22"
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["copy", "reply"]


def test_put_if_absent_has_one_winner_among_many(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    barrier = threading.Barrier(8)
    won: list[int] = []

    def contend(number: int) -> None:
        barrier.wait()
        if store.put("journal/1.json", str(number).encode(), if_absent=True):
            won.append(number)

    threads = [threading.Thread(target=contend, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert store.get("journal/1.json") == str(won[0]).encode()


def test_a_failed_write_leaves_the_old_contents_and_no_litter(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "root")
    store.put("a/b", b"old")
    with pytest.raises(NotFound):
        store.put_file("a/b", tmp_path / "missing")
    assert store.get("a/b") == b"old"
    assert [path.name for path in (tmp_path / "root" / "a").iterdir()] == ["b"]


def test_deleting_everything_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="prefix"):
        DirectoryStore(tmp_path).delete_prefix("")


def test_open_store_reads_paths_and_file_urls(tmp_path: Path) -> None:
    folder = tmp_path / "with space"
    by_path, by_url = open_store(str(folder)), open_store(folder.as_uri())
    by_path.put("k", b"1")
    assert by_url.get("k") == b"1"
    for bad in ("", "s3://BUCKET/x", "http://example.org/x"):
        with pytest.raises(InvalidArgument, match="store_url"):
            open_store(bad)
