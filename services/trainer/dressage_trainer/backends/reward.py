"""Calls of a generated reward inside the learner: which fields of the state it reads, and whether a call returns.

A trained policy reaches states that no check has seen, and in one of them a loop in the reward may never end. The learner
would hang for ever, and the sandbox cannot distinguish that from a long training. So a thread watches the calls.
"""

from __future__ import annotations

import ast
import functools
import threading
import time
from collections.abc import Callable
from typing import Any

from dressage.contracts.reward import BatchReward, RewardModule, RewardOutput
from dressage.envs.cards import EnvironmentCard
from dressage.envs.state import State
from numpy.typing import NDArray

STALLED_SECONDS = 300.0
"""The slowest reward that passes its check takes a twentieth of it for its largest batch (65,536 rows of 0.25 ms)."""


def fields_read(source: str, module: RewardModule, card: EnvironmentCard) -> frozenset[str] | None:
    """Return the fields of the state that a reward can read, so that the simulator copies no others; None: all.

    The lint permits attribute access as the only way to a field. So every field whose name occurs as an attribute counts,
    whatever the object.
    """
    if module.style != "vectorised":
        return None
    attributes = {node.attr for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)}
    if attributes & {"fields", "rows"}:
        return None
    return frozenset(attributes & {field.name for field in card.fields})


def thread_clock() -> Callable[[], float]:
    """Return a clock of the calling thread's processor seconds, which any thread may read.

    With it a call does not look stalled on a machine that is busy or suspended. Platforms without such a clock get
    monotonic seconds.
    """
    if not hasattr(time, "pthread_getcpuclockid"):
        return time.monotonic
    return functools.partial(time.clock_gettime, time.pthread_getcpuclockid(threading.get_ident()))


class CallWatch:
    """Start of the call in progress, written by the thread that trains and read by another.

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
        """Return how long the call in progress has taken; 0 if there is none."""
        since = self._since
        return 0.0 if since is None else self._clock() - since


class WatchedReward(BatchReward):
    """A reward whose calls are watched."""

    def __init__(self, watch: CallWatch, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._watch = watch

    def __call__(self, state: State, action: NDArray[Any], next_state: State) -> RewardOutput:
        """See `BatchReward`."""
        with self._watch:
            return super().__call__(state, action, next_state)
