"""Initial states of many variations of a task as arrays for the interpreter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Worlds:
    """N variations of a task. Maps are flat and surrounded by one more ring of walls, so that no step leaves them."""

    task: int
    height: int
    width: int
    """Size with the additional ring."""
    cells: NDArray[np.uint8]
    """[N, cells]: what is on a cell, as the world encodes it."""
    special: NDArray[np.uint8]
    """[N, cells]: 1 for the cells that the task treats specially."""
    agents: NDArray[np.int64]
    """[N, 2]: offset and heading."""
    facts: NDArray[np.int64]
    """[N, ...]: what the task depends on in the initial state, see the rules of the world."""
    food: NDArray[np.int64]
    """[N, draws]: offsets of Snake's food; [N, 1] for other tasks."""
    best: float
    """Bound of an episode's return, rounding apart."""
    slack: float
    """What rounding may add to a mean of returns."""

    @property
    def count(self) -> int:
        """Number of variations."""
        return len(self.cells)
