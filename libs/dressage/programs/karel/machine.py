"""Karel's world for the interpreter: perceptions and actions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dressage.episodes.compiling import allocation_free
from dressage.programs.engine import loop_states
from dressage.programs.engine.grammar import KAREL_GRAMMAR, Grammar
from dressage.programs.engine.interpreter import SCRATCH, Machine
from dressage.programs.engine.playing import player
from dressage.programs.engine.scoring import ProgramScorer, scoring_kernels
from dressage.programs.engine.worlds import Worlds
from dressage.programs.karel import rules
from dressage.programs.karel.rules import MARKERS, WALL
from dressage.programs.karel.tasks import SNAKE
from dressage.programs.syntax import KAREL

MAX_CALLS = 10_000
"""Perceptions and actions of an episode; the next one ends it."""
CONTENTS = 16
"""Numbers of markers that have a key."""

MOVE, TURN_LEFT, TURN_RIGHT, PICK, PUT = range(5)
_FRONT, _LEFT, _RIGHT, _MARKERS, _NO_MARKERS = 0, 1, 2, 3, 4

__all__ = ["KAREL_MACHINE", "MAX_CALLS", "SCRATCH", "hash_keys"]


def hash_keys(cells: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the keys of (cell, markers) [cells, 16] and of (cell, heading) [cells * 4]."""
    return loop_states.hash_keys(cells, CONTENTS)


@allocation_free(inline=True)
def _begin(task: int, width: int, state: Any, deltas: Any, facts: Any, position: int, body: Any) -> None:
    deltas[0] = -width
    deltas[1] = 1
    deltas[2] = width
    deltas[3] = -1
    rules.begin(task, state, facts, position, body)


@allocation_free(inline=True)
def _perceive(test: int, cells: Any, position: int, heading: int, state: Any, deltas: Any) -> Any:
    if test == _FRONT:
        return cells[position + deltas[heading]] < WALL
    if test == _NO_MARKERS:
        return cells[position] & MARKERS == 0
    if test == _MARKERS:
        return cells[position] & MARKERS != 0
    turn = 3 if test == _LEFT else 1
    return cells[position + deltas[(heading + turn) & 3]] < WALL


@allocation_free(inline=True)
def _act(
    action: int,
    blocked: bool,
    task: int,
    width: int,
    cells: Any,
    special: Any,
    facts: Any,
    food: Any,
    state: Any,
    deltas: Any,
    body: Any,
    keys: Any,
    marks: Any,
    position: int,
    heading: int,
) -> Any:
    reward, terminated, touched, before = 0.0, False, False, position
    if action == MOVE:
        ahead = position + deltas[heading]
        if cells[ahead] < WALL and not blocked:
            position = ahead
            if task != SNAKE:
                reward, terminated = rules.after_move(task, state, facts, cells, special, before, position, width)
                touched = True
        else:
            heading = (heading + 2) & 3
    elif action == TURN_LEFT:
        heading = (heading + 3) & 3
    elif action == TURN_RIGHT:
        heading = (heading + 1) & 3
    else:
        change = 1 if action == PUT else -1
        if rules.change_marker(cells, keys, marks, position, change):
            touched = True
            if task != SNAKE:
                reward, terminated = rules.after_marker(task, state, facts, cells, special, position, change)
    if task == SNAKE:
        touched = True
        reward, terminated = rules.snake(state, cells, keys, marks, body, food, before, position)
    return position, heading, reward, terminated, touched


KAREL_MACHINE = Machine(_begin, _perceive, _act, MAX_CALLS, CONTENTS)

play = player("karel", KAREL, KAREL_MACHINE).play
"""Play a program in every variation; ``cells & MARKERS`` of an episode are the markers at the end."""


class KarelScorer(ProgramScorer):
    """Scores programs in variations of a Karel task."""

    def __init__(self, worlds: Worlds, grammar: Grammar = KAREL_GRAMMAR) -> None:
        super().__init__(worlds, grammar, scoring_kernels("karel", KAREL_MACHINE))
