"""Statistics of small samples: intervals, rank correlation, agreement, tests, and aggregates over tasks. All are deterministic.

The aggregates follow R. Agarwal, M. Schwarzer, P. S. Castro, A. Courville and M. G. Bellemare, Deep Reinforcement Learning at
the Edge of the Statistical Precipice, NeurIPS 2021: the interquartile mean over all runs of all tasks, bootstrap intervals
stratified by task, and the probability of improvement. scipy (extra ``experiments``) is imported when a test is computed.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
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
_ENDS = ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)
_NORMAL_QUANTILE = 1.959963984540054


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


def mean(values: Sequence[float]) -> float:
    """Compute the arithmetic mean; 0 for no values."""
    return math.fsum(values) / len(values) if values else 0.0


def deviation(values: Sequence[float]) -> float:
    """Compute the population standard deviation; 0 for fewer than two values."""
    if len(values) < 2:
        return 0.0
    centre = mean(values)
    return math.sqrt(math.fsum((value - centre) ** 2 for value in values) / len(values))


def bootstrap_interval(values: Sequence[float], *, seed: int = 0) -> tuple[float, float]:
    """Compute the 95 % percentile bootstrap interval of the mean.

    For one value the interval is that value, for none it is (0, 0). It is within the range of the values.

    :param seed: of the resampling; the same values give the same interval.
    """
    if not len(values):
        return 0.0, 0.0
    sample = np.asarray(values, dtype=np.float64)
    picks = np.random.default_rng(seed).integers(0, len(sample), size=(RESAMPLES, len(sample)))
    ends = np.quantile(sample[picks].mean(axis=1), _ENDS)
    low, high = np.clip(ends, sample.min(), sample.max())  # a rounded mean may exceed the range by one bit
    return float(low), float(high)


def summary(values: Sequence[float], *, seed: int = 0) -> Summary:
    """Summarise at least one value.

    :param seed: of the resampling; the same values give the same interval.
    """
    sample = np.asarray(values, dtype=np.float64)
    spread = float(sample.std(ddof=1)) if len(sample) > 1 else 0.0
    return Summary(float(sample.mean()), spread, *bootstrap_interval(values, seed=seed), len(sample))


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
    low, high = np.quantile(drawn, _ENDS)
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


def normalise(values: Sequence[float], bounds: tuple[float, float]) -> Array:
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
    low, high = np.quantile(rows[picks].mean(axis=1), _ENDS, axis=0)
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


def wilson(successes: int, trials: int) -> Interval:
    """Return a share with Wilson's interval; 0 in (0, 1) for no trials.

    Source: E. B. Wilson, Probable inference, the law of succession, and statistical inference, JASA 22 (1927).
    """
    if not trials:
        return Interval(0.0, 0.0, 1.0)
    rate, square = successes / trials, _NORMAL_QUANTILE**2
    centre = (rate + square / (2 * trials)) / (1 + square / trials)
    root = math.sqrt(rate * (1 - rate) / trials + square / (4 * trials * trials))
    half = _NORMAL_QUANTILE / (1 + square / trials) * root
    return Interval(rate, max(0.0, centre - half), min(1.0, centre + half))


def ranks(values: Sequence[float]) -> list[float]:
    """Compute ranks from 1; equal values share the mean of their ranks."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ranked = [0.0] * len(values)
    begin = 0
    while begin < len(order):
        end = begin
        while end + 1 < len(order) and values[order[end + 1]] == values[order[begin]]:
            end += 1
        for place in order[begin : end + 1]:
            ranked[place] = (begin + end) / 2 + 1
        begin = end + 1
    return ranked


def spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Compute Spearman's rank correlation; None for fewer than three pairs, or if one side is constant."""
    if len(first) < 3 or len(set(first)) < 2 or len(set(second)) < 2:
        return None
    a, b = ranks(first), ranks(second)
    middle = (len(a) + 1) / 2
    covariance = math.fsum((x - middle) * (y - middle) for x, y in zip(a, b, strict=True))
    spread = math.fsum((x - middle) ** 2 for x in a) * math.fsum((y - middle) ** 2 for y in b)
    return max(-1.0, min(1.0, covariance / math.sqrt(spread)))


def cohen_kappa(first: Sequence[bool], second: Sequence[bool]) -> float | None:
    """Compute Cohen's kappa of two binary raters; None for no pairs, or if chance agreement is 1."""
    count = len(first)
    if not count:
        return None
    observed = sum(a == b for a, b in zip(first, second, strict=True)) / count
    yes_a, yes_b = sum(first) / count, sum(second) / count
    chance = yes_a * yes_b + (1 - yes_a) * (1 - yes_b)
    return None if chance == 1.0 else (observed - chance) / (1 - chance)


def _scipy_stats() -> Any:
    try:
        from scipy import stats
    except ImportError as error:
        message = f"Welch's test needs scipy: {install_command('experiments')}"
        raise FailedPrecondition(message, reason="MISSING_PACKAGE") from error
    return stats
