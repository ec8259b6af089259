"""Recorded replies to the tasks of the program author, which seed a search without a language model.

``replies.jsonl`` in a task's folder of `dressage.envs.catalogue` has one JSON object a line: first ``meta`` with the
provenance, then ``reply`` with a text in the form in which a model answers; ``faulty`` marks one that has to be rejected. All
are written by hand.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path

from dressage.envs.catalogue import catalogue
from dressage.errors import FailedPrecondition

NO_RECORDED_PROGRAMS = "NO_RECORDED_PROGRAMS"
"""Reason of the error for a task without recorded replies."""


@dataclass(frozen=True)
class RecordedReplies:
    """The recorded replies to one task.

    :param provenance: who wrote them.
    :param replies: the texts, in order.
    """

    provenance: str
    replies: tuple[str, ...]


def recorded_replies(task: str) -> RecordedReplies:
    """Return the recorded replies to a task, such as ``karel/DoorKey``.

    :raises FailedPrecondition: ``NO_RECORDED_PROGRAMS`` for a task without recorded replies.
    """
    file = catalogue()[task].path / "replies.jsonl" if task in catalogue() else None
    if file is None or not file.exists():
        raise FailedPrecondition(
            f"there are no recorded programs for {task}; choose a language model, or search from random programs",
            reason=NO_RECORDED_PROGRAMS,
            metadata={"task": task},
        )
    return _read(file)


@functools.cache
def _read(file: Path) -> RecordedReplies:
    rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    provenance = " ".join(row["provenance"] for row in rows if row["kind"] == "meta")
    return RecordedReplies(provenance, tuple(row["reply"] for row in rows if row["kind"] == "reply"))
