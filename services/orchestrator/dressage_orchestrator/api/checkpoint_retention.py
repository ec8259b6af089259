"""An assignment's old checkpoints are deleted as newer ones arrive: a trainer resumes from the newest, or the one before it.

A checkpoint of SAC holds its replay buffer, hundreds of megabytes, and one may be stored every few seconds.
"""

from __future__ import annotations

import json
import re

from dressage.artifacts import ArtifactStore
from dressage.limits import CHECKPOINT_INDEX, CHECKPOINTS_INDEXED

_CHECKPOINT = re.compile(r"checkpoints/(\d+)\.safetensors\Z")


def delete_old(store: ArtifactStore, assignment: str, reported: str) -> int:
    """Delete the checkpoints of earlier updates than all that the assignment's index names; how many they were.

    Nothing is deleted before the index is full, and only what is plainly an older checkpoint of this assignment: the index
    comes from the trainer.

    :param assignment: its name, the prefix of its artifacts.
    :param reported: the newest checkpoint's key, relative to the assignment; the index must name it.
    :raises DressageError: if the store fails; the next checkpoint's turn then deletes what is left.
    """
    named = json.loads(store.get(f"{assignment}/{CHECKPOINT_INDEX}"))
    updates = [_update(key) for key in named] if isinstance(named, list) else []
    known = [update for update in updates if update is not None]
    if len(known) < CHECKPOINTS_INDEXED or len(known) < len(updates) or reported not in named:
        return 0
    deleted = 0
    for info in store.list(f"{assignment}/checkpoints/"):
        update = _update(info.key.removeprefix(f"{assignment}/"))
        if update is not None and update < min(known):
            deleted += store.delete_prefix(info.key)
    return deleted


def _update(key: object) -> int | None:
    """The update after which a checkpoint was written, by its key; None for another file."""
    found = _CHECKPOINT.match(key) if isinstance(key, str) else None
    return int(found[1]) if found else None
