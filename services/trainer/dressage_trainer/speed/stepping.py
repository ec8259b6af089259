"""Step a batch as a whole on the simulator's threads, or in parts on threads of the trainer, whichever is faster now.

The simulator's threads synchronise after every step and wait actively. On dedicated cores this is the fastest way. On
cores shared with a busy process it is the slowest: a thread that lost its core makes all others wait, and waiting uses
their cores (measured with two threads and a busy process: slower than one thread). Parts are batches of one thread each. The
trainer's threads take them from a list and wait asleep, so that a thread with less of its core takes fewer parts.

Rows do not depend on each other, so both ways give the same bits, and a run may change between them at any boundary.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from dressage.envs.mujoco_batch import MujocoBatch
from dressage.envs.protocol import BatchEnv, BatchStep
from dressage.envs.state import State

Arrays = dict[str, np.ndarray]

_PARTS_PER_THREAD = 2
_WHOLE_SNAPSHOT = frozenset({"environment", "divergences"})
_MARGIN = 1.1
_CHANGED = 0.6
_FIRST_PROBE, _LAST_PROBE = 4, 256


class PartedBatch:
    """A `BatchEnv` of consecutive parts, stepped by a pool of threads.

    :param make: makes a batch of so many environments on one thread.
    """

    def __init__(self, make: Callable[[int], BatchEnv], num_envs: int, *, threads: int) -> None:
        count = min(num_envs, _PARTS_PER_THREAD * threads)
        edges = np.linspace(0, num_envs, count + 1).round().astype(int)
        self._rows = [slice(int(a), int(b)) for a, b in itertools.pairwise(edges)]
        self._parts = [make(rows.stop - rows.start) for rows in self._rows]
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="simulate")
        self.num_envs = num_envs

    @property
    def divergences(self) -> int:
        """Over all parts."""
        return sum(part.divergences for part in self._parts)

    def reset(self, seeds: Sequence[int]) -> np.ndarray:
        """See `BatchEnv`."""
        parts = zip(self._parts, self._rows, strict=True)
        return np.concatenate([part.reset(seeds[rows]) for part, rows in parts])

    def state(self) -> State:
        """See `BatchEnv`."""
        return _joined([part.state() for part in self._parts])

    def step(self, actions: np.ndarray) -> BatchStep:
        """See `BatchEnv`."""
        jobs = [(part, actions[rows]) for part, rows in zip(self._parts, self._rows, strict=True)]
        steps = list(self._pool.map(lambda job: job[0].step(job[1]), jobs))

        def together(name: str) -> Any:
            return np.concatenate([getattr(step, name) for step in steps])

        return BatchStep(
            observation=together("observation"),
            final_observation=together("final_observation"),
            reward=together("reward"),
            terminated=together("terminated"),
            truncated=together("truncated"),
            state=_joined([step.state for step in steps]),
            next_state=_joined([step.next_state for step in steps]),
        )

    def snapshot(self) -> Arrays:
        """As of one whole batch."""
        parts = [part.snapshot() for part in self._parts]
        return {
            name: np.array(self.divergences)
            if name == "divergences"
            else first.copy()
            if name in _WHOLE_SNAPSHOT or first.ndim == 0
            else np.concatenate([part[name] for part in parts])
            for name, first in parts[0].items()
        }

    def restore(self, snapshot: Mapping[str, np.ndarray]) -> None:
        """Continue from a snapshot of a whole batch."""
        for index, (part, rows) in enumerate(zip(self._parts, self._rows, strict=True)):
            mine = {
                name: value if name in _WHOLE_SNAPSHOT or np.ndim(value) == 0 else value[rows]
                for name, value in snapshot.items()
            }
            part.restore(mine if index == 0 else {**mine, "divergences": np.zeros_like(snapshot["divergences"])})

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(wait=False)


def _joined(states: Sequence[State]) -> State:
    """One state of all rows; a field is put together when it is read."""

    def reader(name: str) -> Callable[[Any], np.ndarray]:
        return lambda _: np.concatenate([getattr(state, name) for state in states])

    return State(functions={name: reader(name) for name in states[0].fields})


def stepped(make: Callable[[int, int], Any], num_envs: int, *, threads: int) -> Any:
    """A batch on so many threads that finds the faster way to step, where there is a choice.

    :param make: makes a batch of so many environments on so many threads.
    """
    whole = make(num_envs, threads)
    if threads == 1 or num_envs < threads or not isinstance(whole, MujocoBatch):
        return whole
    return SteppedBatch(whole, make, threads=threads)


class SteppedBatch:
    """A `BatchEnv` that is stepped in the way that has been faster lately.

    :param whole: the batch as one.
    :param make: makes a batch of so many environments on so many threads.
    """

    def __init__(self, whole: MujocoBatch, make: Callable[[int, int], Any], *, threads: int) -> None:
        self._whole = whole
        self._make, self._threads = make, threads
        self._parted: PartedBatch | None = None
        self._now: Any = self._whole
        self._rates: dict[bool, float] = {}
        # The first rollout touches memory for the first time, so its speed is ignored.
        self._probing, self._wait, self._interval = False, 2, _FIRST_PROBE
        self.num_envs = whole.num_envs

    def __getattr__(self, name: str) -> Any:
        # Sizes, bounds, the card: as the whole batch has them.
        return getattr(self._whole, name)

    @property
    def in_parts(self) -> bool:
        """Whether it is stepped in parts now."""
        return self._now is not self._whole

    @property
    def divergences(self) -> int:
        """See `BatchEnv`."""
        count: int = self._now.divergences
        return count

    def reset(self, seeds: Sequence[int]) -> np.ndarray:
        """See `BatchEnv`."""
        observation: np.ndarray = self._now.reset(seeds)
        return observation

    def state(self) -> State:
        """See `BatchEnv`."""
        state: State = self._now.state()
        return state

    def step(self, actions: np.ndarray) -> BatchStep:
        """See `BatchEnv`."""
        step: BatchStep = self._now.step(actions)
        return step

    def snapshot(self) -> Arrays:
        """See `BatchEnv`."""
        arrays: Arrays = self._now.snapshot()
        return arrays

    def restore(self, snapshot: Mapping[str, np.ndarray]) -> None:
        """See `BatchEnv`."""
        self._now.restore(snapshot)

    def measured(self, rate: float) -> None:
        """Take note of how fast a rollout was, in any unit; between rollouts, the way may change.

        Now and then the other way is tried for one rollout: soon after this one has become much slower or faster, and less and
        less often as long as that shows nothing new.
        """
        before = self._rates.get(self.in_parts)
        self._rates[self.in_parts] = rate
        if self._probing:
            self._probing = False
            if rate > _MARGIN * self._rates[not self.in_parts]:
                self._interval = _FIRST_PROBE
            else:
                self._switch()
                self._interval = min(2 * self._interval, _LAST_PROBE)
            self._wait = self._interval
            return
        self._wait -= 1
        if before is not None and not _CHANGED < rate / max(before, 1e-9) < 1 / _CHANGED:
            self._wait, self._interval = 0, _FIRST_PROBE
        if self._wait <= 0:
            self._probing = True
            self._switch()

    def _switch(self) -> None:
        if self._parted is None:
            self._parted = PartedBatch(lambda count: self._make(count, 1), self.num_envs, threads=self._threads)
        snapshot = self._now.snapshot()
        self._now = self._whole if self.in_parts else self._parted
        self._now.restore(snapshot)

    def close(self) -> None:
        """End the threads."""
        if self._parted is not None:
            self._parted.close()
