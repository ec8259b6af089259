"""Draws of random programs and neighbours by number, for users and tests; the search draws within its own kernel."""

from __future__ import annotations

from typing import Any

import numpy as np

from dressage.episodes.compiling import kernel
from dressage.errors import InvalidArgument
from dressage.programs.engine import random_numbers, sampling
from dressage.programs.engine.grammar import Grammar
from dressage.programs.engine.trees import Nodes, flatten, unflatten
from dressage.programs.syntax import Program


def random_programs(grammar: Grammar, seed: int, count: int, first: int = 0) -> list[Program]:
    """Return ``count`` random programs of a seed, from number ``first`` on."""
    return _draw(grammar, np.zeros(0, np.int32), seed, count, first)


def neighbours(program: Program, grammar: Grammar, seed: int, count: int, first: int = 0) -> list[Program]:
    """Return ``count`` neighbours of a program by their numbers from ``first`` on.

    :raises InvalidArgument: for a program that is not of the grammar's language.
    """
    return _draw(grammar, flatten(program, grammar.language), seed, count, first)


def draw_nodes(grammar: Grammar, parent: Nodes, seed: int, number: int) -> Nodes:
    """Return candidate ``number`` of a seed: a neighbour of a program, or a random program if it has no nodes."""
    out = np.zeros((1, len(parent) + sampling.MAX_DRAWN), np.int32)
    sizes = np.zeros(1, np.int64)
    _fill(parent, seed, number, grammar.tables(), out, sizes)
    return out[0, : sizes[0]].copy()


def _draw(grammar: Grammar, parent: Any, seed: int, count: int, first: int) -> list[Program]:
    for name, value in (("seed", seed), ("count", count), ("first", first)):
        if value < 0:
            raise InvalidArgument(field=name, problem="negative", value=value, expected="0 or more")
    out = np.zeros((count, len(parent) + sampling.MAX_DRAWN), np.int32)
    sizes = np.zeros(count, np.int64)
    _fill(parent, seed, first, grammar.tables(), out, sizes)
    return [unflatten(row[:size], grammar.language) for row, size in zip(out, sizes, strict=True)]


@kernel("programs-draw")
def _fill(parent: Any, seed: int, first: int, tables: Any, out: Any, sizes: Any) -> None:
    weights = np.zeros(6, np.int64)
    stack = np.zeros((sampling.MAX_DRAWN, 3), np.int64)
    stream = np.zeros(1, np.uint64)
    rows = np.zeros((max(1, len(parent)), sampling.ANALYSIS), np.int64)
    own_rows = np.zeros((out.shape[1], sampling.ANALYSIS), np.int64)
    within = len(parent) > 0 and sampling.analyse(parent, len(parent), tables[3], rows)
    for n in range(len(out)):
        random_numbers.begin_stream(stream, seed, first + n)
        if len(parent) == 0:
            sizes[n] = sampling.draw_program(stream, out[n], tables, weights, stack)
        else:
            sizes[n] = sampling.draw_neighbour(
                stream, parent, len(parent), rows, within, out[n], tables, weights, stack, own_rows
            )
