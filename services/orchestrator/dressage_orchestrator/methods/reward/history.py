"""A session's history, as revisions and screenings read it, and how the metrics of a training developed.

A revision needs the course of a metric: an entropy of 4 is a collapse if it was 8 at first, and normal if it was 4.2. Each
metric is shown as its means over equal parts of the training, the first part first, from the rows of ``metrics.jsonl``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from dressage.api.v1 import session_pb2 as v1
from dressage.artifacts import ArtifactStore
from dressage.errors import NotFound

from dressage_orchestrator.database.feedback import Label
from dressage_orchestrator.database.store import SessionStore

TRAINING = "train"
"""Id of an iteration's first training, and how the ids of the others begin."""


def trainings(iteration: v1.Iteration) -> list[str]:
    """Return the names of an iteration's trainings, in order."""
    return [name for name in iteration.assignments if name.rpartition("/")[2].startswith(TRAINING)]


Row = Mapping[str, float | None]
Trend = Mapping[str, Sequence[float]]
"""Means over the parts of a training, by metric."""

PARTS = 5
MAX_BYTES = 32 * 2**20
"""Largest file that is read."""

_COUNTERS = frozenset(
    {"update", "step", "steps", "episodes", "minibatches", "gradient_steps", "seconds", "compile_seconds"}
)
_HIDDEN = ("term_magnitude/",)


def parse_metrics(data: bytes) -> Sequence[Row]:
    """Return the rows of a file; without those that cannot be parsed, such as a last, incomplete one."""
    rows: list[Row] = []
    for line in data.splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            rows.append({name: value for name, value in row.items() if isinstance(value, int | float)})
    return rows


def trend_of(rows: Sequence[Row]) -> Trend:
    """Return the course of each metric; a part without a finite value is left out."""
    parts = min(PARTS, len(rows))
    groups = [rows[part * len(rows) // parts : (part + 1) * len(rows) // parts] for part in range(parts)]
    course: dict[str, list[float]] = {}
    for group in groups:
        for name in sorted({name for row in group for name in row if _is_shown(name)}):
            values = [value for row in group if (value := row.get(name)) is not None and math.isfinite(value)]
            if values:
                course.setdefault(name, []).append(sum(values) / len(values))
    return course


def merge_trends(trends: Sequence[Trend]) -> Trend:
    """Return the mean of several trends, part by part; metrics whose numbers of parts differ are left out."""
    course: dict[str, list[float]] = {}
    for name in sorted({name for entry in trends for name in entry}):
        columns = [entry[name] for entry in trends if name in entry]
        if len({len(column) for column in columns}) == 1:
            course[name] = [sum(values) / len(values) for values in zip(*columns, strict=True)]
    return course


def trend_text(course: Trend) -> str:
    """Return the trends in one line."""
    return ", ".join(f"{name} {' → '.join(f'{value:.4g}' for value in values)}" for name, values in course.items())


def _is_shown(name: str) -> bool:
    return name not in _COUNTERS and not name.endswith("per_second") and not name.startswith(_HIDDEN)


@dataclass(frozen=True)
class History:
    """A session's earlier iterations with their members and labels.

    :param members: members of each iteration's training, by its number.
    :param best: name of the best iteration; empty if there is none.
    :param trend: returns how a member's metrics developed; empty if they are not stored.
    """

    iterations: Sequence[v1.Iteration]
    members: Mapping[int, Sequence[v1.Member]] = field(default_factory=dict)
    labels: Sequence[Label] = ()
    best: str = ""
    trend: Callable[[v1.Member], Trend] = lambda _: {}

    def __getitem__(self, number: int) -> v1.Iteration:
        for entry in self.iterations:
            if entry.number == number:
                return entry
        raise KeyError(number)

    def training_members(self, number: int) -> Sequence[v1.Member]:
        """Return the members of an iteration's training."""
        return self.members.get(number, ())


def read(store: SessionStore, number: int, artifacts: ArtifactStore | None = None) -> History:
    """Return the history before iteration ``number``. Call it in a step.

    :param artifacts: holds the members' metrics, which are read on demand.
    """
    iterations = [entry for entry in store.iterations() if entry.number < number]
    members = {entry.number: store.members(names[-1]) for entry in iterations if (names := trainings(entry))}

    def trend(member: v1.Member) -> Trend:
        try:
            data = b"" if artifacts is None else artifacts.get(f"{member.name}/metrics.jsonl")
        except NotFound:
            return {}
        return trend_of(parse_metrics(data)) if len(data) <= MAX_BYTES else {}

    return History(iterations, members, store.labels(), store.get().best_iteration, trend)
