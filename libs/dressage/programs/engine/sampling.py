"""Draws random programs and neighbours of a program within compiled code.

A program is drawn node by node. Where a production would exceed the height or the statements of a block, its weight is
zero and the others are renormalised; the left child of a sequence is never a sequence, ``not`` takes a plain test, and the
condition of an IFELSE is never ``not``. A program with too many tokens is drawn again.

A neighbour replaces one node, chosen uniformly, by a new draw for its place. The statements of the new part are counted
from one, and a neighbour that exceeds a limit is drawn again, its node included.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dressage.episodes.compiling import allocation_free
from dressage.programs.engine.codes import (
    ACTION,
    AND,
    COUNT,
    IF,
    IFELSE,
    NOT,
    OR,
    REPEAT,
    SEQUENCE,
    TEST,
    WHILE,
)
from dressage.programs.engine.random_numbers import below, pick

# Places of a tree: what may be drawn there.
STATEMENT, LEFT, CONDITION, PLAIN, NUMBER = 0, 1, 2, 3, 4

# Columns of the analysis of a tree: place, depth of its block, position in its block, nodes and tokens below.
PLACE, DEPTH, POSITION, NODES, TOKENS = 0, 1, 2, 3, 4
ANALYSIS = 5

PLAIN_TEST, NEGATED, COUNTS, HEIGHT, STATEMENTS, TOTAL_TOKENS, TEST_TOKENS = 0, 1, 2, 3, 4, 5, 6
PROGRAM_TOKENS = 4
_TRIES = 20_000
"""Draws after which the whole program is replaced; within the limits a few are enough."""
MAX_DRAWN = 128
"""Nodes of the largest program that a draw can return: fewer than three for each of 45 tokens, and room for its stack."""


@allocation_free(inline=True)
def node_tokens(node: int, scalars: Any) -> Any:
    """Return the tokens that a node itself adds to the text."""
    if node >= COUNT or node == SEQUENCE:
        return 0
    if node >= TEST:
        return scalars[TEST_TOKENS + node - TEST]
    if node == WHILE or node == IF or node == AND or node == OR:
        return 5
    if node == IFELSE:
        return 8
    if node == REPEAT:
        return 4
    return 3 if node == NOT else 1


@allocation_free()
def draw(
    stream: Any, out: Any, at: int, place: int, depth: int, tables: Any, allowed: int, weights: Any, stack: Any
) -> Any:
    """Draw what a place may hold and write it to ``out`` from ``at``.

    :param allowed: tokens that it may have.
    :param weights: int64[6], overwritten.
    :return: the end in ``out`` and the tokens; end -1 if it needs more tokens.
    """
    statements, actions, tests, scalars = tables
    stack[0, 0], stack[0, 1], stack[0, 2] = place, depth, 1
    top, tokens = 1, 0
    while top > 0:
        top -= 1
        place, depth, position = stack[top, 0], stack[top, 1], stack[top, 2]
        if place == NUMBER:
            node = COUNT + below(stream, scalars[COUNTS])
        elif place == PLAIN:
            node = TEST + pick(stream, tests)
        elif place == CONDITION:
            if below(stream, scalars[PLAIN_TEST] + scalars[NEGATED]) < scalars[PLAIN_TEST]:
                node = TEST + pick(stream, tests)
            else:
                node = NOT
                stack[top, 0] = PLAIN
                top += 1
        else:
            for i in range(6):
                weights[i] = statements[i]
            if place == LEFT or position >= scalars[STATEMENTS]:
                weights[0] = 0
            if depth >= scalars[HEIGHT]:
                weights[1] = weights[2] = weights[3] = weights[4] = 0
            node = pick(stream, weights)
            if node == SEQUENCE:
                stack[top, 0], stack[top, 1], stack[top, 2] = STATEMENT, depth, position + 1
                stack[top + 1, 0], stack[top + 1, 1], stack[top + 1, 2] = LEFT, depth, position
                top += 2
            elif node <= REPEAT:
                stack[top, 0], stack[top, 1], stack[top, 2] = STATEMENT, depth + 1, 1
                top += 1
                if node == IFELSE:
                    stack[top, 0], stack[top, 1], stack[top, 2] = STATEMENT, depth + 1, 1
                    top += 1
                stack[top, 0] = PLAIN if node == IFELSE else (NUMBER if node == REPEAT else CONDITION)
                top += 1
            else:
                node = ACTION + pick(stream, actions)
        tokens += node_tokens(node, scalars)
        if tokens > allowed:
            return -1, tokens
        out[at] = node
        at += 1
    return at, tokens


@allocation_free()
def draw_program(stream: Any, out: Any, tables: Any, weights: Any, stack: Any) -> Any:
    """Draw a whole program and return its number of nodes."""
    allowed = tables[3][TOTAL_TOKENS] - PROGRAM_TOKENS
    while True:
        end, _ = draw(stream, out, 0, STATEMENT, 1, tables, allowed, weights, stack)
        if end > 0:
            return end


@allocation_free()
def analyse(nodes: Any, size: int, scalars: Any, rows: Any) -> bool:
    """Fill ``rows`` (int64[>= size, ANALYSIS]) and return whether the tree is within the limits."""
    within = True
    for i in range(size):
        rows[i, PLACE] = -1
    rows[0, PLACE], rows[0, DEPTH], rows[0, POSITION] = STATEMENT, 1, 1
    # Sizes from the end: the children of a node follow it.
    for i in range(size - 1, -1, -1):
        children = _children(nodes[i])
        rows[i, NODES], rows[i, TOKENS] = 1, node_tokens(nodes[i], scalars)
        child = i + 1
        for _ in range(children):
            rows[i, NODES] += rows[child, NODES]
            rows[i, TOKENS] += rows[child, TOKENS]
            child += rows[child, NODES]
    for i in range(size):
        node, depth, position = nodes[i], rows[i, DEPTH], rows[i, POSITION]
        if position > scalars[STATEMENTS] or depth > scalars[HEIGHT]:
            within = False
        child = i + 1
        for k in range(_children(node)):
            if node == SEQUENCE:
                rows[child, PLACE] = LEFT if k == 0 else STATEMENT
                rows[child, DEPTH], rows[child, POSITION] = depth, position + k
            elif node <= REPEAT and k > 0:
                rows[child, PLACE], rows[child, DEPTH], rows[child, POSITION] = STATEMENT, depth + 1, 1
            else:
                rows[child, DEPTH], rows[child, POSITION] = depth, 1
                if node == REPEAT:
                    rows[child, PLACE] = NUMBER
                else:
                    rows[child, PLACE] = PLAIN if node == IFELSE or node == NOT else CONDITION
            child += rows[child, NODES]
    return within and rows[0, TOKENS] + PROGRAM_TOKENS <= scalars[TOTAL_TOKENS]


@allocation_free(inline=True)
def _children(node: int) -> int:
    if node == IFELSE:
        return 3
    if node <= REPEAT or node == AND or node == OR:
        return 2
    return 1 if node == NOT else 0


@allocation_free()
def draw_neighbour(
    stream: Any,
    parent: Any,
    size: int,
    rows: Any,
    within: bool,
    out: Any,
    tables: Any,
    weights: Any,
    stack: Any,
    own_rows: Any,
) -> Any:
    """Draw a neighbour of ``parent`` (``size`` nodes, analysed in ``rows``) and return its number of nodes.

    :param within: whether the parent is within the limits; otherwise each neighbour is checked as a whole.
    :param out: int32[...] for at least ``size`` + MAX_DRAWN nodes.
    """
    scalars = tables[3]
    for _ in range(_TRIES):
        i = below(stream, size)
        place = rows[i, PLACE]
        allowed = scalars[TOTAL_TOKENS] - PROGRAM_TOKENS - (rows[0, TOKENS] - rows[i, TOKENS])
        if allowed < 0 or (place <= LEFT and rows[i, DEPTH] > scalars[HEIGHT]):
            continue
        end, _ = draw(stream, out, i, place, rows[i, DEPTH], tables, allowed, weights, stack)
        if end < 0:
            continue
        if place == STATEMENT:
            length, k = rows[i, POSITION], i
            while out[k] == SEQUENCE:  # the right child of each sequence follows its left child
                length += 1
                k = _skip(out, k + 1)
            if length > scalars[STATEMENTS]:
                continue
        for k in range(i):
            out[k] = parent[k]
        for k in range(i + rows[i, NODES], size):
            out[end] = parent[k]
            end += 1
        if within or analyse(out, end, scalars, own_rows):
            return end
    return draw_program(stream, out, tables, weights, stack)


@allocation_free()
def _skip(nodes: Any, i: int) -> int:
    """Return the node after the subtree of node i."""
    open_ = 1
    while open_ > 0:
        open_ += _children(nodes[i]) - 1
        i += 1
    return i


def workspace() -> tuple[Any, Any]:
    """Return the arrays ``weights`` and ``stack`` of `draw`."""
    return np.zeros(6, np.int64), np.zeros((MAX_DRAWN, 3), np.int64)
