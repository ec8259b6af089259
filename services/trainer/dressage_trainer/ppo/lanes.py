"""The compiled update on several cores: members in lanes, taken by as many threads as there are cores.

XLA runs so small a network's gradient steps on one core, whatever its thread pool's size. Members do not touch each
other, so a group of M is cut into lanes of equal size, which share one compiled function and run at the same time.
Small minibatches favour few wide lanes (a gradient step's fixed cost is shared by the members of its lane), large ones
as many lanes as keep every core busy. Where threads do not divide the lanes, some lanes are left after an epoch and gone
on with later, so that all threads end together: three lanes keep two cores busy for one and a half lanes' time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import jax
import numpy as np

from dressage_trainer.ppo.interfaces import Arrays
from dressage_trainer.ppo.update import Adam, Coefficients, Progress, Rollout, begin, build_update, means

_FIXED_COST = 17 * 10_800
"""What a gradient step costs however many members share it, in samples times weights: 17 samples of a 64 x 64 network
(measured: some 16 us against 0.95 us a sample). Samples of larger networks take longer, so that it counts for less there."""
_CLOSE = 1.05
"""Three members a lane take 3 to 6 % longer a sample than one, where the fixed cost does not count (measured)."""
_FLOAT32_OPTIONS = {"xla_cpu_enable_fast_math": True}
"""Reassociation and approximate division: 15 % faster. Infinities and NaNs stay honoured, which is XLA's default."""

_shaped: Any = jax.ShapeDtypeStruct
_block: Any = jax.block_until_ready


def lane_size(members: int, *, minibatch_size: int, threads: int, weights: int, epochs: int) -> int:
    """How many members to stack in a lane: the divisor of ``members`` with the least time on ``threads`` cores, or a
    smaller one that takes hardly longer, since caches hold fewer members better.

    :param weights: of one member's networks.
    :param epochs: of an update; lanes are cut between them.
    """

    def time(size: int) -> int:
        rounds = max(math.ceil(members // size * epochs / max(threads, 1)), epochs)
        return rounds * (_FIXED_COST + size * minibatch_size * weights)

    times = {size: time(size) for size in range(1, members + 1) if members % size == 0}
    return min(size for size, took in times.items() if took <= _CLOSE * min(times.values()))


class Piece(NamedTuple):
    """Epochs ``first`` to ``last`` (excluded) of a lane."""

    lane: int
    first: int
    last: int


def pieces(lanes: int, *, threads: int, epochs: int) -> list[Piece]:
    """What threads take, one after the other, so that all of them end together (but for an epoch's length).

    McNaughton's wrap-around rule (Management Science 6(1), 1959): lay the lanes end to end and cut the line into as many
    equal parts as there are threads. A lane that is cut in two is begun at once by one thread and ended last by another. With
    no more lanes than threads each lane is a piece.
    """
    whole = [Piece(lane, 0, epochs) for lane in range(lanes)]
    if lanes <= threads:
        return whole
    begun, ended = [], []
    for thread in range(1, threads):
        lane, after = divmod(round(lanes * epochs * thread / threads), epochs)
        if after:
            begun.append(Piece(lane, 0, epochs - after))
            ended.append(Piece(lane, epochs - after, epochs))
    cut = {piece.lane for piece in begun}

    def longest_first(found: list[Piece]) -> list[Piece]:
        return sorted(found, key=lambda piece: piece.first - piece.last)

    return [*longest_first(begun), *(piece for piece in whole if piece.lane not in cut), *longest_first(ended)]


class LaneUpdate:
    """The update of M members, compiled once for a lane and run on up to ``threads`` threads.

    :param weights: of one member's networks.
    :param epochs: of an update, the most of any member's.
    :param precision: gives the context in which to trace and to run (64-bit mode for float64).
    """

    def __init__(
        self,
        *,
        members: int,
        threads: int,
        minibatch_size: int,
        weights: int,
        epochs: int,
        hidden_layers: int,
        sizes: tuple[int, int],
        discrete: bool = False,
        precision: Callable[[], AbstractContextManager[Any]],
        clock: Callable[[], float],
    ) -> None:
        self._size = lane_size(members, minibatch_size=minibatch_size, threads=threads, weights=weights, epochs=epochs)
        self._lanes = [slice(start, start + self._size) for start in range(0, members, self._size)]
        self._threads = min(max(threads, 1), len(self._lanes))
        self._update = build_update(
            minibatch_size=minibatch_size, hidden_layers=hidden_layers, sizes=sizes, discrete=discrete
        )
        self._precision, self._clock = precision, clock
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="update")
        self._compiled: Future[tuple[Any, Any, float]] | None = None

    def compile(self, weights: Arrays, adam: Adam, rollout: Rollout, orders: Any, coefficients: Coefficients) -> None:
        """Begin to compile in a thread, for arguments of these shapes; of rollout and orders shapes and types do."""

        def of_lane(x: Any, axis: int = 0) -> Any:
            return _shaped((*x.shape[:axis], self._size, *x.shape[axis + 1 :]), x.dtype)

        of_weights, of_rollout, c = jax.tree.map(of_lane, (weights, rollout, coefficients))
        progress = jax.tree.map(of_lane, begin(weights, adam))
        number = _shaped((), np.int32)
        options = _FLOAT32_OPTIONS if rollout.observations.dtype == np.float32 else None

        def work() -> tuple[Any, Any, float]:
            began = self._clock()
            with self._precision():
                prepare = self._update.prepare.lower(of_weights, of_rollout, c)
                samples = prepare.out_info[0]
                epochs = self._update.epochs.lower(progress, samples, of_lane(orders, 1), c, number, number)
                return prepare.compile(options), epochs.compile(options), self._clock() - began

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
        return self._compiled.result()[-1]

    def __call__(
        self, weights: Arrays, adam: Adam, rollout: Rollout, orders: np.ndarray, coefficients: Coefficients
    ) -> tuple[Arrays, Adam, Arrays]:
        """New weights, Adam's state and diagnostics; numpy arrays in and out.

        :param orders: (epochs, M, T * n) integer permutations of each member's samples.
        """
        assert self._compiled is not None
        prepare, run_epochs, _ = self._compiled.result()

        def run(piece: Piece, before: Future[Any] | None) -> tuple[Progress, Any, Any]:
            lane = self._lanes[piece.lane]
            c = jax.tree.map(lambda x: x[lane], coefficients)
            with self._precision():
                if before is None:
                    progress = begin(*jax.tree.map(lambda x: x[lane], (weights, adam)))
                    samples, told = prepare(progress.weights, jax.tree.map(lambda x: x[lane], rollout), c)
                else:
                    progress, samples, told = before.result()
                span = np.int32(piece.first), np.int32(piece.last)
                progress = _block(run_epochs(progress, samples, orders[:, lane], c, *span))
            return progress, None if piece.last == len(orders) else samples, told

        lanes: dict[int, Future[tuple[Progress, Any, Any]]] = {}
        for piece in pieces(len(self._lanes), threads=self._threads, epochs=len(orders)):
            lanes[piece.lane] = self._pool.submit(run, piece, lanes.get(piece.lane))
        try:
            ends = [lanes[lane].result() for lane in range(len(self._lanes))]
        finally:
            for future in lanes.values():
                future.cancel()  # after an error in one lane the others need not begin
        # Copies: the views that numpy would otherwise hold are of buffers that belong to the compiled functions.
        parts = [jax.tree.map(np.array, (progress, told)) for progress, _, told in ends]
        end: Progress
        end, told = jax.tree.map(lambda *arrays: np.concatenate(arrays), *parts)
        return end.weights, end.adam, {**told, **means(end)}
