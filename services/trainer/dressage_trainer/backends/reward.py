"""Tells when a call of the reward does not return.

What a reward does with states that only a trained policy reaches, no check has seen: a loop may never end there. The learner
would hang for ever, and the sandbox cannot tell that from a long training.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import Any

from dressage.contracts.reward import BatchReward, RewardOutput
from dressage.envs.state import State
from numpy.typing import NDArray

STALLED_SECONDS = 300.0
"""The slowest reward that passes its check takes a twentieth of it for its largest batch (65,536 rows of 0.25 ms)."""


def thread_clock() -> Callable[[], float]:
    """Processor seconds of the thread that asks for the clock, which any thread may read.

    A machine that is busy, or suspended, does not make a call look stalled. Where there is no such clock: seconds, monotonic.
    """
    if not hasattr(time, "pthread_getcpuclockid"):
        return time.monotonic
    return functools.partial(time.clock_gettime, time.pthread_getcpuclockid(threading.get_ident()))


class CallWatch:
    """When the call under way began, written by the thread that trains and read by another.

    :param clock: seconds, see `thread_clock`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: float | None = None

    def __enter__(self) -> None:
        self._since = self._clock()

    def __exit__(self, *_: object) -> None:
        self._since = None

    def seconds(self) -> float:
        """How long the call under way has taken; 0 where there is none."""
        since = self._since
        return 0.0 if since is None else self._clock() - since


class WatchedReward(BatchReward):
    """A reward whose calls are watched."""

    def __init__(self, watch: CallWatch, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._watch = watch

    def __call__(self, state: State, action: NDArray[Any], next_state: State) -> RewardOutput:
        """As `BatchReward`."""
        with self._watch:
            return super().__call__(state, action, next_state)
