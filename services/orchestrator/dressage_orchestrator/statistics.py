"""Statistics of few samples: means, spreads and a bootstrap interval that does not change when asked twice."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

BOOTSTRAP_RESAMPLES = 2000


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean; 0 for no values."""
    return math.fsum(values) / len(values) if values else 0.0


def deviation(values: Sequence[float]) -> float:
    """Population standard deviation; 0 for fewer than two values."""
    if len(values) < 2:
        return 0.0
    centre = mean(values)
    return math.sqrt(math.fsum((value - centre) ** 2 for value in values) / len(values))


def bootstrap_interval(values: Sequence[float], *, seed: int = 0, confidence: float = 0.95) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean.

    With one value the interval is that value; with none it is (0, 0). It lies within the values' range.

    :param seed: of the resampling, so that the same values give the same interval.
    :param confidence: in (0, 1).
    """
    if not values:
        return 0.0, 0.0
    sample = np.asarray(values, dtype=np.float64)
    picks = np.random.default_rng(seed).integers(0, len(sample), size=(BOOTSTRAP_RESAMPLES, len(sample)))
    tail = (1.0 - confidence) / 2.0
    ends = np.quantile(sample[picks].mean(axis=1), [tail, 1.0 - tail])
    low, high = np.clip(ends, sample.min(), sample.max())  # rounding of a mean may step outside by one bit
    return float(low), float(high)
