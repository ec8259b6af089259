"""Whether a training's scores or returns still rise, from its last checkpoints. Pure.

The statistic is the seasonal Kendall test (Hirsch, Slack & Smith, 1982) with a seed in place of a season: for each seed the
number of pairs of checkpoints of which the later is higher, minus those of which it is lower, summed over the seeds. Where the
checkpoints of a seed are exchangeable, all orders are equally probable, so the distribution of the sum is exact for any number
of seeds and checkpoints; ties make the test conservative. It needs no unit, no variance and no shape of the curve.

A rise that is no chance may still be too small to wait for: it must be a tenth of what the training gained since its start.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Sequence

WINDOW = 5
"""Number of checkpoints, at most."""
CHANCE = 0.05
"""Largest probability of such a rise where there is none."""
SHARE = 0.1
"""Smallest rise over the window, as a share of the range of the seeds' mean since the start."""

Series = Sequence[Sequence[float]]
"""For each seed its values at the checkpoints so far, in order, equally many."""


def rises(series: Series) -> tuple[bool, float]:
    """Return whether values rise over the last checkpoints, and the probability of this if they were level."""
    window = [values[-WINDOW:] for values in series]
    chance = chance_of(window)
    means = [statistics.fmean(values) for values in zip(*series, strict=True)]
    span = max(means) - min(means) if means else 0.0
    return chance <= CHANCE and _rise(window) >= SHARE * span > 0, chance


def chance_of(window: Series) -> float:
    """Return the probability that level values rise as clearly as these, or more clearly."""
    lengths = tuple(sorted(len(values) for values in window))
    seen = sum(_concordance(values) for values in window)
    return sum(share for total, share in _distribution(lengths).items() if total >= seen)


def _concordance(values: Sequence[float]) -> int:
    """Kendall's S: pairs in rising order minus pairs in falling order."""
    return sum(
        (later > earlier) - (later < earlier) for place, earlier in enumerate(values) for later in values[place + 1 :]
    )


@functools.cache
def _distribution(lengths: tuple[int, ...]) -> dict[int, float]:
    """Distribution of the sum of S over independent random orders of these lengths, without ties."""
    whole = {0: 1.0}
    for length in lengths:
        # Inserting the n-th value into a random order moves it past 0 to n - 1 others with equal probability.
        for n in range(2, length + 1):
            moved: dict[int, float] = {}
            for total, share in whole.items():
                for passed in range(n):
                    key = total + (n - 1) - 2 * passed
                    moved[key] = moved.get(key, 0.0) + share / n
            whole = moved
    return whole


def _rise(window: Series) -> float:
    """Mean over the seeds of the rise over the window, by the median slope of pairs (Theil and Sen)."""
    rises_ = []
    for values in window:
        slopes = [(values[j] - values[i]) / (j - i) for i in range(len(values)) for j in range(i + 1, len(values))]
        rises_.append(statistics.median(slopes) * (len(values) - 1) if slopes else 0.0)
    return statistics.fmean(rises_) if rises_ else 0.0
