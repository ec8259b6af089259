"""What a report shows, computed from the results of one or more experiments: no files and no text here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dressage import statistics
from dressage.errors import InvalidArgument
from dressage.experiments.records import Record
from dressage.statistics import Array, Interval, Summary

Metric = Literal["score", "best", "mean_winner"]
METRICS: Mapping[Metric, str] = {
    "score": "mean return on report seeds",
    "best": "highest mean return of a candidate on search seeds",
    "mean_winner": "mean return of the chosen candidates of all iterations",
}
_GRID = 100
_TASKS_FOR_AGGREGATES = 2


@dataclass(frozen=True)
class Results:
    """Results; environments and methods have the order in which they first occur."""

    records: Sequence[Record]

    @property
    def environments(self) -> list[str]:
        """Environments of the results."""
        return list(dict.fromkeys(record.environment for record in self.records))

    @property
    def methods(self) -> list[str]:
        """Methods of the results."""
        return list(dict.fromkeys(record.method for record in self.records))

    def of(self, environment: str, method: str) -> list[Record]:
        """Return the runs of a method in an environment, by their numbers."""
        runs = [entry for entry in self.records if (entry.environment, entry.method) == (environment, method)]
        return sorted(runs, key=lambda entry: entry.run)

    def values(self, environment: str, method: str, metric: Metric) -> list[float]:
        """Return the values of a metric; runs without one are left out."""
        values = (getattr(entry, metric) for entry in self.of(environment, method))
        return [float(value) for value in values if value is not None]


@dataclass(frozen=True)
class Row:
    """A method in an environment."""

    environment: str
    method: str
    runs: int
    metrics: Mapping[Metric, Summary]
    """Without the metrics that no run has."""
    reached: int
    """Runs that reached the target."""
    target: float | None
    episodes: float
    """Mean number of episodes of the search."""
    tokens: float
    """Mean number of tokens."""
    dollars: float | None
    """Sum over runs; None if a price is unknown."""
    seconds: float | None
    """Mean duration of a session."""


@dataclass(frozen=True)
class Comparison:
    """Welch's test of a reference method against a baseline in an environment."""

    environment: str
    baseline: str
    difference: float
    """Mean of the reference less that of the baseline."""
    statistic: float
    p: float
    holm: float
    """p after Holm's correction over the environments of this baseline."""


@dataclass(frozen=True)
class Aggregate:
    """A method over the environments that it shares with the reference, on normalised scores."""

    method: str
    iqm: Interval
    environments: int
    improvement: Interval | None
    """Probability that the reference is better; None for the reference itself."""


@dataclass(frozen=True)
class CurveLine:
    """Best score so far of a method in an environment, over its runs."""

    environment: str
    method: str
    axis: Literal["episodes", "tokens"]
    positions: Array
    mean: Array
    low: Array
    high: Array


@dataclass(frozen=True)
class Analysis:
    """All parts of a report."""

    results: Results
    metric: Metric
    reference: str
    rows: Sequence[Row]
    comparisons: Sequence[Comparison]
    aggregates: Sequence[Aggregate]
    bounds: Mapping[str, tuple[float, float]]
    """Returns that count as 0 and 1, by environment."""
    curves: Sequence[CurveLine]


def analyse(records: Sequence[Record], *, metric: Metric, reference: str) -> Analysis:
    """Return the analysis of results that ended well.

    :param metric: of tests and aggregates.
    :param reference: method that tests compare with all others; empty: the first one.
    :raises InvalidArgument: for no results, or an unknown reference.
    """
    results = Results([record for record in records if record.ended_well])
    if not results.records:
        raise InvalidArgument(
            field="FOLDER", problem="no results", expected="a folder that `dressage bench` has written"
        )
    chosen = reference or results.methods[0]
    if chosen not in results.methods:
        expected = f"one of {', '.join(results.methods)}"
        raise InvalidArgument(field="--reference", problem="unknown method", value=chosen, expected=expected)
    bounds = {name: bounds_of(results, name, metric) for name in results.environments}
    return Analysis(
        results=results,
        metric=metric,
        reference=chosen,
        rows=[_row(results, e, m) for e in results.environments for m in results.methods if results.of(e, m)],
        comparisons=comparisons(results, chosen, metric),
        aggregates=_aggregates(results, chosen, metric, bounds),
        bounds=bounds,
        curves=[line for axis in ("episodes", "tokens") for line in _curves(results, axis)],
    )


def _row(results: Results, environment: str, method: str) -> Row:
    runs = results.of(environment, method)
    metrics = {name: values for name in METRICS if (values := results.values(environment, method, name))}
    costs = [run.dollars for run in runs]
    seconds = [run.seconds for run in runs if run.seconds is not None]
    return Row(
        environment=environment,
        method=method,
        runs=len(runs),
        metrics={name: statistics.summary(values) for name, values in metrics.items()},
        reached=sum(1 for run in runs if run.state == "succeeded"),
        target=runs[0].target,
        episodes=float(np.mean([run.episodes for run in runs])),
        tokens=float(np.mean([run.input_tokens + run.output_tokens for run in runs])),
        dollars=None if None in costs else sum(cost for cost in costs if cost is not None),
        seconds=float(np.mean(seconds)) if seconds else None,
    )


def comparisons(results: Results, reference: str, metric: Metric) -> list[Comparison]:
    """Test the reference against each other method.

    As in the R2PO paper: Welch's two-sided test in each environment; Holm's correction over the environments, for each
    baseline by itself. Environments in which either method has no value are left out of the family.
    """
    tested = []
    for baseline in results.methods:
        if baseline == reference:
            continue
        tests = []
        for environment in results.environments:
            ours = results.values(environment, reference, metric)
            others = results.values(environment, baseline, metric)
            if ours and others:
                gap = float(np.mean(ours) - np.mean(others))
                tests.append((environment, gap, statistics.welch(ours, others)))
        corrected = statistics.holm([test.p for _, _, test in tests])
        for (environment, gap, test), holm in zip(tests, corrected, strict=True):
            tested.append(Comparison(environment, baseline, gap, test.statistic, test.p, holm))
    return tested


def bounds_of(results: Results, environment: str, metric: Metric) -> tuple[float, float]:
    """Return the scores that count as 0 and 1: those of the experiment's file, else the lowest and highest of all runs."""
    for record in results.records:
        if record.environment == environment and record.score_range is not None:
            return record.score_range
    values = [value for method in results.methods for value in results.values(environment, method, metric)]
    return (min(values), max(values)) if values else (0.0, 1.0)


def _aggregates(
    results: Results, reference: str, metric: Metric, bounds: Mapping[str, tuple[float, float]]
) -> list[Aggregate]:
    """Return IQM and probability of improvement of each method, over the environments that it shares with the reference."""
    rows = []
    for method in results.methods:
        shared = [
            environment
            for environment in results.environments
            if all(results.values(environment, name, metric) for name in (reference, method))
        ]
        if len(shared) < _TASKS_FOR_AGGREGATES:
            continue
        ours, scores = (
            [statistics.normalise(results.values(name, each, metric), bounds[name]) for name in shared]
            for each in (reference, method)
        )
        rows.append(
            Aggregate(
                method=method,
                iqm=statistics.stratified_bootstrap(scores, statistics.iqm),
                environments=len(shared),
                improvement=None if method == reference else statistics.improvement(ours, scores),
            )
        )
    return rows if len(rows) > 1 or len(results.methods) == 1 else []


def _curves(results: Results, axis: Literal["episodes", "tokens"]) -> list[CurveLine]:
    """Return a line for each method and environment whose runs have points on the axis."""
    lines = []
    place = 0 if axis == "episodes" else 1
    for environment in results.environments:
        for method in results.methods:
            runs = [run.curve for run in results.of(environment, method) if run.curve and run.curve[-1][place] > 0]
            if not runs:
                continue
            steps = [
                (np.array([point[place] for point in run], float), np.array([point[3] for point in run]))
                for run in runs
            ]
            grid = np.linspace(
                max(positions[0] for positions, _ in steps), max(positions[-1] for positions, _ in steps), _GRID
            )
            mean, low, high = statistics.mean_curve(steps, grid)
            lines.append(CurveLine(environment, method, axis, grid, mean, low, high))
    return lines
