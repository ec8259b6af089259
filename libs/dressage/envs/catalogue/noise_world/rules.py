"""NoiseWorld: a board of n × n cells (n = 5 on board 0, else 10), each with an integer code; the episode has n² steps.

Actions: 0 up, 1 right, 2 down, 3 left. A move against the edge or into a wall leaves the agent where it is. The cell that the
agent leaves decides whether noise replaces its move, the cell it is on afterwards what follows: a deterministic cell has no
effect; from a stochastic-stay cell the agent does not get away with probability `STAY_RATE`; from a stochastic-reset cell it is
put back to the start with probability `RESET_RATE`, instead of its move; goals and traps end the episode. On boards 4 to 6 a
goal pays only after cells 6 and then 7 have been visited (7 does not count before 6); without them it ends the episode all the
same. A return to the start keeps what was visited. Rewards: -1 for every step, n³ more in a goal that pays, n⁵ less in a trap.

The observation is row, column, then the codes row by row. The meaning of the codes, what was visited and the noise are in no
observation, no ``info`` and no card: the player has to find them out, so no description may import this module, and no process
of generated code may read it (`dressage.contracts.hidden`).

``state``: row, column, how many of the two keys count as visited, board. The board's number comes before the draws, so that
boards of one size share a kernel. Draws: none at the start; one in every step, whatever the cell.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from dressage.envs.rules import OwnRules, no_number
from dressage.envs.state import Array

DETERMINISTIC, STOCHASTIC_RESET, WALL, TRAP, STOCHASTIC_STAY, GOAL, FIRST_KEY, SECOND_KEY = range(8)
STAY_RATE = 0.5
"""Probability that a move away from a stochastic-stay cell fails."""
RESET_RATE = 0.25
"""Probability that a move away from a stochastic-reset cell leads to the start."""


@dataclass(frozen=True)
class Board:
    """A board.

    :param codes: the code of each cell, row by row from the top.
    :param needs_keys: the goal pays only after cells 6 and then 7 have been visited.
    :param target: mean return from which it counts as solved: a little below the optimum, which tests compute.
    :param start: row and column at the start of an episode.
    """

    codes: tuple[tuple[int, ...], ...]
    needs_keys: bool
    target: float
    start: tuple[int, int] = (0, 0)

    @property
    def size(self) -> int:
        """Rows, and as many columns."""
        return len(self.codes)


def _board(*rows: str, target: float, needs_keys: bool = False) -> Board:
    return Board(tuple(tuple(map(int, row)) for row in rows), needs_keys, target)


BOARDS: tuple[Board, ...] = (
    _board(
        "04000",
        "40002",
        "00240",
        "02200",
        "30005",
        target=112.0,
    ),
    _board(
        "0200000002",
        "0000400200",
        "0040040400",
        "0000422000",
        "2400420224",
        "0200220020",
        "2022044000",
        "2000000044",
        "0000200002",
        "0020000005",
        target=970.0,
    ),
    _board(
        "0200004024",
        "4000420000",
        "2222003244",
        "2000422000",
        "0343200000",
        "0002040040",
        "0400244020",
        "0000020443",
        "2200424040",
        "2420420005",
        target=970.0,
    ),
    _board(
        "0040040200",
        "1024203322",
        "0404304240",
        "3201040040",
        "2000014010",
        "0212020100",
        "0222000020",
        "1024003202",
        "4120411100",
        "4300201225",
        target=900.0,
    ),
    _board(
        "0000040000",
        "0440044024",
        "0040020060",
        "0020000000",
        "7002040200",
        "0020220020",
        "0202220000",
        "0400020000",
        "0000022000",
        "2004002005",
        target=950.0,
        needs_keys=True,
    ),
    _board(
        "0004002322",
        "2027240423",
        "2422222420",
        "0400020040",
        "4030244400",
        "0003000022",
        "0402634000",
        "4000020020",
        "0000000000",
        "0240420025",
        target=940.0,
        needs_keys=True,
    ),
    _board(
        "0011000404",
        "0001224440",
        "3002002222",
        "0602404032",
        "1013224421",
        "0223020200",
        "0404024100",
        "2000100030",
        "2034100420",
        "0422007415",
        target=915.0,
        needs_keys=True,
    ),
)

_SIZES = np.array([board.size for board in BOARDS])
_CODES = np.full((len(BOARDS), max(_SIZES) ** 2), WALL)
for _index, _entry in enumerate(BOARDS):
    _CODES[_index, : _entry.size**2] = np.ravel(_entry.codes)
_NEEDS_KEYS = np.array([board.needs_keys for board in BOARDS])
_STARTS = np.array([board.start for board in BOARDS])
MOVES = np.array([(-1, 0), (0, 1), (1, 0), (0, -1)])
"""Change of row and column by action: up, right, down, left."""


def _draw_start(board: int, stream: np.random.Generator) -> Array:
    return np.array([float(board)])


def _start(state: Any, draws: Any) -> None:
    board = int(draws[0])
    state[0], state[1] = _STARTS[board, 0], _STARTS[board, 1]
    state[2], state[3] = 0.0, draws[0]


def _observe(state: Any, observation: Any) -> None:
    observation[0], observation[1] = state[0], state[1]
    observation[2:] = _CODES[int(state[3]), : len(observation) - 2]


def _step(state: Any, choice: int, action: Any, draws: Any, first: int) -> tuple[float, bool]:
    row, column, board, draw = int(state[0]), int(state[1]), int(state[3]), draws[first]
    size = _SIZES[board]
    code = _CODES[board, row * size + column]
    if code == STOCHASTIC_RESET and draw < RESET_RATE:
        row, column = _STARTS[board, 0], _STARTS[board, 1]
    elif not (code == STOCHASTIC_STAY and draw < STAY_RATE):
        new_row, new_column = row + MOVES[choice, 0], column + MOVES[choice, 1]
        inside = new_row >= 0 and new_row < size and new_column >= 0 and new_column < size
        if inside and _CODES[board, new_row * size + new_column] != WALL:
            row, column = new_row, new_column
    state[0], state[1] = row, column
    reached = _CODES[board, row * size + column]
    if (reached == FIRST_KEY and state[2] == 0) or (reached == SECOND_KEY and state[2] == 1):
        state[2] += 1
    reward = -1.0
    if reached == GOAL and (state[2] == 2 or not _NEEDS_KEYS[board]):
        reward += float(size**3)
    elif reached == TRAP:
        reward -= float(size**5)
    return reward, reached in (GOAL, TRAP)


def _rules(index: int, board: Board) -> OwnRules:
    cells = board.size**2
    return OwnRules(
        name=f"noise_world_{board.size}",
        state_size=4,
        observation_size=2 + cells,
        start=_start,
        step=_step,
        observe=_observe,
        number=no_number,
        draws_at_start=1,
        draws_per_step=1,
        draw_start=functools.partial(_draw_start, index),
        num_actions=len(MOVES),
        max_episode_steps=cells,
        target=board.target,
        low=(0.0,) * (2 + cells),
        high=(board.size - 1.0,) * 2 + (float(SECOND_KEY),) * cells,
    )


RULES = {f"NoiseWorld{index}-v0": _rules(index, board) for index, board in enumerate(BOARDS)}
