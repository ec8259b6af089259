"""Metrics of each member as they arise: ``members/{m}/metrics.jsonl`` and TensorBoard files in ``members/{m}/tb``.

A row is one update. Rows are also kept in memory, so that a checkpoint can hold them: the file of a resumed run is
rewritten from it and goes on, whatever was written after the checkpoint. So is TensorBoard's, under the same name.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

import numpy as np

from dressage_trainer.backends.eventfile import EventFile

Row = Mapping[str, float | None]

# Always the same: another attempt's upload takes the place of the one before, where two would show each point twice.
_BOARD_FILE = "events.out.tfevents.0.dressage"


class MemberMetrics:
    """The metrics files of one member.

    :param folder: ``members/{m}``, made if absent.
    :param earlier: rows of the checkpoint that training goes on from, as `packed` gave them.
    """

    def __init__(self, folder: Path, *, earlier: bytes = b"") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._text = bytearray(earlier)
        path = folder / "metrics.jsonl"
        path.write_bytes(earlier)
        self._file: TextIO = path.open("a", encoding="utf-8")
        self._board = _open_board(folder / "tb")
        for line in earlier.splitlines():
            self._to_board(json.loads(line))

    def add(self, row: Row) -> None:
        """Append a row; it is on its way to the disk when this returns."""
        line = json.dumps(row) + "\n"
        self._file.write(line)
        self._file.flush()
        self._text += line.encode()
        self._to_board(row)

    def rows(self) -> list[dict[str, float | None]]:
        """All rows so far."""
        return [json.loads(line) for line in self._text.splitlines()]

    def packed(self) -> np.ndarray:
        """All rows so far, as bytes, for a checkpoint."""
        return np.frombuffer(bytes(self._text), np.uint8)

    def close(self) -> None:
        """Flush and close the files."""
        self._file.close()
        self._board.close()

    def _to_board(self, row: Row) -> None:
        scalars = {_tag(name): value for name, value in row.items() if value is not None and name != "step"}
        self._board.add(scalars, step=int(row["step"] or 0), wall_time=time.time())


def _open_board(folder: Path) -> EventFile:
    folder.mkdir(parents=True, exist_ok=True)
    # What an earlier attempt left behind: its rows up to the checkpoint are written again.
    for left in folder.glob("*.tfevents.*"):
        left.unlink()
    return EventFile(folder / _BOARD_FILE, wall_time=time.time())


def _tag(name: str) -> str:
    """Groups as TensorBoard shows them."""
    if "/" in name:
        return name
    if name.startswith(("episode", "environment_")):
        return f"rollout/{name}"
    if name.endswith("per_second") or name in ("update", "seconds", "compile_seconds"):
        return f"time/{name}"
    return f"train/{name}"
