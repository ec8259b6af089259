"""Writes how long each test took. `make test-all` writes `build/durations.tsv`; `tests/durations.tsv` records one run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.extended import is_extended

_SHORTEST = 0.05


def seconds_by_test(phases: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Return the sum of a test's phases: setup, call and teardown."""
    seconds: dict[str, float] = defaultdict(float)
    for test, phase in phases:
        seconds[test] += phase
    return seconds


def write_table(path: Path, seconds: Mapping[str, float], *, heading: str) -> None:
    """Write a line for each test of at least 0.05 s, the longest first, and one for the others of each file."""
    rows: dict[str, float] = defaultdict(float)
    for test, value in seconds.items():
        rows[test if value >= _SHORTEST else f"{test.partition('::')[0]} (tests below {_SHORTEST} s)"] += value
    lines = [f"# {heading}", "seconds\trun\ttest"]
    for test, value in sorted(rows.items(), key=lambda row: (-row[1], row[0])):
        file = test.partition(" (")[0].partition("::")[0]
        lines.append(f"{value:.2f}\t{'test-all' if is_extended(test) or is_extended(file) else 'test'}\t{test}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
