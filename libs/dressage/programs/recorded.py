"""Recorded replies to the tasks of the program author, which seed a search without a language model.

A file of ``replies/`` has the replies to one task, one JSON object a line: first ``meta`` with the provenance, then ``reply``
with a text in the form in which a model answers; ``faulty`` marks one that has to be rejected. All are written by hand.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from importlib import resources

from dressage.errors import FailedPrecondition
from dressage.programs.tasks_text import TASK_TEXTS

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
    names = {f"{text.language.name}/{name}": name for name, text in TASK_TEXTS.items()}
    if task not in names:
        raise FailedPrecondition(
            f"there are no recorded programs for {task}; choose a language model, or search from random programs",
            reason=NO_RECORDED_PROGRAMS,
            metadata={"task": task},
        )
    return _read(names[task])


@functools.cache
def _read(name: str) -> RecordedReplies:
    text = resources.files(__package__).joinpath("replies", f"{name}.jsonl").read_text("utf-8")
    rows = [json.loads(line) for line in text.splitlines()]
    provenance = " ".join(row["provenance"] for row in rows if row["kind"] == "meta")
    return RecordedReplies(provenance, tuple(row["reply"] for row in rows if row["kind"] == "reply"))
