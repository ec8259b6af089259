"""FrozenLake-v1 on its 4x4 map, slippery. ``state``: the cell, and the number of steps done.

Gymnasium draws one uniform number at the start and one in each step, and takes the first outcome whose cumulated
probability exceeds it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dressage.episodes.compiling import device
from dressage.episodes.rules.base import Array, Rules, first_number, observe_one_hot

_MAP = np.array([[ord(letter) for letter in row] for row in ("SFFF", "FHFH", "FFFH", "HFFG")])
_SIZE = 4
_HOLE, _GOAL = ord("H"), ord("G")
_THRESHOLDS = np.cumsum([(1.0 - 1.0 / 3.0) / 2.0, 1.0 / 3.0, (1.0 - 1.0 / 3.0) / 2.0])
_LEFT, _DOWN, _RIGHT = 0, 1, 2


def _draws(stream: np.random.Generator, limit: int) -> Array:
    return stream.random(limit + 1)


@device
def _start(state: Any, draws: Any) -> None:
    # The map has one start, so that the first draw decides nothing.
    state[0] = 0.0
    state[1] = 0.0


@device
def _step(state: Any, choice: int, action: Any, draws: Any) -> tuple[float, bool]:
    cell, steps = int(state[0]), int(state[1])
    draw = draws[steps + 1]
    turn = 0
    for index in range(3):
        if _THRESHOLDS[index] > draw:
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
    state[1] = steps + 1
    letter = _MAP[row, column]
    return (1.0 if letter == _GOAL else 0.0), letter in (_GOAL, _HOLE)


RULES = Rules(
    name="frozen_lake",
    state_size=2,
    observation_size=16,
    action_size=0,
    draws=_draws,
    start=_start,
    observe=observe_one_hot,
    number=first_number,
    step=_step,
)
