"""Environment steps per second, for progress reports."""

from __future__ import annotations

import time


class StepRate:
    """Environment steps per second between two reports."""

    def __init__(self) -> None:
        self._time, self._steps = time.monotonic(), 0

    def at(self, steps: int) -> float:
        """Return the rate since the last call.

        :param steps: environment steps so far.
        """
        now = time.monotonic()
        rate = (steps - self._steps) / max(1e-9, now - self._time)
        self._time, self._steps = now, steps
        return max(0.0, rate)
