"""A world one operation at a time, for traces and pictures, with the compiled rules of its machine."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dressage.episodes.compiling import kernel
from dressage.programs.engine import loop_states
from dressage.programs.engine.interpreter import DELTAS, SCRATCH, STATE, Machine
from dressage.programs.engine.worlds import Worlds

_BEGIN = -1


class Stepper:
    """One variation of a task.

    :param step: from `stepping_kernel`, of the same machine.
    """

    def __init__(self, worlds: Worlds, index: int, machine: Machine, step: Any) -> None:
        self.width, self.height = worlds.width, worlds.height
        self.cells: NDArray[np.uint8] = worlds.cells[index].copy()
        """[cells], with the additional ring."""
        self.agent: NDArray[np.int64] = worlds.agents[index].copy()
        """Offset and heading."""
        self._step = step
        self._scratch = np.zeros(SCRATCH, np.int64)
        self._marks = np.zeros(1, np.uint64)
        self._keys = loop_states.hash_keys(self.cells.size, machine.contents)[0]
        self._first = self.cells.copy()
        self._rules = (worlds.task, worlds.width, worlds.special[index], worlds.facts[index], worlds.food[index])
        self._advance(_BEGIN, blocked=False)

    @property
    def memory(self) -> NDArray[np.int64]:
        """What the task remembers, see the rules of the world."""
        return self._scratch[:STATE]

    def ahead(self, turn: int = 0) -> int:
        """Return the offset of the cell ahead of the agent after a turn to the right of so many quarters."""
        deltas = self._scratch[STATE : STATE + DELTAS]
        return int(self.agent[0] + deltas[(self.agent[1] + turn) % 4])

    def act(self, action: int, *, blocked: bool) -> tuple[float, bool, list[int]]:
        """Perform an action; return the reward, whether the task ends, and the offsets of the cells that changed."""
        before = self.cells.copy()
        reward, terminated = self._advance(action, blocked=blocked)
        return float(reward), bool(terminated), np.flatnonzero(self.cells != before).tolist()

    def perceive(self, kernel: Any, test: int) -> bool:
        """Return the outcome of a test by its number.

        :param kernel: from `perceiving_kernel`, of the same machine.
        """
        return bool(kernel(test, self.cells, self.agent, self._scratch))

    def hash_is_current(self) -> bool:
        """Return whether the hash that the rules keep is that of the cells; else the loop detector compares wrong states."""
        cells = np.arange(self.cells.size)
        changes = self._keys[cells, self._first] ^ self._keys[cells, self.cells]
        return bool(np.bitwise_xor.reduce(changes) == self._marks[0])

    def place(self, offset: int) -> tuple[int, int]:
        """Return row and column of a cell, without the additional ring."""
        row, column = divmod(int(offset), self.width)
        return row - 1, column - 1

    def offset(self, row: int, column: int) -> int | None:
        """Return the offset of a cell; None outside of the map."""
        if not (0 <= row < self.height - 2 and 0 <= column < self.width - 2):
            return None
        return (row + 1) * self.width + column + 1

    def _advance(self, action: int, *, blocked: bool) -> tuple[float, bool]:
        result: tuple[float, bool] = self._step(
            action, blocked, *self._rules, self.cells, self.agent, self._scratch, self._keys, self._marks
        )
        return result


@functools.cache
def stepping_kernel(family: str, machine: Machine) -> Any:
    """Return the kernel that performs one action; it compiles when it is first called."""
    begin, act = machine.begin, machine.act

    @kernel(f"programs-{family}-step")
    def step(
        action: int,
        blocked: bool,
        task: int,
        width: int,
        special: Any,
        facts: Any,
        food: Any,
        cells: Any,
        agent: Any,
        scratch: Any,
        keys: Any,
        marks: Any,
    ) -> Any:
        state, deltas, body = scratch[:STATE], scratch[STATE : STATE + DELTAS], scratch[STATE + DELTAS :]
        if action < 0:
            begin(task, width, state, deltas, facts, agent[0], body)
            return 0.0, False
        position, heading, reward, terminated, _ = act(
            action,
            blocked,
            task,
            width,
            cells,
            special,
            facts,
            food,
            state,
            deltas,
            body,
            keys,
            marks,
            agent[0],
            agent[1],
        )
        agent[0], agent[1] = position, heading
        return reward, terminated

    return step


@functools.cache
def perceiving_kernel(family: str, machine: Machine) -> Any:
    """Return the kernel that performs one test; it compiles when it is first called."""
    perceive = machine.perceive

    @kernel(f"programs-{family}-perceive")
    def perceiving(test: int, cells: Any, agent: Any, scratch: Any) -> Any:
        return perceive(test, cells, agent[0], agent[1], scratch[:STATE], scratch[STATE : STATE + DELTAS])

    return perceiving
