"""Searches over programs: how many runs solve a task, and the best return, against the programs evaluated.

A run reaches the target when a program does on search states, which is what papers count. It solves its task when such a
program reaches the target on report states as well. A search ends there, so that the programs evaluated by then are those it
needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dressage.experiments import statistics
from dressage.experiments.analysis import Results
from dressage.experiments.records import Record
from dressage.experiments.statistics import Array, Interval, ShareDifference

PROGRAM = "program"
"""Name of the method of the API."""
_FIRST_MARK = 1_000
_POINTS = 121
_LOWEST = 10
_ROUNDING = 1e-9
"""What rounding may take from a mean return; see `dressage.programs.families`."""


@dataclass(frozen=True)
class Line:
    """Runs of a method in an environment at numbers of programs evaluated: arrays of the same length."""

    programs: Array
    solved: Sequence[Interval]
    """Share of runs that solved the task, with Wilson's interval."""
    reached: Sequence[Interval]
    """Share of runs that reached the target on search states."""
    best: Sequence[Interval]
    """Mean over runs of the highest mean return on search states, with its bootstrap interval."""


@dataclass(frozen=True)
class Success:
    """A method in an environment."""

    environment: str
    method: str
    runs: int
    solved: int
    reached: int
    """Runs that reached the target on search states."""
    median: float
    """Median over runs of the programs to a solution; infinite if fewer than half of the runs solved the task."""
    fewest: float
    """Programs of the fastest run; infinite if none solved the task."""
    budget: int
    marks: Line
    """At powers of ten up to the budget."""
    curve: Line
    """At many numbers up to the budget, evenly spaced on a logarithmic scale."""
    solved_difference: ShareDifference | None
    """Share of runs of this method that solved the task less that of the reference; None for the reference."""
    reached_difference: ShareDifference | None
    """The same for runs that reached the target on search states."""


def are_programs(records: Sequence[Record]) -> bool:
    """Return whether all results are those of searches over programs."""
    return bool(records) and all(record.settings.get("method") == PROGRAM for record in records)


def successes(results: Results, reference: str) -> list[Success]:
    """Return each method in each environment, in the order of the results.

    :param results: of searches over programs.
    :param reference: method that the others are compared with.
    """
    rows = []
    for environment in results.environments:
        compared = results.of(environment, reference)
        for method in results.methods:
            if runs := results.of(environment, method):
                rows.append(_success(runs, compared if method != reference else []))
    return rows


def programs_to_solution(run: Record) -> float:
    """Return how many programs a run evaluated until it solved its task; infinite if it did not.

    A session can also succeed at the end of its budget with a program that reaches the target on report states only; that is
    luck, not a solution.
    """
    solved = run.state == "succeeded" and math.isfinite(programs_to_target(run))
    return float(run.candidates) if solved else float("inf")


def programs_to_target(run: Record) -> float:
    """Return how many programs a run evaluated until one reached the target on search states; infinite if none did."""
    if run.target is None:
        return float("inf")
    threshold = run.target - _ROUNDING
    return float(next((programs for programs, _, _, best in run.curve if best >= threshold), float("inf")))


def _success(runs: Sequence[Record], compared: Sequence[Record]) -> Success:
    solved, reached = _needed(runs, programs_to_solution), _needed(runs, programs_to_target)
    budget, ordered = max(_budget(run) for run in runs), np.sort(solved)

    def difference(needed: Array, of: Callable[[Record], float]) -> ShareDifference | None:
        return statistics.share_difference(_share(needed), _share(_needed(compared, of)))

    return Success(
        environment=runs[0].environment,
        method=runs[0].method,
        runs=len(runs),
        solved=_share(solved)[0],
        reached=_share(reached)[0],
        median=float((ordered[(len(runs) - 1) // 2] + ordered[len(runs) // 2]) / 2),
        fewest=float(ordered[0]),
        budget=budget,
        marks=_line(runs, solved, reached, _marks(budget)),
        curve=_line(runs, solved, reached, np.geomspace(min(_LOWEST, budget), budget, _POINTS)),
        solved_difference=difference(solved, programs_to_solution),
        reached_difference=difference(reached, programs_to_target),
    )


def _needed(runs: Sequence[Record], of: Callable[[Record], float]) -> Array:
    return np.array([of(run) for run in runs], float)


def _share(needed: Array) -> tuple[int, int]:
    return int(np.isfinite(needed).sum()), len(needed)


def _line(runs: Sequence[Record], solved: Array, reached: Array, grid: Array) -> Line:
    steps = [
        (np.array([point[0] for point in run.curve], float), np.array([point[3] for point in run.curve]))
        for run in runs
        if run.curve
    ]
    mean, low, high = statistics.mean_curve(steps, grid) if steps else (np.full(len(grid), np.nan),) * 3
    return Line(
        grid,
        _shares(solved, grid),
        _shares(reached, grid),
        [Interval(float(a), float(b), float(c)) for a, b, c in zip(mean, low, high, strict=True)],
    )


def _shares(needed: Array, grid: Array) -> list[Interval]:
    # A grid of powers may miss the budget by a rounding error.
    return [statistics.wilson(int((needed <= programs * (1 + 1e-9)).sum()), len(needed)) for programs in grid]


def _marks(budget: int) -> Array:
    """Return powers of ten below the budget, and the budget."""
    marks, mark = [], _FIRST_MARK
    while mark < budget:
        marks.append(mark)
        mark *= 10
    return np.array([*marks, budget], float)


def _budget(run: Record) -> int:
    return int(run.settings.get("budget") or run.candidates)
