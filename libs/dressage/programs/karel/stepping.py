"""Karel's world one operation at a time, for traces and pictures."""

from __future__ import annotations

from collections.abc import Hashable

from dressage.programs.engine import worlds as engine
from dressage.programs.engine.stepping import Stepper, stepping_kernel
from dressage.programs.karel.machine import KAREL_MACHINE
from dressage.programs.karel.rules import MARKERS, WALL
from dressage.programs.syntax import KAREL, Test
from dressage.programs.trace import Agent, Contents, Effect

HEADINGS = ("north", "east", "south", "west")
_ARROWS = "^>v<"
_TURNS = {"frontIsClear": 0, "leftIsClear": 3, "rightIsClear": 1}
_TEN = "X"
_step = stepping_kernel("karel", KAREL_MACHINE)


class KarelWorld:
    """One variation of a task, see `dressage.programs.trace.World`."""

    max_calls = KAREL_MACHINE.max_calls
    legend = (
        "# is a wall, . a cell without markers, a digit its number of markers (X: ten); ^ > v < is the agent, which "
        "faces north, east, south or west."
    )

    def __init__(self, worlds: engine.Worlds, index: int) -> None:
        self._world = Stepper(worlds, index, KAREL_MACHINE, _step)

    def perceive(self, test: Test) -> bool:
        cells = self._world.cells
        if test.name in _TURNS:
            return bool(cells[self._world.ahead(_TURNS[test.name])] < WALL)
        return bool(cells[self._world.agent[0]] & MARKERS) == (test.name == "markersPresent")

    def act(self, action: str, *, blocked: bool) -> Effect:
        before = self._world.cells.copy()
        reward, terminated, changed = self._world.act(KAREL.actions.index(action), blocked=blocked)
        markers, walls = [], []
        for offset in changed:
            row, column = self._world.place(offset)
            cell = int(self._world.cells[offset])
            if (cell ^ before[offset]) & MARKERS:
                markers.append((row, column, cell & MARKERS))
            if (cell ^ before[offset]) & WALL:
                walls.append((row, column, bool(cell & WALL)))
        return Effect(reward, terminated, tuple(markers), tuple(walls))

    def state(self) -> Hashable:
        """Return cell, heading and markers, without walls."""
        agent = self._world.agent
        return int(agent[0]), int(agent[1]), (self._world.cells & MARKERS).tobytes()

    def agent(self) -> Agent:
        at = self._world.agent
        count = int(self._world.cells[at[0]] & MARKERS)
        note = f"on {count} marker{'s' if count > 1 else ''}" if count else ""
        return Agent(*self._world.place(at[0]), HEADINGS[at[1]], note)

    def grid(self) -> tuple[str, ...]:
        rows, columns = self._world.height - 2, self._world.width - 2
        return tuple("".join(self._character(row, column) for column in range(columns)) for row in range(rows))

    def contents(self) -> Contents:
        rows, columns = self._world.height - 2, self._world.width - 2
        cells = self._world.cells.reshape(rows + 2, columns + 2)[1:-1, 1:-1]
        everything = {(row, column): int(cells[row, column]) for row in range(rows) for column in range(columns)}
        walls = {place for place, cell in everything.items() if cell & WALL}
        markers = {place: cell & MARKERS for place, cell in everything.items() if cell & MARKERS}
        return Contents(rows, columns, walls, markers)

    def view(self) -> tuple[str, ...]:
        row, column = self._world.place(self._world.agent[0])
        return tuple("".join(self._character(row + i, column + j) for j in (-1, 0, 1)) for i in (-1, 0, 1))

    def _character(self, row: int, column: int) -> str:
        offset = self._world.offset(row, column)
        if offset is None:
            return " "
        if offset == self._world.agent[0]:
            return _ARROWS[self._world.agent[1]]
        cell = int(self._world.cells[offset])
        if cell & WALL:
            return "#"
        return (_TEN if cell == 10 else str(cell)) if cell else "."
