"""NoiseWorld0-v0 to NoiseWorld6-v0: boards whose cell codes have a meaning that a player must find out."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from dressage.envs.small.boards import (
    BOARDS,
    FIRST_KEY,
    GOAL,
    MOST_CODE,
    RESET_RATE,
    SECOND_KEY,
    STAY_RATE,
    STOCHASTIC_RESET,
    STOCHASTIC_STAY,
    TRAP,
    WALL,
    Board,
)

MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
"""Change of row and column by action: up, right, down, left."""
DRAWS_PER_STEP = 1


def advance(
    board: Board, row: int, column: int, stage: int, action: int, draw: float
) -> tuple[int, int, int, float, bool]:
    """Return row, column, stage, reward and end after a step.

    The cell that the agent leaves decides whether noise replaces its move; the cell it is on afterwards decides what
    follows.

    :param stage: how many of the two keys count as visited, in order: 0 to 2.
    :param draw: in [0, 1).
    """
    size, code = board.size, board.codes[row][column]
    if code == STOCHASTIC_RESET and draw < RESET_RATE:
        row, column = board.start
    elif not (code == STOCHASTIC_STAY and draw < STAY_RATE):
        down, right = MOVES[action]
        new_row, new_column = row + down, column + right
        inside = 0 <= new_row < size and 0 <= new_column < size
        if inside and board.codes[new_row][new_column] != WALL:
            row, column = new_row, new_column
    reached = board.codes[row][column]
    if (reached == FIRST_KEY and stage == 0) or (reached == SECOND_KEY and stage == 1):
        stage += 1
    reward = -1.0
    if reached == GOAL and (stage == 2 or not board.needs_keys):
        reward += float(size**3)
    elif reached == TRAP:
        reward -= float(size**5)
    return row, column, stage, reward, reached in (GOAL, TRAP)


class NoiseWorld(gymnasium.Env[NDArray[np.float32], Any]):
    """A board of n × n cells (n = 5 on board 0, else 10), each with an integer code; the episode has n² steps.

    Actions: 0 up, 1 right, 2 down, 3 left. A move against the edge or into a wall leaves the agent where it is. The
    agent starts at ``Board.start``. What a code means (`dressage.envs.small.boards`): a deterministic cell has no
    effect; from a stochastic-stay cell the agent does not get away with probability `STAY_RATE`; from a
    stochastic-reset cell it is put back to the start with probability `RESET_RATE`, instead of its move; goals and
    traps end the episode. On boards 4 to 6 a goal pays only after cells 6 and then 7 have been visited (7 does not
    count before 6); without them it ends the episode all the same. A return to the start keeps what was visited.
    Rewards: -1 for every step, n³ more in a goal that pays, n⁵ less in a trap.

    Observation, float32: row, column, then the codes row by row. The meaning of the codes, what was visited and the
    noise are in no observation, no ``info`` and no card: the player has to find them out.

    Draws: none at reset; one in every step, whatever the cell.

    :param board: 0 to 6.
    """

    metadata = {"render_modes": []}

    def __init__(self, board: int = 0) -> None:
        self._board = BOARDS[board]
        self._codes = np.array(self._board.codes, np.float32).ravel()
        high = np.concatenate((np.full(2, self._board.size - 1), np.full(self._codes.size, MOST_CODE)))
        self.observation_space = spaces.Box(np.zeros(high.size, np.float32), high.astype(np.float32))
        self.action_space = spaces.Discrete(len(MOVES))
        self._row, self._column = self._board.start
        self._stage = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Return to the start; nothing counts as visited."""
        super().reset(seed=seed)
        self._row, self._column = self._board.start
        self._stage = 0
        return self._observation(), {}

    def step(self, action: int) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Move."""
        self._row, self._column, self._stage, reward, ended = advance(
            self._board, self._row, self._column, self._stage, int(action), self.np_random.random()
        )
        return self._observation(), reward, ended, False, {}

    def _observation(self) -> NDArray[np.float32]:
        return np.concatenate((np.array([self._row, self._column], np.float32), self._codes))
