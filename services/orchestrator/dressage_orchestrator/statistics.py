"""Statistics of small samples: mean, deviation, intervals, rank correlation and kappa. All are deterministic."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

BOOTSTRAP_RESAMPLES = 2000


def mean(values: Sequence[float]) -> float:
    """Compute the arithmetic mean; 0 for no values."""
    return math.fsum(values) / len(values) if values else 0.0


def deviation(values: Sequence[float]) -> float:
    """Compute the population standard deviation; 0 for fewer than two values."""
    if len(values) < 2:
        return 0.0
    centre = mean(values)
    return math.sqrt(math.fsum((value - centre) ** 2 for value in values) / len(values))


def bootstrap_interval(values: Sequence[float], *, seed: int = 0, confidence: float = 0.95) -> tuple[float, float]:
    """Compute the percentile bootstrap interval of the mean.

    For one value the interval is that value, for none it is (0, 0). It is within the range of the values.

    :param seed: seed of the resampling; the same values give the same interval.
    :param confidence: in (0, 1).
    """
    if not values:
        return 0.0, 0.0
    sample = np.asarray(values, dtype=np.float64)
    picks = np.random.default_rng(seed).integers(0, len(sample), size=(BOOTSTRAP_RESAMPLES, len(sample)))
    tail = (1.0 - confidence) / 2.0
    ends = np.quantile(sample[picks].mean(axis=1), [tail, 1.0 - tail])
    low, high = np.clip(ends, sample.min(), sample.max())  # a rounded mean may exceed the range by one bit
    return float(low), float(high)


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


def wilson_interval(passed: int, total: int, *, z: float = 1.959963984540054) -> tuple[float, float]:
    """Compute Wilson's interval of a success rate, 95 % by default; (0, 1) for no trials.

    Source: E. B. Wilson, Probable inference, the law of succession, and statistical inference (1927).
    """
    if not total:
        return 0.0, 1.0
    rate, square = passed / total, z * z
    centre = (rate + square / (2 * total)) / (1 + square / total)
    half = z / (1 + square / total) * math.sqrt(rate * (1 - rate) / total + square / (4 * total * total))
    return max(0.0, centre - half), min(1.0, centre + half)
