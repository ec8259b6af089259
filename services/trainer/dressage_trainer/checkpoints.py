"""Snapshots of all training state as files: one safetensors file each, complete or absent.

The arrays are those of each group's snapshot under ``group{k}/``. The file also contains JSON facts (members, updates) and
the metrics rows so far, so that a resumed run writes the same ``metrics.jsonl`` as an undisturbed one. A checksum of the
whole contents detects damage; `read_newest` then uses the checkpoint before.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from dressage.errors import InvalidArgument
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

FOLDER = "checkpoints"
_FORMAT = "dressage.checkpoint/2"
_CHECKSUM = "crc32"
# The newest may be damaged; a resume then uses the one before (decision 0014).
_KEPT = 2

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Snapshot:
    """The state at an update boundary."""

    update: int
    """Updates done, over all groups."""
    env_step: int
    """Environment steps done by each member (of the group that has done most)."""
    facts: dict[str, Any]
    """What must agree for a resume; JSON."""
    arrays: Arrays

    def part(self, prefix: str) -> Arrays:
        """Return the arrays whose names begin with ``prefix``, named without it."""
        return {name[len(prefix) :]: value for name, value in self.arrays.items() if name.startswith(prefix)}


def path_of(update: int) -> str:
    """Return the path of an update's checkpoint, relative to the scratch folder."""
    return f"{FOLDER}/{update}.safetensors"


def write(root: Path, snapshot: Snapshot) -> str:
    """Write a snapshot atomically, delete all but the newest two, and return its path relative to ``root``.

    :raises OSError: for example if the disk is full; no incomplete file remains.
    """
    relative = path_of(snapshot.update)
    path = root / relative
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {n: np.ascontiguousarray(a).reshape(a.shape) for n, a in snapshot.arrays.items()}
    metadata = {
        "format": _FORMAT,
        "update": str(snapshot.update),
        "env_step": str(snapshot.env_step),
        "facts": json.dumps(snapshot.facts, sort_keys=True),
    }
    temporary = path.with_suffix(".tmp")
    try:
        # Written to the file directly: in memory it would take twice the size of the arrays.
        save_file(arrays, temporary, {**metadata, _CHECKSUM: _checksum(metadata, arrays)})
        with temporary.open("rb+") as file:
            # Before the rename: after a power failure the new name could otherwise be that of an empty file.
            os.fsync(file.fileno())
        temporary.replace(path)
    except SafetensorError as error:
        raise OSError(str(error)) from error
    finally:
        temporary.unlink(missing_ok=True)
    _drop_old(path.parent)
    return relative


def _checksum(metadata: Mapping[str, str], arrays: Arrays) -> str:
    """Return the checksum of all contents but the checksum itself: a flipped bit in a fact or a shape is harmful too."""
    facts = {name: text for name, text in metadata.items() if name != _CHECKSUM}
    forms = {name: [array.dtype.str, array.shape] for name, array in arrays.items()}
    value = zlib.crc32(json.dumps([facts, forms], sort_keys=True).encode())
    for name in sorted(arrays):
        value = zlib.crc32(arrays[name].reshape(-1).view(np.uint8).data, value)
    return str(value)


def _drop_old(folder: Path) -> None:
    """Delete all but the newest checkpoints, and temporary files of a writer that was killed."""
    numbered = {int(path.stem): path for path in folder.glob("*.safetensors") if path.stem.isdigit()}
    for update in sorted(numbered)[:-_KEPT]:
        numbered[update].unlink(missing_ok=True)
    for temporary in folder.glob("*.tmp"):
        temporary.unlink(missing_ok=True)


def read(path: Path) -> Snapshot:
    """Read a checkpoint.

    :raises InvalidArgument: if the file is missing, damaged or no checkpoint.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            metadata: Mapping[str, str] = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
        if metadata.get("format") != _FORMAT:
            raise ValueError(f"format is {metadata.get('format')!r}, not {_FORMAT}")
        if metadata[_CHECKSUM] != _checksum(metadata, arrays):
            raise ValueError("its contents do not match their checksum")
        return Snapshot(
            update=int(metadata["update"]),
            env_step=int(metadata["env_step"]),
            facts=json.loads(metadata["facts"]),
            arrays=arrays,
        )
    except (OSError, SafetensorError, ValueError, KeyError) as error:
        raise InvalidArgument(
            f"the checkpoint {path.name} cannot be used: {error}", field="resume", reason="CHECKPOINT_CORRUPT"
        ) from error


def read_newest(root: Path, candidates: Sequence[str]) -> tuple[Snapshot | None, list[str]]:
    """Return the first checkpoint that can be used, and why those before it cannot.

    :param candidates: paths relative to ``root``, the newest first.
    """
    problems: list[str] = []
    for relative in candidates:
        try:
            return read(root / relative), problems
        except InvalidArgument as error:
            problems.append(error.message)
    return None, problems
