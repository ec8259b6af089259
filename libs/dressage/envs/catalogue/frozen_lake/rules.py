"""FrozenLake-v1 on its 4x4 map, slippery, as Gymnasium plays it.

Gymnasium draws one uniform number at the start and one in each step, and takes the first outcome whose cumulated
probability exceeds it. The map has one start, so that the first draw decides nothing. ``state``: the cell.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dressage.envs.rules import Rules

_MAP = np.array([[ord(letter) for letter in row] for row in ("SFFF", "FHFH", "FFFH", "HFFG")])
_SIZE = 4
_HOLE, _GOAL = ord("H"), ord("G")
_THRESHOLDS = np.cumsum([(1.0 - 1.0 / 3.0) / 2.0, 1.0 / 3.0, (1.0 - 1.0 / 3.0) / 2.0])
_LEFT, _DOWN, _RIGHT = 0, 1, 2


def _start(state: Any, draws: Any) -> None:
    state[0] = 0.0


def _step(state: Any, choice: int, action: Any, draws: Any, first: int) -> tuple[float, bool]:
    cell, turn = int(state[0]), 0
    for index in range(3):
        if _THRESHOLDS[index] > draws[first]:
            turn = index
            break
    direction = (choice + 3 + turn) % 4
    row, column = cell // _SIZE, cell % _SIZE
    if direction == _LEFT:
        column = max(column - 1, 0)
    elif direction == _DOWN:
        row = min(row + 1, _SIZE - 1)
    elif direction == _RIGHT:
        column = min(column + 1, _SIZE - 1)
    else:
        row = max(row - 1, 0)
    state[0] = row * _SIZE + column
    letter = _MAP[row, column]
    return (1.0 if letter == _GOAL else 0.0), letter in (_GOAL, _HOLE)


RULES = {
    "FrozenLake-v1": Rules(
        name="frozen_lake",
        state_size=1,
        observation_size=_SIZE * _SIZE,
        start=_start,
        step=_step,
        draws_at_start=1,
        draws_per_step=1,
    )
}
