"""NoiseWorld boards, as `dressage.envs.small.noise_world` defines them.

``state``: row, column, stage, number of steps done, board. The board's number comes before the random draws, so that boards
of one size share a kernel.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from dressage.envs.small.boards import (
    BOARDS,
    FIRST_KEY,
    GOAL,
    RESET_RATE,
    SECOND_KEY,
    STAY_RATE,
    STOCHASTIC_RESET,
    STOCHASTIC_STAY,
    TRAP,
    WALL,
)
from dressage.envs.small.noise_world import MOVES
from dressage.episodes.compiling import device
from dressage.episodes.rules.base import Array, Rules, no_number

_LARGEST = max(board.size for board in BOARDS)
_CODES = np.full((len(BOARDS), _LARGEST, _LARGEST), WALL)
for _index, _board in enumerate(BOARDS):
    _CODES[_index, : _board.size, : _board.size] = _board.codes
_SIZES = np.array([board.size for board in BOARDS])
_NEEDS_KEYS = np.array([board.needs_keys for board in BOARDS])
_STARTS = np.array([board.start for board in BOARDS])
_MOVES = np.array(MOVES)


def _draws(board: int, stream: np.random.Generator, limit: int) -> Array:
    return np.concatenate(([float(board)], stream.random(limit)))


@device
def _start(state: Any, draws: Any) -> None:
    board = int(draws[0])
    state[0], state[1] = _STARTS[board, 0], _STARTS[board, 1]
    state[2], state[3], state[4] = 0.0, 0.0, draws[0]


@device
def _observe(state: Any, observation: Any) -> None:
    board = int(state[4])
    size = _SIZES[board]
    observation[0], observation[1] = state[0], state[1]
    for row in range(size):
        for column in range(size):
            observation[2 + row * size + column] = _CODES[board, row, column]


@device
def _step(state: Any, choice: int, action: Any, draws: Any) -> tuple[float, bool]:
    row, column, steps, board = int(state[0]), int(state[1]), int(state[3]), int(state[4])
    size, code, draw = _SIZES[board], _CODES[board, row, column], draws[1 + steps]
    state[3] = steps + 1
    if code == STOCHASTIC_RESET and draw < RESET_RATE:
        row, column = _STARTS[board, 0], _STARTS[board, 1]
    elif not (code == STOCHASTIC_STAY and draw < STAY_RATE):
        new_row, new_column = row + _MOVES[choice, 0], column + _MOVES[choice, 1]
        inside = new_row >= 0 and new_row < size and new_column >= 0 and new_column < size
        if inside and _CODES[board, new_row, new_column] != WALL:
            row, column = new_row, new_column
    state[0], state[1] = row, column
    reached = _CODES[board, row, column]
    if (reached == FIRST_KEY and state[2] == 0) or (reached == SECOND_KEY and state[2] == 1):
        state[2] += 1
    reward = -1.0
    if reached == GOAL and (state[2] == 2 or not _NEEDS_KEYS[board]):
        reward += float(size**3)
    elif reached == TRAP:
        reward -= float(size**5)
    return reward, reached in (GOAL, TRAP)


def _rules(board: int) -> Rules:
    size = BOARDS[board].size
    return Rules(
        name=f"noise_world_{size}",
        state_size=5,
        observation_size=2 + size * size,
        action_size=0,
        draws=functools.partial(_draws, board),
        start=_start,
        observe=_observe,
        number=no_number,
        step=_step,
    )


BOARD_0, BOARD_1, BOARD_2, BOARD_3, BOARD_4, BOARD_5, BOARD_6 = map(_rules, range(len(BOARDS)))
