"""Scores candidates: draws them, looks them up, compiles and runs them, all within compiled code.

A candidate's score is the mean of its returns, summed in the order of the variations. Variations are played in another
order, those first in which the incumbent does worst, and a candidate is given up as soon as its score can no longer exceed
the incumbent's. That bound is exact: see `Worlds.best` and `Worlds.slack`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dressage.episodes.compiling import allocation_free, device, kernel
from dressage.errors import InvalidArgument
from dressage.programs.engine import bytecode, interpreter, loop_states, random_numbers, sampling
from dressage.programs.engine.grammar import Grammar
from dressage.programs.engine.trees import Nodes
from dressage.programs.engine.worlds import Worlds

CACHE_BITS = 17
"""Programs that a scorer remembers, as a power of two: 2 MiB each scorer. A newer one replaces an older one in its place."""

CANDIDATES, HITS, EPISODES, GIVEN_UP = range(4)
COUNTS = 4


@dataclass(frozen=True)
class ScoringKernels:
    """What is compiled for a family of worlds."""

    contents: int
    score: Any
    search: Any


class ProgramScorer:
    """Scores programs in the variations of ``worlds``. One thread at a time may use it; its results do not depend on
    what it was used for before.
    """

    def __init__(self, worlds: Worlds, grammar: Grammar, kernels: ScoringKernels) -> None:
        self.worlds, self.grammar, self._kernels = worlds, grammar, kernels
        self.variations = worlds.count
        self.counts = np.zeros(COUNTS, np.int64)
        """Candidates looked at, found in the cache, episodes played, candidates given up early."""
        self._world = (worlds.cells, worlds.cells.copy(), worlds.special, worlds.agents, worlds.facts, worlds.food)
        self._tables = grammar.tables()
        self._keys = loop_states.hash_keys(worlds.cells.shape[1], kernels.contents)
        self._seen = np.zeros((loop_states.ROWS, 2), np.uint64)
        self._book = np.zeros(3, np.uint64)
        self._cache_keys = np.zeros(1 << CACHE_BITS, np.uint64)
        self._cache_bounds = np.zeros(1 << CACHE_BITS)
        self._out = np.zeros(0, np.int32)
        self._returns = np.zeros(worlds.count)

    def score(self, nodes: Nodes) -> tuple[float, NDArray[np.float64]]:
        """Return a program's score and its returns [N].

        :raises InvalidArgument: for a program that is nested too deeply.
        """
        scores, returns = self.score_all([nodes])
        return float(scores[0]), returns[0]

    def score_all(self, programs: Sequence[Nodes]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the scores [P] of programs and their returns [P, N], each episode played to its end.

        :raises InvalidArgument: for a program that is nested too deeply.
        """
        largest = max((len(nodes) for nodes in programs), default=0)
        code, stack = bytecode.workspace(largest)
        starts = np.cumsum([0, *(len(nodes) for nodes in programs)])
        scores, returns = np.zeros(len(programs)), np.zeros((len(programs), self.worlds.count))
        refused = self._kernels.score(
            np.concatenate([np.zeros(0, np.int32), *programs]),
            starts,
            self._scalars(),
            self._world,
            self._keys,
            self._seen,
            self._book,
            code,
            stack,
            np.zeros(largest, np.int64),
            scores,
            returns,
        )
        if refused >= 0:
            raise InvalidArgument(
                field="program", problem="nested too deeply", expected="fewer nested blocks and conditions"
            )
        return scores, returns

    def search(
        self, parent: Nodes, seed: int, first: int, end: int, step: int, limit: float, order: NDArray[np.int64]
    ) -> tuple[int, Nodes, float, NDArray[np.float64]] | None:
        """Return the first candidate whose score exceeds ``limit``: its number, nodes, score and returns; or None.

        :param parent: candidates are its neighbours; random programs if it has no nodes.
        :param first: number of the first candidate; ``end`` and ``step`` as in `range`.
        :param order: in which the variations are played, int64[N]; it affects the time only.
        """
        room = len(parent) + sampling.MAX_DRAWN
        if len(self._out) < room:
            self._out = np.zeros(room, np.int32)
            self._rows = np.zeros((2, room, sampling.ANALYSIS), np.int64)
            self._code, self._stack = bytecode.workspace(room)
            self._counters = np.zeros(room, np.int64)
        number, size, value = self._kernels.search(
            parent,
            seed,
            (first, end, step),
            limit,
            order,
            self._scalars(),
            self._world,
            self._keys,
            self._seen,
            self._book,
            self._code,
            self._stack,
            self._counters,
            self._returns,
            self._tables,
            self._rows,
            self._out,
            (self._cache_keys, self._cache_bounds),
            self.counts,
        )
        if number < 0:
            return None
        return int(number), self._out[:size].copy(), float(value), self._returns.copy()

    def _scalars(self) -> tuple[int, int, float, float]:
        return self.worlds.task, self.worlds.width, self.worlds.best, self.worlds.slack


@device
def _rest() -> Any:
    return (
        np.zeros(interpreter.SCRATCH, np.int64),
        np.zeros(1, np.uint64),
        np.zeros(interpreter.OUTCOME, np.int64),
        np.zeros(1, np.uint8),
        np.zeros(1, np.float64),
    )


@allocation_free(inline=True)
def _mean(returns: Any) -> Any:
    total = 0.0
    for value in returns:
        total += value
    return total / len(returns)


@functools.cache
def scoring_kernels(family: str, machine: interpreter.Machine) -> ScoringKernels:
    """Return the kernels of a family of worlds; they compile when they are first called."""
    run = interpreter.episode_function(machine, full=False)

    @allocation_free()
    def episode(
        i: int, scalars: Any, world: Any, keys: Any, seen: Any, book: Any, code: Any, counters: Any, rest: Any
    ) -> Any:
        start, cells, special, agents, facts, food = world
        scratch, marks, outcome, actions, rewards = rest
        total, touched = run(
            code,
            scalars[0],
            scalars[1],
            cells[i],
            special[i],
            facts[i],
            food[i],
            agents[i, 0],
            agents[i, 1],
            keys[0],
            keys[1],
            seen,
            book,
            counters,
            scratch,
            marks,
            outcome,
            actions,
            rewards,
        )
        if touched:
            for c in range(cells.shape[1]):
                cells[i, c] = start[i, c]
        return total

    @kernel(f"programs-{family}-score")
    def score(
        programs: Any,
        starts: Any,
        scalars: Any,
        world: Any,
        keys: Any,
        seen: Any,
        book: Any,
        code: Any,
        stack: Any,
        counters: Any,
        scores: Any,
        returns: Any,
    ) -> Any:
        """Score all programs; return the number of one that does not compile, or -1."""
        rest = _rest()
        for p in range(len(scores)):
            if bytecode.compile_nodes(programs[starts[p] : starts[p + 1]], code, stack) < 0:
                return p
            for i in range(returns.shape[1]):
                returns[p, i] = episode(i, scalars, world, keys, seen, book, code, counters, rest)
            scores[p] = _mean(returns[p])
        return -1

    @kernel(f"programs-{family}-search")
    def search(
        parent: Any,
        seed: int,
        numbers: Any,
        limit: float,
        order: Any,
        scalars: Any,
        world: Any,
        keys: Any,
        seen: Any,
        book: Any,
        code: Any,
        stack: Any,
        counters: Any,
        returns: Any,
        tables: Any,
        rows: Any,
        out: Any,
        cache: Any,
        counts: Any,
    ) -> Any:
        rest = _rest()
        weights, draw_stack = np.zeros(6, np.int64), np.zeros((sampling.MAX_DRAWN, 3), np.int64)
        stream = np.zeros(1, np.uint64)
        cache_keys, cache_bounds = cache
        size, n = len(parent), len(returns)
        best, slack = scalars[2], scalars[3]
        within = size > 0 and sampling.analyse(parent, size, tables[3], rows[0])
        for number in range(numbers[0], numbers[1], numbers[2]):
            random_numbers.begin_stream(stream, seed, number)
            if size == 0:
                length = sampling.draw_program(stream, out, tables, weights, draw_stack)
            else:
                length = sampling.draw_neighbour(
                    stream, parent, size, rows[0], within, out, tables, weights, draw_stack, rows[1]
                )
            counts[CANDIDATES] += 1
            # Two hashes: the place in the cache, and the identity of the program that is there.
            first, second = np.uint64(0x243F6A8885A308D3), np.uint64(0x13198A2E03707344)
            for k in range(length):
                node = np.uint64(out[k] + 1)
                first = (first ^ node) * np.uint64(0x9FB21C651E98DF25)
                first ^= first >> np.uint64(32)
                second = (second + node) * np.uint64(0xD6E8FEB86659FD93)
                second ^= second >> np.uint64(29)
            slot = first >> np.uint64(64 - CACHE_BITS)
            if cache_keys[slot] == second and cache_bounds[slot] <= limit:
                counts[HITS] += 1
                continue
            bytecode.compile_nodes(out, code, stack)
            total, given_up = 0.0, False
            bound = 0.0
            for k in range(n):
                i = order[k]
                returns[i] = episode(i, scalars, world, keys, seen, book, code, counters, rest)
                total += returns[i]
                counts[EPISODES] += 1
                bound = (total + (n - 1 - k) * best) / n + slack
                if bound <= limit and k < n - 1:
                    given_up = True
                    break
            if given_up:
                counts[GIVEN_UP] += 1
            else:
                bound = _mean(returns)
            cache_keys[slot] = second
            cache_bounds[slot] = bound
            if bound > limit:
                return number, length, bound
        return -1, 0, 0.0

    return ScoringKernels(machine.contents, score, search)
