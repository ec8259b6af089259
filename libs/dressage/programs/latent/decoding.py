"""Chooses the nodes of programs one by one, so that each is within the limits of its grammar.

A decoder scores what may come next; the best of the nodes that the grammar allows in that place is taken. A node is allowed
if the program can still end within the height, the statements of a block and the tokens; see
`dressage.programs.engine.sampling`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dressage.episodes.compiling import allocation_free, kernel
from dressage.programs.engine import codes, sampling
from dressage.programs.engine.grammar import Grammar
from dressage.programs.engine.trees import Nodes, tests_of

MAX_NODES = sampling.MAX_DRAWN
"""Nodes of the longest program."""
PLACES = 5
_STATEMENT_TOKENS = 1
_TEST_TOKENS = 1
_LOWEST = -1e30


def vocabulary(grammar: Grammar) -> NDArray[np.int32]:
    """Return the nodes of a grammar's programs, ascending: int32[V]."""
    control = (codes.SEQUENCE, codes.WHILE, codes.IF, codes.IFELSE, codes.REPEAT, codes.NOT)
    actions = (codes.ACTION + i for i in range(len(grammar.language.actions)))
    tests = (codes.TEST + i for i in range(len(tests_of(grammar.language))))
    counts = (codes.COUNT + i for i in range(grammar.counts))
    return np.array([*control, *actions, *tests, *counts], np.int32)


class Choices:
    """The growing programs of one batch.

    :param count: programs, B.
    """

    def __init__(self, grammar: Grammar, count: int) -> None:
        self.places = np.full(count, sampling.STATEMENT, np.int64)
        """Place of each program's next node, int64[B]; -1 once the program is complete."""
        self.chosen = np.zeros(count, np.int64)
        """Number of each program's last node in the vocabulary, int64[B]."""
        self._vocabulary, self._scalars = vocabulary(grammar), grammar.tables()[3]
        self._stack = np.zeros((count, sampling.MAX_DRAWN, 3), np.int64)
        self._stack[:, 0] = (sampling.STATEMENT, 1, 1)
        # Entries of the stack, tokens so far, tokens that the open places need at least, nodes.
        self._book = np.tile(np.array([1, sampling.PROGRAM_TOKENS, _STATEMENT_TOKENS, 0], np.int64), (count, 1))
        self._nodes = np.zeros((count, MAX_NODES), np.int32)

    @property
    def open(self) -> bool:
        """Whether a program is incomplete."""
        return bool((self.places >= 0).any())

    def take(self, scores: NDArray[np.float32]) -> None:
        """Append to each incomplete program the allowed node with the highest score.

        :param scores: float32[B, V].
        """
        _take(scores, self._vocabulary, self._scalars, self._stack, self._book, self._nodes, self.places, self.chosen)

    def programs(self) -> list[Nodes]:
        """Return the programs, all complete."""
        return [row[:size].copy() for row, size in zip(self._nodes, self._book[:, 3], strict=True)]


@allocation_free()
def _minimum(place: int) -> int:
    if place == sampling.NUMBER:
        return 0
    return _STATEMENT_TOKENS if place <= sampling.LEFT else _TEST_TOKENS


@allocation_free()
def _allowed(node: int, place: int, depth: int, position: int, left: int, scalars: Any) -> Any:
    """Return whether a node may take a place.

    :param left: tokens that remain for it and what is below it.
    """
    needs = sampling.node_tokens(node, scalars)
    if place == sampling.NUMBER:
        return node >= codes.COUNT
    if place == sampling.CONDITION or place == sampling.PLAIN:
        if node == codes.NOT:
            return place == sampling.CONDITION and needs + _TEST_TOKENS <= left
        return codes.TEST <= node < codes.COUNT and needs <= left
    if node == codes.SEQUENCE:
        fits = needs + 2 * _STATEMENT_TOKENS <= left
        return place == sampling.STATEMENT and position < scalars[sampling.STATEMENTS] and fits
    if node <= codes.REPEAT:
        if node == codes.REPEAT:
            needs += _STATEMENT_TOKENS
        else:
            needs += _TEST_TOKENS + (2 if node == codes.IFELSE else 1) * _STATEMENT_TOKENS
        return depth < scalars[sampling.HEIGHT] and needs <= left
    return codes.ACTION <= node < codes.TEST and needs <= left


@kernel("programs-latent-take")
def _take(
    scores: Any, vocabulary: Any, scalars: Any, stacks: Any, book: Any, nodes: Any, places: Any, chosen: Any
) -> None:
    for b in range(len(scores)):
        if places[b] < 0:
            continue
        stack = stacks[b]
        top = book[b, 0] - 1
        place, depth, position = stack[top, 0], stack[top, 1], stack[top, 2]
        left = scalars[sampling.TOTAL_TOKENS] - book[b, 1] - (book[b, 2] - _minimum(place))
        best, highest = -1, _LOWEST
        for v in range(len(vocabulary)):
            if scores[b, v] > highest and _allowed(vocabulary[v], place, depth, position, left, scalars):
                best, highest = v, scores[b, v]
        node = vocabulary[best]
        chosen[b] = best
        nodes[b, book[b, 3]] = node
        book[b, 3] += 1
        book[b, 1] += sampling.node_tokens(node, scalars)
        book[b, 2] -= _minimum(place)
        first = top
        if node == codes.SEQUENCE:
            stack[top, 0], stack[top, 1], stack[top, 2] = sampling.STATEMENT, depth, position + 1
            stack[top + 1, 0], stack[top + 1, 1], stack[top + 1, 2] = sampling.LEFT, depth, position
            top += 2
        elif node <= codes.REPEAT:
            for _ in range(2 if node == codes.IFELSE else 1):
                stack[top, 0], stack[top, 1], stack[top, 2] = sampling.STATEMENT, depth + 1, 1
                top += 1
            stack[top, 0] = sampling.CONDITION
            if node == codes.IFELSE:
                stack[top, 0] = sampling.PLAIN
            elif node == codes.REPEAT:
                stack[top, 0] = sampling.NUMBER
            stack[top, 1], stack[top, 2] = depth, 1
            top += 1
        elif node == codes.NOT:
            stack[top, 0] = sampling.PLAIN
            top += 1
        for k in range(first, top):
            book[b, 2] += _minimum(stack[k, 0])
        book[b, 0] = top
        places[b] = stack[top - 1, 0] if top > 0 else -1


def places_of(programs: NDArray[np.int32], sizes: NDArray[np.int64], grammar: Grammar) -> NDArray[np.int64]:
    """Return the place of each node: int64[P, N], -1 behind a program's end.

    :param programs: nodes of programs, int32[P, N].
    :param sizes: their numbers of nodes, int64[P].
    """
    out = np.full(programs.shape, -1, np.int64)
    _places(programs, sizes, grammar.tables()[3], out)
    return out


@kernel("programs-latent-places")
def _places(programs: Any, sizes: Any, scalars: Any, out: Any) -> None:
    rows = np.zeros((programs.shape[1], sampling.ANALYSIS), np.int64)
    for p in range(len(programs)):
        sampling.analyse(programs[p], sizes[p], scalars, rows)
        for i in range(sizes[p]):
            out[p, i] = rows[i, sampling.PLACE]
