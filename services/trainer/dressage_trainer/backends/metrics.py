"""Write the metrics of each member: ``members/{m}/metrics.jsonl`` and a TensorBoard file in ``members/{m}/tb``.

A row is one update. Rows are also kept in memory, for the checkpoint. A resumed run rewrites both files from the checkpoint's
rows and continues them; rows that were written after the checkpoint are dropped.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

import numpy as np
from dressage.training.eventfile import FILE_NAME, EventFile

Row = Mapping[str, float | None]

_SB3 = {
    "episode_return": "rollout/ep_rew_mean",
    "episode_length": "rollout/ep_len_mean",
    "environment_return": "rollout/environment_ep_rew_mean",
    "episodes": "time/episodes",
    "steps_per_second": "time/fps",
    "update": "time/iterations",
    "seconds": "time/time_elapsed",
    "policy_loss": "train/policy_gradient_loss",
}
"""Tags that differ from the name of the metric: those of Stable-Baselines3, so that one dashboard shows both."""
_SB3_SAC = {
    "policy_loss": "train/actor_loss",
    "value_loss": "train/critic_loss",
    "entropy_coefficient": "train/ent_coef",
    "entropy_coefficient_loss": "train/ent_coef_loss",
    "gradient_steps": "train/n_updates",
}


class MemberMetrics:
    """The metrics files of one member.

    :param folder: ``members/{m}``, created if absent.
    :param earlier: rows of the checkpoint that training resumes from, as `to_bytes` returned them.
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
        """Append a row, and flush it."""
        line = json.dumps(row) + "\n"
        self._file.write(line)
        # The supervisor copies the file at every checkpoint, while the learner runs.
        self._file.flush()
        self._text += line.encode()
        self._to_board(row)

    def rows(self) -> list[dict[str, float | None]]:
        """Return all rows so far."""
        return [json.loads(line) for line in self._text.splitlines()]

    def to_bytes(self) -> np.ndarray:
        """Return all rows so far, as bytes, for a checkpoint."""
        return np.frombuffer(bytes(self._text), np.uint8)

    def close(self) -> None:
        """Flush and close the files."""
        self._file.close()
        self._board.close()

    def _to_board(self, row: Row) -> None:
        self._board.add(scalars(row), step=int(row["step"] or 0), wall_time=time.time())


def _open_board(folder: Path) -> EventFile:
    folder.mkdir(parents=True, exist_ok=True)
    # An earlier attempt's file: its rows up to the checkpoint are written again.
    for earlier in folder.glob("*.tfevents.*"):
        earlier.unlink()
    return EventFile(folder / FILE_NAME, wall_time=time.time())


def scalars(row: Row) -> dict[str, float]:
    """Return the scalars of a row by their tags: those of Stable-Baselines3 where it logs the same."""
    names = {**_SB3, **_SB3_SAC} if "entropy_coefficient" in row else _SB3
    tagged = {_tag(name, names): value for name, value in row.items() if value is not None and name != "step"}
    if row.get("step") is not None:
        tagged["time/total_timesteps"] = float(row["step"] or 0)
    if row.get("entropy") is not None:
        tagged["train/entropy_loss"] = -float(row["entropy"] or 0)
    return tagged


def _tag(name: str, names: Mapping[str, str]) -> str:
    """Return the tag with the group under which TensorBoard shows it."""
    if name in names:
        return names[name]
    if "/" in name:
        return name
    if name.startswith(("episode", "environment_")):
        return f"rollout/{name}"
    if name.endswith("per_second") or name in ("update", "seconds", "compile_seconds"):
        return f"time/{name}"
    return f"train/{name}"
