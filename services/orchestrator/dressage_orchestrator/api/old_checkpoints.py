"""A run's old checkpoints go as newer ones arrive: a trainer resumes from the newest, or the one before it.

A checkpoint of SAC holds its replay buffer, hundreds of megabytes, and one may be stored every few seconds.
"""

from __future__ import annotations

import json
import re

from dressage.artifacts import ArtifactStore
from dressage.limits import CHECKPOINT_INDEX, CHECKPOINTS_INDEXED

_CHECKPOINT = re.compile(r"checkpoints/(\d+)\.(?:safetensors|evaluations)\Z")
"""A checkpoint, or the evaluations that were not done when it was stored."""


def delete_old(store: ArtifactStore, run: str, reported: str) -> int:
    """Deletes the checkpoints of earlier updates than all that the run's index names; how many they were.

    Nothing goes before the index is full, and nothing that is not plainly an older checkpoint of this run: the index comes
    from the trainer.

    :param run: its name.
    :param reported: the newest checkpoint's key, relative to the run; the index must name it.
    :raises DressageError: if the store fails; the next checkpoint's turn then deletes what stayed.
    """
    named = json.loads(store.get(f"{run}/{CHECKPOINT_INDEX}"))
    updates = [_update(key) for key in named] if isinstance(named, list) else []
    known = [update for update in updates if update is not None]
    if len(known) < CHECKPOINTS_INDEXED or len(known) < len(updates) or reported not in named:
        return 0
    deleted = 0
    for info in store.list(f"{run}/checkpoints/"):
        update = _update(info.key.removeprefix(f"{run}/"))
        if update is not None and update < min(known):
            deleted += store.delete_prefix(info.key)
    return deleted


def _update(key: object) -> int | None:
    """The update after which a checkpoint was written, by its key; None for another file."""
    found = _CHECKPOINT.match(key) if isinstance(key, str) else None
    return int(found[1]) if found else None
