"""The compiled update on several cores: members in lanes, one lane a thread.

XLA runs so small a network's gradient steps on one core, whatever its thread pool's size. Members do not touch each
other, so a group of M is cut into lanes of equal size, which share one compiled function and run at the same time.
Small minibatches favour few wide lanes (a gradient step's fixed cost is shared by the members of its lane), large ones
as many lanes as keep every core busy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

import jax
import numpy as np

from dressage_trainer.ppo.interfaces import Arrays
from dressage_trainer.ppo.update import Adam, Coefficients, Rollout, build_update

_FIXED_COST = 40 * 10_800
"""A gradient step's fixed cost, in samples times weights: 40 samples of a 64 x 64 network (measured: some 60 us against
1.6 us a sample). Samples of larger networks take longer, so that it counts for less beside them."""
_FLOAT32_OPTIONS = {"xla_cpu_enable_fast_math": True}
"""Reassociation and approximate division: 15 % faster. Infinities and NaNs stay honoured, which is XLA's default."""

_shaped: Any = jax.ShapeDtypeStruct


def lane_size(members: int, *, minibatch_size: int, threads: int, weights: int) -> int:
    """How many members to stack in a lane: the divisor of ``members`` with the least time on ``threads`` cores.

    :param weights: of one member's networks.
    """

    def time(size: int) -> int:
        rounds = math.ceil(members // size / max(threads, 1))
        return rounds * (_FIXED_COST + size * minibatch_size * weights)

    return min((size for size in range(1, members + 1) if members % size == 0), key=time)


class LaneUpdate:
    """The update of M members, compiled once for a lane and run on up to ``threads`` threads.

    :param weights: of one member's networks.
    :param precision: gives the context in which to trace and to run (64-bit mode for float64).
    """

    def __init__(
        self,
        *,
        members: int,
        threads: int,
        minibatch_size: int,
        weights: int,
        hidden_layers: int,
        sizes: tuple[int, int],
        discrete: bool = False,
        precision: Callable[[], AbstractContextManager[Any]],
        clock: Callable[[], float],
    ) -> None:
        self._size = lane_size(members, minibatch_size=minibatch_size, threads=threads, weights=weights)
        self._lanes = [slice(start, start + self._size) for start in range(0, members, self._size)]
        self._update = build_update(
            minibatch_size=minibatch_size, hidden_layers=hidden_layers, sizes=sizes, discrete=discrete
        )
        self._precision, self._clock = precision, clock
        workers = min(threads, len(self._lanes))
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="update") if workers > 1 else None
        self._compiled: Future[tuple[Any, float]] | None = None

    def compile(self, weights: Arrays, adam: Adam, rollout: Rollout, orders: Any, coefficients: Coefficients) -> None:
        """Begin to compile in a thread, for arguments of these shapes (arrays, or their shapes and types)."""
        size = self._size

        def of_lane(x: Any) -> Any:
            return _shaped((size, *x.shape[1:]), x.dtype)

        arguments = jax.tree.map(of_lane, (weights, adam, rollout))
        order_shape = _shaped((orders.shape[0], size, *orders.shape[2:]), orders.dtype)
        of_members = jax.tree.map(of_lane, coefficients)
        fast = rollout.observations.dtype == np.float32

        def work() -> tuple[Any, float]:
            began = self._clock()
            with self._precision():
                lowered = self._update.lower(*arguments, order_shape, of_members)
                return lowered.compile(_FLOAT32_OPTIONS if fast else None), self._clock() - began

        with ThreadPoolExecutor(1, thread_name_prefix="compile") as pool:
            self._compiled = pool.submit(work)
            pool.shutdown(wait=False)

    @property
    def compiling(self) -> bool:
        """True once `compile` was called."""
        return self._compiled is not None

    def wait(self) -> float:
        """Wait for the compiler; the seconds that it took."""
        assert self._compiled is not None
        return self._compiled.result()[1]

    def __call__(
        self, weights: Arrays, adam: Adam, rollout: Rollout, orders: np.ndarray, coefficients: Coefficients
    ) -> tuple[Arrays, Adam, Arrays]:
        """As the function of `build_update`, with numpy arrays in and out."""
        assert self._compiled is not None
        function = self._compiled.result()[0]

        def run(lane: slice) -> Any:
            mine = jax.tree.map(lambda x: x[lane], (weights, adam, rollout))
            of_members = jax.tree.map(lambda x: x[lane], coefficients)
            with self._precision():
                # Copies: the views that numpy would otherwise hold are of buffers that the next update donates.
                return jax.tree.map(np.array, function(*mine, orders[:, lane], of_members))

        if len(self._lanes) == 1:
            results = [run(self._lanes[0])]
        else:
            results = list((self._pool.map if self._pool else map)(run, self._lanes))
        joined: tuple[Arrays, Adam, Arrays] = jax.tree.map(lambda *parts: np.concatenate(parts), *results)
        return joined
