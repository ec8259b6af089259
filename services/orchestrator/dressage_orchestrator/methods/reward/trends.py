"""How a training's metrics developed, from the rows of its members' ``metrics.jsonl``. Pure.

A revision needs the course of a metric: an entropy of 4 is a collapse if it was 8 at first, and normal if it was 4.2. Each
metric is shown as its means over equal parts of the training, the first part first.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence

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


def parse(data: bytes) -> Sequence[Row]:
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


def trend(rows: Sequence[Row]) -> Trend:
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


def merged(trends: Sequence[Trend]) -> Trend:
    """Return the mean of several trends, part by part; metrics whose numbers of parts differ are left out."""
    course: dict[str, list[float]] = {}
    for name in sorted({name for entry in trends for name in entry}):
        columns = [entry[name] for entry in trends if name in entry]
        if len({len(column) for column in columns}) == 1:
            course[name] = [sum(values) / len(values) for values in zip(*columns, strict=True)]
    return course


def text(course: Trend) -> str:
    """Return the trends in one line."""
    return ", ".join(f"{name} {' → '.join(f'{value:.4g}' for value in values)}" for name, values in course.items())


def _is_shown(name: str) -> bool:
    return name not in _COUNTERS and not name.endswith("per_second") and not name.startswith(_HIDDEN)
