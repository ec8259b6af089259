"""Deletes an assignment's old checkpoints when newer ones arrive. A trainer resumes from the newest or the one before it.

A checkpoint of SAC contains the replay buffer of hundreds of megabytes, and one may be stored every few seconds.
"""

from __future__ import annotations

import json
import re

from dressage.artifacts import ArtifactStore
from dressage.limits import CHECKPOINT_INDEX, CHECKPOINTS_INDEXED

_CHECKPOINT = re.compile(r"checkpoints/(\d+)\.safetensors\Z")


def delete_old(store: ArtifactStore, assignment: str, reported: str) -> int:
    """Delete the checkpoints that are older than all checkpoints in the assignment's index.

    Nothing is deleted before the index is full. Only keys of older checkpoints of this assignment are deleted, because the
    index comes from the trainer.

    :param assignment: name of the assignment, the prefix of its artifacts.
    :param reported: key of the newest checkpoint, relative to the assignment; the index must contain it.
    :return: bytes of the deleted checkpoints.
    :raises DressageError: if the store fails; the next checkpoint repeats the deletion.
    """
    named = json.loads(store.get(f"{assignment}/{CHECKPOINT_INDEX}"))
    updates = [_update(key) for key in named] if isinstance(named, list) else []
    numbers = [update for update in updates if update is not None]
    if len(numbers) < CHECKPOINTS_INDEXED or len(numbers) < len(updates) or reported not in named:
        return 0
    deleted = 0
    for info in store.list(f"{assignment}/checkpoints/"):
        update = _update(info.key.removeprefix(f"{assignment}/"))
        if update is not None and update < min(numbers):
            store.delete_prefix(info.key)
            deleted += info.size
    return deleted


def _update(key: object) -> int | None:
    """Number of the update of a checkpoint, from its key; None for another file."""
    match = _CHECKPOINT.match(key) if isinstance(key, str) else None
    return int(match[1]) if match else None
