"""Minigrid's world one operation at a time, for traces and pictures."""

from __future__ import annotations

from collections.abc import Hashable

from dressage.programs.engine.stepping import Stepper, stepping_kernel
from dressage.programs.engine.worlds import Worlds
from dressage.programs.minigrid import cells
from dressage.programs.minigrid.machine import CARRIED, MINIGRID_MACHINE
from dressage.programs.syntax import MINIGRID, Test
from dressage.programs.trace import Agent, Contents, Effect

HEADINGS = ("right", "down", "left", "up")
_ARROWS = ">v<^"
_CHARACTERS = {"empty": ".", "wall": "#", "door": "D", "ball": "o", "box": "B", "goal": "G", "lava": "~"}
_PASSABLE = ("empty", "goal", "lava")
_step = stepping_kernel("minigrid", MINIGRID_MACHINE)


class MinigridWorld:
    """One variation of a task, see `dressage.programs.trace.World`."""

    max_calls = MINIGRID_MACHINE.max_calls
    legend = (
        "# is a wall, . an empty cell, ~ lava, G the goal, D a closed door, / an open one, o a ball, B a box; > v < ^ is the "
        "agent, which faces right, down, left or up."
    )

    def __init__(self, worlds: Worlds, index: int) -> None:
        self._world = Stepper(worlds, index, MINIGRID_MACHINE, _step)

    def perceive(self, test: Test) -> bool:
        cell = int(self._world.cells[self._world.ahead()])
        kind = cells.kind_of(cell)
        match test.name:
            case "front_is_clear":
                return kind in _PASSABLE or bool(cell & cells.OPEN)
            case "front_object_type":
                return kind == test.argument
            case "front_object_color":
                return kind != "empty" and cells.colour_of(cell) == test.argument
            case _:
                return self._cargo() != ""

    def act(self, action: str, *, blocked: bool) -> Effect:
        reward, terminated, changed = self._world.act(MINIGRID.actions.index(action), blocked=blocked)
        objects = tuple((*self._world.place(at), cells.name_of(int(self._world.cells[at]))) for at in changed)
        return Effect(reward, terminated, objects=objects)

    def state(self) -> Hashable:
        agent = self._world.agent
        return int(agent[0]), int(agent[1]), int(self._world.memory[CARRIED]), self._world.cells.tobytes()

    def agent(self) -> Agent:
        position, heading = self._world.agent
        carried = self._cargo()
        note = f"carrying a {carried}" if carried else ""
        return Agent(*self._world.place(position), HEADINGS[heading], note)

    def contents(self) -> Contents:
        contents = Contents(self._world.height - 2, self._world.width - 2)
        for at, cell in enumerate(self._world.cells):
            place, name = self._world.place(at), cells.name_of(int(cell))
            if name and self._world.offset(*place) is not None:
                if name == "wall":
                    contents.walls.add(place)
                else:
                    contents.objects[place] = name
        return contents

    def grid(self) -> tuple[str, ...]:
        rows, columns = self._world.height - 2, self._world.width - 2
        return tuple("".join(self._character(row, column) for column in range(columns)) for row in range(rows))

    def view(self) -> tuple[str, ...]:
        row, column = self._world.place(self._world.agent[0])
        return tuple("".join(self._character(row + i, column + j) for j in (-1, 0, 1)) for i in (-1, 0, 1))

    def _cargo(self) -> str:
        return cells.name_of(int(self._world.memory[CARRIED]))

    def _character(self, row: int, column: int) -> str:
        offset = self._world.offset(row, column)
        if offset is None:
            return " "
        if offset == self._world.agent[0]:
            return _ARROWS[self._world.agent[1]]
        cell = int(self._world.cells[offset])
        return "/" if cell & cells.OPEN else _CHARACTERS[cells.kind_of(cell)]
