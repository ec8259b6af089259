"""Several scorers on as many threads, with the results of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dressage.programs.engine.trees import Nodes

Match = tuple[int, Nodes, float, NDArray[np.float64]]
_FIRST_CHUNK = 32
_LARGEST_CHUNK = 1024
_CHUNK_OF_ONE = 1 << 14
"""Candidates that threads look at between comparisons; a single thread stops at the first find anyway."""


class Scorer(Protocol):
    """Scores programs on initial states, as `dressage.programs.engine.scoring.ProgramScorer` does."""

    counts: NDArray[np.int64]
    variations: int

    def score(self, nodes: Nodes) -> tuple[float, NDArray[np.float64]]:
        """Return a program's score and its returns."""

    def score_all(self, programs: Sequence[Nodes]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the scores and the returns of programs."""

    def search(
        self, parent: Nodes, seed: int, first: int, end: int, step: int, limit: float, order: NDArray[np.int64]
    ) -> Match | None:
        """Return the first of the candidates whose score exceeds ``limit``."""


class Scorers:
    """Shares the candidates of a search among threads: thread t of T takes every T-th one.

    :param make: returns a new scorer; each thread has its own.
    """

    def __init__(self, make: Callable[[], Scorer], threads: int = 1) -> None:
        self._scorers = [make() for _ in range(threads)]
        self._pool = ThreadPoolExecutor(threads - 1) if threads > 1 else None
        self._chunk = _FIRST_CHUNK * threads

    def __enter__(self) -> Scorers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()

    @property
    def counts(self) -> NDArray[np.int64]:
        """Candidates looked at (more than counted by the search, if threads looked too far), found in the cache, episodes,
        given up early.
        """
        total: NDArray[np.int64] = np.sum([scorer.counts for scorer in self._scorers], axis=0)
        return total

    @property
    def variations(self) -> int:
        """Initial states that programs are scored on."""
        return self._scorers[0].variations

    def score(self, nodes: Nodes) -> tuple[float, NDArray[np.float64]]:
        """Return a program's score and its returns."""
        return self._scorers[0].score(nodes)

    def score_all(self, programs: Sequence[Nodes]) -> NDArray[np.float64]:
        """Return the scores of programs, float64[P]."""
        threads = len(self._scorers)
        scores = np.zeros(len(programs))

        def part(t: int) -> None:
            scores[t::threads] = self._scorers[t].score_all(programs[t::threads])[0]

        others = [self._pool.submit(part, t) for t in range(1, threads)] if self._pool is not None else []
        part(0)
        for other in others:
            other.result()
        return scores

    def search(
        self, parent: Nodes, seed: int, first: int, most: int, limit: float, order: NDArray[np.int64]
    ) -> tuple[int, Match | None]:
        """Look at candidates from ``first`` on, at most ``most``.

        :return: how many were looked at in their order, the find included; and the first that exceeds the limit, if any.
        """
        threads = len(self._scorers)
        count = min(most, _CHUNK_OF_ONE if threads == 1 else self._chunk)
        end = first + count

        def part(t: int) -> tuple[Any, ...]:
            return parent, seed, first + t, end, threads, limit, order

        others: list[Future[Match | None]] = []
        if self._pool is not None:
            others = [self._pool.submit(self._scorers[t].search, *part(t)) for t in range(1, threads)]
        finds = [self._scorers[0].search(*part(0)), *(other.result() for other in others)]
        match = min((find for find in finds if find is not None), key=lambda find: find[0], default=None)
        self._chunk = min(2 * self._chunk, _LARGEST_CHUNK * threads) if match is None else _FIRST_CHUNK * threads
        return (count, None) if match is None else (match[0] - first + 1, match)
