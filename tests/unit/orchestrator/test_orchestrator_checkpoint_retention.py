"""Old checkpoints are deleted, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from dressage.artifacts.directory import DirectoryStore
from dressage.limits import CHECKPOINT_INDEX as INDEX
from dressage_orchestrator.api.checkpoint_retention import delete_old

ASSIGNMENT = "sessions/s/iterations/1/assignments/train"
OTHER = "sessions/s/iterations/1/assignments/train2"


def key(update: int) -> str:
    return f"checkpoints/{update}.safetensors"


def store_with(root: Path, updates: list[int], named: object) -> DirectoryStore:
    store = DirectoryStore(root)
    for run in (ASSIGNMENT, OTHER):
        for update in updates:
            store.put(f"{run}/{key(update)}", b"x")
        store.put(f"{run}/{INDEX}", json.dumps(named).encode())
    store.put(f"{ASSIGNMENT}/checkpoints/notes.txt", b"x")
    return store


def left(store: DirectoryStore, run: str = ASSIGNMENT) -> set[str]:
    return {info.key.removeprefix(f"{run}/") for info in store.list(f"{run}/checkpoints/")}


def test_checkpoints_older_than_the_index_are_deleted(tmp_path: Path) -> None:
    # 12 is being uploaded: the index does not name it yet.
    store = store_with(tmp_path, [1, 2, 9, 10, 11, 12], [key(11), key(10), key(9)])
    assert delete_old(store, ASSIGNMENT, key(11)) == 2, "two files of one byte"
    assert left(store) == {*map(key, (9, 10, 11, 12)), INDEX, "checkpoints/notes.txt"}
    assert left(store, OTHER) == {*map(key, (1, 2, 9, 10, 11, 12)), INDEX}
    assert delete_old(store, ASSIGNMENT, key(11)) == 0


@pytest.mark.parametrize(
    "named",
    [
        [key(11), key(10)],
        [key(11), key(10), "checkpoints/../../../other"],
        [key(12), key(10), key(9)],
        [key(11), key(10), 9],
        {"a": 1},
        "checkpoints/11.safetensors",
    ],
    ids=["not full", "a foreign key", "without the newest", "a number", "no list", "text"],
)
def test_an_invalid_index_deletes_nothing(tmp_path: Path, named: object) -> None:
    store = store_with(tmp_path, [1, 2, 9, 10, 11], named)
    before = left(store)
    assert delete_old(store, ASSIGNMENT, key(11)) == 0
    assert left(store) == before
