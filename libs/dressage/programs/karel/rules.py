"""Rewards of the Karel tasks as compiled functions.

A task's reward changes only when the agent changes cell or when a number of markers changes; Snake's is computed after
every action. ``state`` (int64[STATE]) holds what a task remembers within an episode, ``facts`` (int64[FACTS]) what it
depends on in the initial state.
"""

from __future__ import annotations

from typing import Any

from dressage.episodes.compiling import allocation_free, device
from dressage.programs.engine.interpreter import BODY, STATE
from dressage.programs.karel.tasks import (
    CLEAN_HOUSE,
    CLEAN_HOUSE_SPARSE,
    DOOR_KEY,
    FOUR_CORNERS,
    FOUR_CORNERS_SPARSE,
    HARVESTER,
    HARVESTER_SPARSE,
    MAZE,
    MAZE_SPARSE,
    ONE_STROKE,
    PATH_FOLLOW,
    SEEDER,
    SNAKE,
    STAIR_CLIMBER,
    STAIR_CLIMBER_SPARSE,
    TOP_OFF,
    TOP_OFF_SPARSE,
    WALL_AVOIDER,
)

WALL, MARKERS = 16, 15
"""Bits of a cell: whether it is a wall, and its number of markers."""

TOTAL, CORRECT, DISTANCE, UNLOCKED, SIZE, LENGTH, TAIL, FOODS = range(STATE)
"""Markers in the world; cells as they should be, or visited; distance to the goal; whether the door is open; size and
length of the snake's body, start of its ring buffer, cells drawn for food."""

FACTS = 8
GOAL, KEY, FIRST_DOOR, SECOND_DOOR, INITIAL_DISTANCE, TARGETS, INITIAL_MARKERS, GOAL_CELL = range(FACTS)
"""Cells as offsets; TARGETS: cells that need a change; GOAL_CELL: row << 16 | column of the goal."""

_SNAKE_SIZE = 22
"""Less than BODY, the entries of the ring buffer of the snake's body, which is a power of two."""
_STROKES = 35


@allocation_free(inline=True)
def begin(task: int, state: Any, facts: Any, position: int, body: Any) -> None:
    """Set what a task remembers to its value at the beginning of an episode."""
    state[TOTAL] = facts[INITIAL_MARKERS]
    if task == STAIR_CLIMBER or task == MAZE:
        state[DISTANCE] = facts[INITIAL_DISTANCE]
    elif task == SNAKE:
        state[SIZE] = 2
        state[LENGTH] = 1
        state[TAIL] = 0
        state[FOODS] = 0
        state[DISTANCE] = facts[GOAL]
        body[0] = position
    else:
        state[CORRECT] = 0
        state[UNLOCKED] = 0


@allocation_free(inline=True)
def after_move(
    task: int, state: Any, facts: Any, cells: Any, special: Any, before: int, position: int, width: int
) -> Any:
    """Return the reward for a change of cell, and whether it ends the episode."""
    if task == STAIR_CLIMBER_SPARSE:
        if position == facts[GOAL]:
            return 1.0, True
        if special[position] == 0:
            return -1.0, True
    elif task == MAZE_SPARSE:
        if position == facts[GOAL]:
            return 1.0, True
    elif task == PATH_FOLLOW:
        if special[position] == 0:
            return -1.0, True
    elif task == ONE_STROKE:
        cells[before] |= WALL
        state[CORRECT] += 1
        return 1.0 / _STROKES, state[CORRECT] == _STROKES
    elif task == STAIR_CLIMBER or task == MAZE:
        goal = facts[GOAL_CELL]
        distance = abs(position // width - (goal >> 16)) + abs(position % width - (goal & 0xFFFF))
        reward = (state[DISTANCE] - distance) / facts[INITIAL_DISTANCE]
        state[DISTANCE] = distance
        if position == facts[GOAL]:
            return reward, True
        if task == STAIR_CLIMBER and special[position] == 0:
            return -1.0, True
        return reward, False
    return 0.0, False


@allocation_free(inline=True)
def after_marker(task: int, state: Any, facts: Any, cells: Any, special: Any, position: int, change: int) -> Any:
    """Return the reward for a marker put (``change`` 1) or picked (-1) at ``position``, and whether it ends the episode."""
    state[TOTAL] += change
    count = cells[position] & MARKERS
    if task == HARVESTER or task == CLEAN_HOUSE or task == PATH_FOLLOW:
        if change > 0:
            return -1.0, True
        return 1.0 / facts[INITIAL_MARKERS], state[TOTAL] == 0
    if task == HARVESTER_SPARSE or task == CLEAN_HOUSE_SPARSE:
        if state[TOTAL] > facts[INITIAL_MARKERS]:
            return -1.0, True
        return (1.0, True) if state[TOTAL] == 0 else (0.0, False)
    if task == FOUR_CORNERS or task == FOUR_CORNERS_SPARSE:
        gain = 0
        if special[position] != 0:
            gain = 1 if change > 0 and count == 1 else (-1 if count == 0 else 0)
        state[CORRECT] += gain
        return _in_order(task == FOUR_CORNERS_SPARSE, state, 4, gain, state[TOTAL] > state[CORRECT])
    if task == TOP_OFF or task == TOP_OFF_SPARSE:
        gain, failed = 0, False
        if special[position] != 0:
            gain = 1 if count == 2 else (-1 if count - change == 2 else 0)
            failed = count == 0
        state[CORRECT] += gain
        failed = failed or state[TOTAL] > state[CORRECT] + facts[TARGETS]
        return _in_order(task == TOP_OFF_SPARSE, state, facts[TARGETS], gain, failed)
    if task == DOOR_KEY:
        return _door_key(state, facts, cells)
    if task == SEEDER:
        if change < 0 or count > 1:
            return -1.0, True
        return 1.0 / facts[TARGETS], state[TOTAL] == facts[TARGETS]
    if task == WALL_AVOIDER:
        if change < 0 or count > 1 or special[position] != 0:
            return -1.0, True
        return 1.0 / facts[TARGETS], state[TOTAL] == facts[TARGETS]
    return 0.0, False


@allocation_free(inline=True)
def _in_order(sparse: bool, state: Any, targets: int, gain: int, failed: bool) -> Any:
    """Reward of the tasks that change a number of cells."""
    if failed:
        return -1.0, True
    solved = state[CORRECT] == targets
    if sparse:
        return (1.0 if solved else 0.0), solved
    return gain / targets, solved


@allocation_free(inline=True)
def _door_key(state: Any, facts: Any, cells: Any) -> Any:
    if state[UNLOCKED] == 0:
        if state[TOTAL] > 2:
            return -1.0, True
        if cells[facts[KEY]] & MARKERS == 0:
            cells[facts[FIRST_DOOR]] &= MARKERS
            cells[facts[SECOND_DOOR]] &= MARKERS
            state[UNLOCKED] = 1
            return 0.5, False
        return 0.0, False
    if state[TOTAL] > 1:
        return (0.5 if cells[facts[GOAL]] & MARKERS == 2 else -1.0), True
    if state[TOTAL] == 0:
        return -1.0, True
    return 0.0, False


@device
def snake(state: Any, cells: Any, keys: Any, marks: Any, body: Any, food: Any, before: int, position: int) -> Any:
    """Advance the snake after an action.

    :param marks: uint64[1], hash of the markers, which the snake's body changes.
    :return: the reward, and whether the episode ends.
    """
    reward = 0.0
    if position == state[DISTANCE]:
        state[SIZE] += 1
        change_marker(cells, keys, marks, position, -1)
        reward = 1.0 / 20
        if state[SIZE] < _SNAKE_SIZE:
            state[DISTANCE] = _next_food(state, body, food, position)
            change_marker(cells, keys, marks, state[DISTANCE], 1)
    for i in range(state[LENGTH] - 1):
        if body[(state[TAIL] + i) & (BODY - 1)] == position:
            return -1.0, True
    if before != position:
        change_marker(cells, keys, marks, before, 1)
        body[(state[TAIL] + state[LENGTH]) & (BODY - 1)] = position
        state[LENGTH] += 1
        if state[LENGTH] > state[SIZE]:
            change_marker(cells, keys, marks, body[state[TAIL] & (BODY - 1)], -1)
            state[TAIL] += 1
            state[LENGTH] -= 1
    return reward, state[SIZE] == _SNAKE_SIZE


@device
def _next_food(state: Any, body: Any, food: Any, position: int) -> Any:
    """Draw cells until one is neither the agent's nor part of the snake's body."""
    while True:
        cell = food[state[FOODS] % len(food)]
        state[FOODS] += 1
        free = cell != position
        for i in range(state[LENGTH]):
            if body[(state[TAIL] + i) & (BODY - 1)] == cell:
                free = False
        if free:
            return cell


@allocation_free(inline=True)
def change_marker(cells: Any, keys: Any, marks: Any, position: int, change: int) -> bool:
    """Put (1) or pick (-1) a marker, as far as the cell has room or markers; return whether it changed."""
    count = cells[position] & MARKERS
    after = count + change
    if after < 0 or after > 10:
        return False
    cells[position] += change
    marks[0] ^= keys[position, count] ^ keys[position, after]
    return True
