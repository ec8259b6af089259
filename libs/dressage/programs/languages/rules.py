"""Compiled rules of a plug-in: what its author gives, and how it becomes what the engine runs.

The functions of a `Machine` are compiled with `compiled` (numba). They get a flat map with one more ring of walls around it, so
that no step leaves it. ``set_cell`` changes a cell together with the hash that the loop detector compares.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dressage.episodes.compiling import allocation_free
from dressage.errors import InvalidArgument
from dressage.programs.engine import trees
from dressage.programs.engine.interpreter import Machine
from dressage.programs.engine.stepping import Stepper, perceiving_kernel, stepping_kernel
from dressage.programs.engine.worlds import Worlds
from dressage.programs.syntax import Language, Test
from dressage.programs.trace import Agent, Contents, Effect

compiled = allocation_free(inline=True)
"""Compiles a function of a `Machine`, or one that they call. It must not allocate arrays."""
MAX_CELLS = 10_000
MAX_CONTENTS = 256
_MAX_FACTS = 64
_WALL = "#"


@compiled
def set_cell(cells: Any, keys: Any, marks: Any, position: int, content: int) -> None:
    """Change what a cell holds; `Machine.act` then returns True for ``touched``. ``keys`` and ``marks`` are what it gets."""
    marks[0] ^= keys[position, cells[position]] ^ keys[position, content]
    cells[position] = content


@dataclass(frozen=True)
class Start:
    """An initial state.

    :param cells: [H, W], what each cell holds: numbers below `Machine.contents`.
    :param agent: row and column.
    :param heading: 0 to 3; the rules define what it means.
    :param facts: what else the rules need, such as the offset of a goal, see `offset`.
    """

    cells: Sequence[Sequence[int]] | NDArray[Any]
    agent: tuple[int, int]
    heading: int = 0
    facts: Sequence[int] = ()


@dataclass(frozen=True)
class CompiledRules:
    """The compiled rules of a plug-in.

    :param machine: its compiled functions. ``max_calls`` must be that of the plug-in.
    :param start: returns the initial state of a task by its number; the same number always gives the same state.
    :param wall: content of the ring around the map.
    :param looks: character and name of each content in a trace, such as ``("o", "dirt")``; the name ``wall`` is a wall.
    :param headings: names of the directions 0 to 3.
    """

    machine: Machine
    start: Callable[[str, int], Start]
    wall: int
    looks: Mapping[int, tuple[str, str]]
    headings: tuple[str, str, str, str] = ("north", "east", "south", "west")


def offset(row: int, column: int, width: int) -> int:
    """Return the offset of a cell in the flat map of ``width`` columns, without the ring."""
    return (row + 1) * (width + 2) + column + 1


def worlds_of(rules: CompiledRules, tasks: Sequence[str], task: str, states: Sequence[int]) -> Worlds:
    """Return initial states as the engine needs them. The rules see a task as its place in ``tasks``.

    :raises InvalidArgument: for a state of a wrong form.
    """
    starts = [rules.start(task, state) for state in states]
    grids = [_check_start(start, state, rules) for start, state in zip(starts, states, strict=True)]
    height, width = grids[0].shape
    if any(grid.shape != (height, width) for grid in grids):
        shapes = sorted({grid.shape for grid in grids})
        raise InvalidArgument(field="start.cells", value=shapes, expected="the same height and width in all states")
    count, columns = len(states), width + 2
    cells = np.full((count, height + 2, columns), rules.wall, np.uint8)
    cells[:, 1:-1, 1:-1] = grids
    agents = np.array([[offset(*start.agent, width), start.heading] for start in starts], np.int64)
    most = max(1, *(len(start.facts) for start in starts)) if count > 1 else max(1, len(starts[0].facts))
    facts = np.zeros((count, most), np.int64)
    for i, start in enumerate(starts):
        facts[i, : len(start.facts)] = start.facts
    flat = cells.reshape(count, -1)
    unused = np.zeros((count, 1), np.int64)
    code = list(tasks).index(task)
    special = np.zeros_like(flat)
    return Worlds(code, height + 2, columns, flat, special, agents, facts, unused, best=1.0, slack=1e-9)


def _check_start(start: Start, state: int, rules: CompiledRules) -> NDArray[np.uint8]:
    def refuse(name: str, value: object, expected: str) -> InvalidArgument:
        return InvalidArgument(field=f"start.{name} of state {state}", value=value, expected=expected)

    if not isinstance(start, Start):
        raise InvalidArgument(field=f"start of state {state}", value=start, expected="a Start")
    grid = np.asarray(start.cells)
    if grid.ndim != 2 or not 1 <= grid.size <= MAX_CELLS or not np.issubdtype(grid.dtype, np.integer):
        raise refuse("cells", f"{grid.dtype} {grid.shape}", f"whole numbers [H, W], at most {MAX_CELLS}")
    if grid.min() < 0 or grid.max() >= rules.machine.contents:
        raise refuse("cells", int(grid.max()), f"numbers from 0 to {rules.machine.contents - 1}")
    row, column = (int(value) for value in start.agent)
    if not (0 <= row < grid.shape[0] and 0 <= column < grid.shape[1]):
        raise refuse("agent", start.agent, f"a row and a column of a map {grid.shape[0]}x{grid.shape[1]}")
    if start.heading not in range(4):
        raise refuse("heading", start.heading, "0, 1, 2 or 3")
    if len(start.facts) > _MAX_FACTS:
        raise refuse("facts", f"{len(start.facts)} numbers", f"at most {_MAX_FACTS}")
    return grid.astype(np.uint8)


def check_rules(rules: Any, max_calls: int) -> CompiledRules:
    """Return compiled rules of a right form.

    :raises InvalidArgument: naming the part that is wrong.
    """
    if not isinstance(rules, CompiledRules):
        raise InvalidArgument(field="compiled", value=rules, expected="a function that returns CompiledRules")
    machine = rules.machine
    if not isinstance(machine, Machine):
        raise InvalidArgument(field="compiled.machine", value=machine, expected="a Machine")
    for name in ("begin", "perceive", "act"):
        if not hasattr(getattr(machine, name), "py_func"):
            expected = "a function compiled with dressage.programs.languages.rules.compiled"
            raise InvalidArgument(field=f"compiled.machine.{name}", value=getattr(machine, name), expected=expected)
    if machine.max_calls != max_calls:
        raise InvalidArgument(
            field="compiled.machine.max_calls", value=machine.max_calls, expected=f"{max_calls}, as the plug-in has it"
        )
    if not isinstance(machine.contents, int) or not 1 <= machine.contents <= MAX_CONTENTS:
        expected = f"a whole number, 1 to {MAX_CONTENTS}"
        raise InvalidArgument(field="compiled.machine.contents", value=machine.contents, expected=expected)
    if rules.wall not in range(machine.contents):
        expected = f"a number from 0 to {machine.contents - 1}"
        raise InvalidArgument(field="compiled.wall", value=rules.wall, expected=expected)
    if len(rules.headings) != 4:
        raise InvalidArgument(field="compiled.headings", value=rules.headings, expected="four names")
    return rules


class GridWorld:
    """One initial state for a trace, with the compiled rules; see `dressage.programs.trace.World`."""

    def __init__(self, worlds: Worlds, rules: CompiledRules, language: Language, kernels: str) -> None:
        machine = rules.machine
        self._world = Stepper(worlds, 0, machine, stepping_kernel(kernels, machine))
        self._perceive = perceiving_kernel(kernels, machine)
        self._rules, self._language = rules, language
        self._tests = {test: number for number, test in enumerate(trees.tests_of(language))}
        self.max_calls = machine.max_calls
        looks = ", ".join(f"{character} is {name}" for character, name in rules.looks.values() if name)
        self.legend = f"{looks}; @ is the agent."

    def perceive(self, test: Test) -> bool:
        return bool(self._world.perceive(self._perceive, self._tests[test]))

    def act(self, action: str, *, blocked: bool) -> Effect:
        reward, terminated, changed = self._world.act(self._language.actions.index(action), blocked=blocked)
        objects = []
        for at in changed:
            place = self._world.place(at)
            if self._world.offset(*place) is not None:
                objects.append((*place, self._name(at)))
        return Effect(reward, terminated, objects=tuple(objects))

    def state(self) -> Hashable:
        agent = self._world.agent
        return int(agent[0]), int(agent[1]), self._world.cells.tobytes()

    def hash_is_current(self) -> bool:
        """Return whether the hash of the map is that of its cells, as the loop detector needs it."""
        return self._world.hash_is_current()

    def agent(self) -> Agent:
        position, heading = self._world.agent
        beneath = self._name(int(position))
        return Agent(*self._world.place(position), self._rules.headings[heading], f"on {beneath}" if beneath else "")

    def grid(self) -> tuple[str, ...]:
        rows, columns = self._world.height - 2, self._world.width - 2
        return tuple("".join(self._character(row, column) for column in range(columns)) for row in range(rows))

    def contents(self) -> Contents:
        contents = Contents(self._world.height - 2, self._world.width - 2)
        for at in range(self._world.cells.size):
            place, name = self._world.place(at), self._name(at)
            if name and self._world.offset(*place) is not None:
                if name == "wall":
                    contents.walls.add(place)
                else:
                    contents.objects[place] = name
        return contents

    def view(self) -> tuple[str, ...]:
        row, column = self._world.place(self._world.agent[0])
        return tuple("".join(self._character(row + i, column + j) for j in (-1, 0, 1)) for i in (-1, 0, 1))

    def _name(self, at: int) -> str:
        return self._rules.looks.get(int(self._world.cells[at]), (".", ""))[1]

    def _character(self, row: int, column: int) -> str:
        at = self._world.offset(row, column)
        if at is None:
            return " "
        if at == self._world.agent[0]:
            return "@"
        character, name = self._rules.looks.get(int(self._world.cells[at]), (".", ""))
        return _WALL if name == "wall" else character[:1] or "."
