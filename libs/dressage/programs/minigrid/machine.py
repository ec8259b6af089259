"""Minigrid's world for the interpreter: perceptions, actions and the rewards of the tasks.

Actions never end an episode by themselves: the agent stays where a wall, a closed door or an object is ahead. The limit of
steps of Minigrid's environments does not count; that of calls does.
"""

from __future__ import annotations

from typing import Any

from dressage.episodes.compiling import allocation_free
from dressage.programs.engine.interpreter import Machine
from dressage.programs.engine.playing import player
from dressage.programs.minigrid.cells import (
    BALL,
    BLUE,
    BOX,
    COLOUR_SHIFT,
    CONTENTS,
    DOOR,
    EMPTY,
    GOAL,
    KIND,
    LAVA,
    OPEN,
    RED,
)
from dressage.programs.minigrid.tasks import LAVA_GAP, PUT_NEAR
from dressage.programs.syntax import MINIGRID

MAX_CALLS = 999
"""Perceptions and actions of an episode; the next one ends it."""

CARRIED, REWARDED = 0, 1
"""What the memory holds: the cell that the agent carries, EMPTY for none; whether the first half was rewarded."""

FACTS = 2
FIRST, SECOND = range(FACTS)
"""Offsets of the box of PutNear, or of the red and the blue door."""

LEFT, RIGHT, FORWARD, PICKUP, DROP, TOGGLE = range(6)
# Tests in the order of `trees.tests_of`.
_FRONT_IS_CLEAR, _IS_LAVA, _IS_DOOR, _IS_BALL, _IS_BOX, _IS_RED, _IS_BLUE, _IS_CARRYING = range(8)


@allocation_free(inline=True)
def _begin(task: int, width: int, state: Any, deltas: Any, facts: Any, position: int, body: Any) -> None:
    deltas[0] = 1
    deltas[1] = width
    deltas[2] = -1
    deltas[3] = -width
    state[CARRIED] = EMPTY
    state[REWARDED] = 0


@allocation_free(inline=True)
def _passable(cell: int) -> bool:
    kind = cell & KIND
    return kind == EMPTY or kind == GOAL or kind == LAVA or cell & OPEN != 0


@allocation_free(inline=True)
def _perceive(test: int, cells: Any, position: int, heading: int, state: Any, deltas: Any) -> Any:
    if test == _IS_CARRYING:
        return state[CARRIED] != EMPTY
    cell = cells[position + deltas[heading]]
    kind = cell & KIND
    if test == _FRONT_IS_CLEAR:
        return _passable(cell)
    if test == _IS_LAVA:
        return kind == LAVA
    if test == _IS_DOOR:
        return kind == DOOR
    if test == _IS_BALL:
        return kind == BALL
    if test == _IS_BOX:
        return kind == BOX
    return kind != EMPTY and (cell >> COLOUR_SHIFT) & 7 == (RED if test == _IS_RED else BLUE)


@allocation_free(inline=True)
def _set(cells: Any, keys: Any, marks: Any, position: int, cell: int) -> None:
    marks[0] ^= keys[position, cells[position]] ^ keys[position, cell]
    cells[position] = cell


@allocation_free(inline=True)
def _carry(state: Any, keys: Any, marks: Any, cell: int) -> None:
    """Carry something; the hash has it at offset 0, which is outside of the map."""
    marks[0] ^= keys[0, state[CARRIED]] ^ keys[0, cell]
    state[CARRIED] = cell


@allocation_free(inline=True)
def _act(
    action: int,
    blocked: bool,
    task: int,
    width: int,
    cells: Any,
    special: Any,
    facts: Any,
    food: Any,
    state: Any,
    deltas: Any,
    body: Any,
    keys: Any,
    marks: Any,
    position: int,
    heading: int,
) -> Any:
    reward, terminated, touched = 0.0, False, False
    ahead = position + deltas[heading]
    cell = cells[ahead]
    kind = cell & KIND
    if action == FORWARD:
        if _passable(cell):
            position = ahead
    elif action == LEFT:
        heading = (heading + 3) & 3
    elif action == RIGHT:
        heading = (heading + 1) & 3
    elif action == PICKUP:
        if (kind == BALL or kind == BOX) and state[CARRIED] == EMPTY:
            _carry(state, keys, marks, cell)
            _set(cells, keys, marks, ahead, EMPTY)
            touched = True
            if task == PUT_NEAR:
                reward, terminated = _pick_up(state, kind)
    elif action == DROP:
        if kind == EMPTY and state[CARRIED] != EMPTY:
            _set(cells, keys, marks, ahead, state[CARRIED])
            _carry(state, keys, marks, EMPTY)
            touched = True
            if task == PUT_NEAR:
                reward, terminated = _near(ahead, facts[FIRST], width), True
    elif kind == DOOR:
        _set(cells, keys, marks, ahead, cell ^ OPEN)
        touched = True
    elif kind == BOX:
        _set(cells, keys, marks, ahead, EMPTY)
        touched = True
    if task == LAVA_GAP:
        # A state of another source may begin on the goal or in lava; the first action then ends it.
        kind = cells[position] & KIND
        if kind != EMPTY:
            reward, terminated = (1.0 if kind == GOAL else -1.0), True
    elif task != PUT_NEAR:
        reward, terminated = _doors(state, cells, facts)
    return position, heading, reward, terminated, touched


@allocation_free(inline=True)
def _pick_up(state: Any, kind: int) -> Any:
    if kind != BALL:
        return -1.0, True
    if state[REWARDED] != 0:
        return 0.0, False
    state[REWARDED] = 1
    return 0.5, False


@allocation_free(inline=True)
def _near(cell: int, box: int, width: int) -> float:
    rows, columns = cell // width - box // width, cell % width - box % width
    return 0.5 if abs(rows) <= 1 and abs(columns) <= 1 else 0.0


@allocation_free(inline=True)
def _doors(state: Any, cells: Any, facts: Any) -> Any:
    if cells[facts[SECOND]] & OPEN != 0:
        return (0.5 if state[REWARDED] != 0 else -1.0), True
    if cells[facts[FIRST]] & OPEN != 0 and state[REWARDED] == 0:
        state[REWARDED] = 1
        return 0.5, False
    return 0.0, False


MINIGRID_MACHINE = Machine(_begin, _perceive, _act, MAX_CALLS, CONTENTS)

play = player("minigrid", MINIGRID, MINIGRID_MACHINE).play
"""Play a program in every variation."""
