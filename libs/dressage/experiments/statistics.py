"""Statistics of experiments: intervals, Welch's test with Holm's correction, and the aggregates of Agarwal et al.

The aggregates follow R. Agarwal, M. Schwarzer, P. S. Castro, A. Courville and M. G. Bellemare, Deep Reinforcement Learning at
the Edge of the Statistical Precipice, NeurIPS 2021: the interquartile mean over all runs of all tasks, bootstrap intervals
stratified by task, and the probability of improvement. scipy (extra ``experiments``) is imported when a test is computed.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dressage.errors import FailedPrecondition
from dressage.installation import install_command

Array = NDArray[np.float64]
Strata = Sequence[Array]
"""Scores of the runs of each task; tasks may have different numbers of runs."""

RESAMPLES = 2000
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Summary:
    """Mean, sample standard deviation and bootstrap interval of the mean."""

    mean: float
    deviation: float
    """Sample standard deviation (n - 1); 0 for one value."""
    low: float
    high: float
    count: int


@dataclass(frozen=True)
class Test:
    """Result of a two-sided test."""

    __test__ = False  # no class of tests

    statistic: float
    p: float


def summary(values: Sequence[float], *, seed: int = 0) -> Summary:
    """Summarise at least one value.

    :param seed: of the resampling; the same values give the same interval.
    """
    sample = np.asarray(values, dtype=np.float64)
    deviation = float(sample.std(ddof=1)) if len(sample) > 1 else 0.0
    interval = stratified_bootstrap([sample], lambda strata: float(np.mean(strata[0])), seed=seed)
    return Summary(float(sample.mean()), deviation, interval.low, interval.high, len(sample))


def welch(first: Sequence[float], second: Sequence[float]) -> Test:
    """Compute Welch's two-sided test of equal means.

    Where the statistic is not defined, because both samples are constant or have one value, it is 0 and p is 1, as in the R2PO
    paper.

    :raises FailedPrecondition: if scipy is not installed.
    """
    stats = _scipy_stats()
    if len(first) < 2 or len(second) < 2:
        return Test(0.0, 1.0)
    with np.errstate(all="ignore"), warnings.catch_warnings():  # scipy warns of constant samples
        warnings.simplefilter("ignore", RuntimeWarning)
        result = stats.ttest_ind(np.asarray(first, float), np.asarray(second, float), equal_var=False)
    statistic, p = float(result.statistic), float(result.pvalue)
    if math.isnan(statistic) or math.isnan(p):
        return Test(0.0, 1.0)
    return Test(statistic, p)


def holm(values: Sequence[float]) -> list[float]:
    """Return the p values after Holm's step-down correction, in the given order.

    Source: S. Holm, A simple sequentially rejective multiple test procedure, Scandinavian Journal of Statistics 6 (1979).
    """
    count = len(values)
    adjusted = [0.0] * count
    highest = 0.0
    for rank, place in enumerate(sorted(range(count), key=values.__getitem__)):
        highest = max(highest, min(1.0, (count - rank) * values[place]))
        adjusted[place] = highest
    return adjusted


def iqm(strata: Strata) -> float:
    """Return the interquartile mean of all runs of all tasks: the mean without the lowest and the highest quarter.

    Of n scores, int(n / 4) are left out at each end, as `scipy.stats.trim_mean` does with 0.25.
    """
    scores = np.sort(np.concatenate([np.asarray(part, dtype=np.float64) for part in strata]))
    cut = int(0.25 * len(scores))
    return float(scores[cut : len(scores) - cut].mean())


def stratified_bootstrap(
    strata: Strata, statistic: Callable[[Strata], float], *, seed: int = 0, resamples: int = RESAMPLES
) -> Interval:
    """Return a statistic with its percentile bootstrap interval; runs are resampled within each task.

    :param strata: each with at least one run.
    :param seed: of the resampling.
    """
    parts = [np.asarray(part, dtype=np.float64) for part in strata]
    generator = np.random.default_rng(seed)
    drawn = np.empty(resamples)
    for index in range(resamples):
        drawn[index] = statistic([part[generator.integers(0, len(part), len(part))] for part in parts])
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    return Interval(statistic(parts), float(low), float(high))


def probability_of_improvement(first: Strata, second: Strata) -> float:
    """Return the mean over tasks of the probability that a run of the first method is better than one of the second.

    A tie counts half: for each task it is the statistic of Mann and Whitney divided by the number of pairs.

    :param first: tasks in the order of ``second``.
    """
    shares = []
    for ours, others in zip(first, second, strict=True):
        ordered = np.sort(others)
        below = np.searchsorted(ordered, ours, side="left")
        up_to = np.searchsorted(ordered, ours, side="right")
        shares.append(float((below + up_to).sum()) / (2 * len(ours) * len(others)))
    return float(np.mean(shares))


def improvement(first: Strata, second: Strata, *, seed: int = 0) -> Interval:
    """Return the probability of improvement with its stratified bootstrap interval."""
    tasks = len(first)

    def statistic(strata: Strata) -> float:
        return probability_of_improvement(strata[:tasks], strata[tasks:])

    return stratified_bootstrap([*first, *second], statistic, seed=seed)


def normalised(values: Sequence[float], bounds: tuple[float, float]) -> Array:
    """Return scores on a scale on which the lower bound is 0 and the upper bound is 1; equal bounds give 1."""
    low, high = bounds
    sample = np.asarray(values, dtype=np.float64)
    return (sample - low) / (high - low) if high > low else np.ones_like(sample)


def mean_curve(curves: Sequence[tuple[Array, Array]], grid: Array, *, seed: int = 0) -> tuple[Array, Array, Array]:
    """Return mean, lower and upper bound over runs of step functions on a grid.

    A run has the value of its last point at or before a position; before its first point that of the first, and after its last
    point that of the last.

    :param curves: positions in ascending order and values of each run, at least one point each.
    :return: three arrays of the shape of the grid; the bounds are those of the 95 % bootstrap interval of the mean.
    """
    rows = np.stack([_step(positions, values, grid) for positions, values in curves])
    picks = np.random.default_rng(seed).integers(0, len(rows), size=(RESAMPLES // 4, len(rows)))
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(rows[picks].mean(axis=1), [tail, 1 - tail], axis=0)
    return rows.mean(axis=0), low, high


def _step(positions: Array, values: Array, grid: Array) -> Array:
    places = np.clip(np.searchsorted(positions, grid, side="right") - 1, 0, len(values) - 1)
    stepped: Array = values[places]
    return stepped


@dataclass(frozen=True)
class ShareDifference:
    """Two shares and their difference, each with a 95 % interval."""

    first: Interval
    second: Interval
    difference: Interval
    first_count: int
    second_count: int


def share_difference(first: tuple[int, int], second: tuple[int, int]) -> ShareDifference | None:
    """Compare two shares; None if one has no trials.

    Intervals are Wilson's; that of the difference is Newcombe's hybrid score interval.
    Source: R. G. Newcombe, Interval estimation for the difference between independent proportions, Statistics in Medicine 17
    (1998), method 10.

    :param first: successes and trials.
    """
    if not first[1] or not second[1]:
        return None
    a, b = wilson(*first), wilson(*second)
    gap = a.value - b.value
    low = gap - math.hypot(a.value - a.low, b.high - b.value)
    high = gap + math.hypot(a.high - a.value, b.value - b.low)
    return ShareDifference(a, b, Interval(gap, low, high), first[1], second[1])


def wilson(successes: int, trials: int, *, z: float = 1.959963984540054) -> Interval:
    """Return a share with Wilson's interval.

    Source: E. B. Wilson, Probable inference, the law of succession, and statistical inference, JASA 22 (1927).

    :param trials: at least one.
    :param z: quantile of the normal distribution; the default is that of 95 %.
    """
    rate, square = successes / trials, z * z
    centre = (rate + square / (2 * trials)) / (1 + square / trials)
    half = z / (1 + square / trials) * math.sqrt(rate * (1 - rate) / trials + square / (4 * trials * trials))
    return Interval(rate, max(0.0, centre - half), min(1.0, centre + half))


def by_task(scores: Mapping[str, Sequence[float]], tasks: Sequence[str]) -> list[Array]:
    """Return the scores of each task as arrays, in the order of the tasks."""
    return [np.asarray(scores[task], dtype=np.float64) for task in tasks]


def _scipy_stats() -> Any:
    try:
        from scipy import stats
    except ImportError as error:
        message = f"Welch's test needs scipy: {install_command('experiments')}"
        raise FailedPrecondition(message, reason="MISSING_PACKAGE") from error
    return stats
