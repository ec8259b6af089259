"""Initial states of the Minigrid tasks by seed: those of Minigrid 2.5.0 with its generator and order of draws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dressage.programs.minigrid import cells, tasks
from dressage.programs.minigrid.tasks import MinigridTask

Cell = tuple[int, int]
EAST, SOUTH, WEST, NORTH = 0, 1, 2, 3
"""Headings."""
_DRAWN_COLOURS = (cells.BLUE, cells.GREEN, cells.GREY, cells.PURPLE, cells.RED, cells.YELLOW)
"""Minigrid draws from the colours in the order of their names."""


@dataclass
class Layout:
    """One initial state. Rows and columns include the border walls."""

    grid: NDArray[np.uint8]
    """[H, W], see `cells`."""
    agent: Cell = (1, 1)
    heading: int = EAST


def layout(task: MinigridTask, seed: int) -> Layout:
    """Return the initial state of a seed."""
    random = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
    grid = np.zeros((task.height, task.width), np.uint8)
    grid[0] = grid[-1] = grid[:, 0] = grid[:, -1] = cells.cell(cells.WALL, cells.GREY)
    state = Layout(grid)
    _BUILDERS[task.code](state, lambda low, high: int(random.integers(low, high)))
    return state


_Draw = Callable[[int, int], int]
"""Returns an integer from the first to below the second."""


def _lava_gap(state: Layout, draw: _Draw) -> None:
    height, width = state.grid.shape
    column, gap = draw(2, width - 2), draw(1, height - 1)
    state.grid[1:-1, column] = cells.cell(cells.LAVA)
    state.grid[gap, column] = cells.EMPTY
    state.grid[height - 2, width - 2] = cells.cell(cells.GOAL, cells.GREEN)


def _put_near(state: Layout, draw: _Draw) -> None:
    height, width = state.grid.shape
    placed: list[Cell] = []
    for kind in (cells.BALL, cells.BOX):
        colour = _DRAWN_COLOURS[draw(0, len(_DRAWN_COLOURS))]
        row, column = _free_cell(state, draw, (0, width), (0, height))
        while any(abs(row - r) <= 1 and abs(column - c) <= 1 for r, c in placed):
            row, column = _free_cell(state, draw, (0, width), (0, height))
        state.grid[row, column] = cells.cell(kind, colour)
        placed.append((row, column))
    state.agent = _free_cell(state, draw, (0, width), (0, height))
    state.heading = draw(0, 4)


def _red_blue_door(state: Layout, draw: _Draw) -> None:
    height, width = state.grid.shape
    left, right = width // 4, width * 3 // 4 - 1
    state.grid[:, left] = state.grid[:, right] = cells.cell(cells.WALL, cells.GREY)
    state.agent = _free_cell(state, draw, (left, width * 3 // 4), (0, height))
    state.heading = draw(0, 4)
    state.grid[draw(1, height - 1), left] = cells.cell(cells.DOOR, cells.RED)
    state.grid[draw(1, height - 1), right] = cells.cell(cells.DOOR, cells.BLUE)


def _free_cell(state: Layout, draw: _Draw, columns: tuple[int, int], rows: tuple[int, int]) -> Cell:
    """Draw cells, column first, until one is empty."""
    while True:
        column = draw(*columns)
        row = draw(*rows)
        if state.grid[row, column] == cells.EMPTY:
            return row, column


_BUILDERS: dict[int, Callable[[Layout, _Draw], None]] = {
    tasks.LAVA_GAP: _lava_gap,
    tasks.PUT_NEAR: _put_near,
    tasks.RED_BLUE_DOOR: _red_blue_door,
}
