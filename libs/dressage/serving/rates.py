"""Rates of callers: a token bucket for each key.

The table is bounded: the bucket that was used least recently is dropped first, so a caller under many names cannot fill the
memory.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable


class TokenBuckets:
    """Token buckets by key. A new bucket is full.

    :param burst_seconds: a full bucket has the tokens of this time, and at least one.
    :param most: number of buckets that are kept.
    """

    def __init__(
        self, *, burst_seconds: float, most: int = 10_000, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._burst_seconds = burst_seconds
        self._most = most
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Tokens, and the time at which they were counted."""

    def take(self, key: str, rate: float) -> float:
        """Take a token.

        :param rate: tokens that a bucket gets per second.
        :returns: 0, or the seconds until there is a token; none is taken then.
        """
        tokens = self._tokens(key, rate)
        taken = tokens >= 1.0
        self._put(key, tokens - taken)
        return 0.0 if taken else (1.0 - tokens) / rate

    def give_back(self, key: str, rate: float) -> None:
        """Return a token that was taken."""
        self._put(key, self._tokens(key, rate) + 1.0)

    def _tokens(self, key: str, rate: float) -> float:
        most = max(rate * self._burst_seconds, 1.0)
        tokens, counted = self._buckets.get(key, (most, self._clock()))
        return min(most, tokens + (self._clock() - counted) * rate)

    def _put(self, key: str, tokens: float) -> None:
        self._buckets[key] = (tokens, self._clock())
        self._buckets.move_to_end(key)
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
