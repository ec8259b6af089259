"""The compiled interpreter of programs, for any world.

A world contributes three compiled functions, see `Machine`. They are part of the interpreter's machine code, so that a
family of tasks costs no indirect call. Where a state of the world is compared, see `loop_states`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dressage.episodes.compiling import allocation_free
from dressage.programs.engine.codes import (
    BRANCH,
    END,
    FLAG,
    FLAG_NOT,
    FLAG_SET,
    FLAG_TEST,
    JUMP,
    JUMP_FALSE,
    LOOP,
    OPERATE,
    REPEAT_NEXT,
    REPEAT_SET,
    STRIDE,
)
from dressage.programs.engine.loop_states import MAX_SEEN, SMALL, seen_before

MAX_ITERATIONS = 1 << 22
"""Iterations of loops in an episode: a bound for programs whose loops neither perceive nor act."""

STATE, DELTAS, BODY = 8, 4, 64
"""Integers of a world's memory: what a task remembers; offsets of the cell ahead by heading; a ring buffer."""
SCRATCH = STATE + DELTAS + BODY

# Results of an episode besides its return.
STEPS, CALLS, TERMINATED, CRASHED, POSITION, HEADING, EXHAUSTED = range(7)
OUTCOME = 7

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Machine:
    """The compiled functions of a world. All are `allocation_free` with ``inline=True``.

    :param begin: ``(task, width, state, deltas, facts, position, body)`` sets the memory at the beginning of an episode.
    :param perceive: ``(test, cells, position, heading, state, deltas)`` returns the outcome of a test.
    :param act: ``(action, blocked, task, width, cells, special, facts, food, state, deltas, body, keys, marks, position,
        heading)`` performs an action and returns position, heading, reward, whether the task ends, and whether ``cells``
        changed. ``blocked``: the limit of calls is exceeded.
    :param max_calls: perceptions and actions of an episode; the next one ends it.
    :param contents: values that a cell may have, for the keys of the map's hash.
    """

    begin: Any
    perceive: Any
    act: Any
    max_calls: int
    contents: int


def episode_function(machine: Machine, *, full: bool) -> Any:
    """Return the compiled function that runs one episode.

    :param full: run on after a crash, as the original does, count what happens there, and record actions and rewards.
        Without it, an episode ends as soon as its return is known.
    """
    begin, perceive, act, max_calls = machine.begin, machine.perceive, machine.act, machine.max_calls

    @allocation_free()
    def run(
        code: Any,  # int32[...]
        task: int,
        width: int,
        cells: Any,  # uint8[cells], changed
        special: Any,  # uint8[cells]
        facts: Any,  # int64[FACTS]
        food: Any,  # int64[draws]
        position: int,
        heading: int,
        content_keys: Any,  # uint64[cells, contents]
        agent_keys: Any,  # uint64[cells * 4]
        table: Any,  # uint64[ROWS, 2]
        book: Any,  # uint64[3]
        counters: Any,  # int64[...]: one for each REPEAT
        scratch: Any,  # int64[SCRATCH]
        marks: Any,  # uint64[1]
        outcome: Any,  # int64[OUTCOME]
        actions: Any,  # uint8[...]
        rewards: Any,  # float64[...]
    ) -> Any:
        state, deltas, body = scratch[:STATE], scratch[STATE : STATE + DELTAS], scratch[STATE + DELTAS :]
        begin(task, width, state, deltas, facts, position, body)
        book[0] += np.uint64(1)
        book[1] = np.uint64(SMALL - 1)
        book[2] = np.uint64(0)
        marks[0] = np.uint64(0)
        total, calls, steps, iterations = 0.0, 0, 0, 0
        crashed, terminated, flag, touched, exhausted = False, False, False, False, False
        pc = 0
        while True:
            operation = code[pc]
            if operation >= OPERATE:
                pc += STRIDE
                if full and crashed:
                    continue
                calls += 1
                if calls > max_calls:
                    crashed = True
                position, heading, reward, terminated, changed = act(
                    operation - OPERATE,
                    crashed,
                    task,
                    width,
                    cells,
                    special,
                    facts,
                    food,
                    state,
                    deltas,
                    body,
                    content_keys,
                    marks,
                    position,
                    heading,
                )
                if changed:
                    touched = True
                if full and steps < len(actions):
                    actions[steps] = operation - OPERATE
                    rewards[steps] = reward
                steps += 1
                total += reward
                if terminated or crashed:
                    break
            elif operation == LOOP:
                operand = code[pc + 1]
                test = operand & 255
                if test != FLAG:
                    calls += 1
                    if calls > max_calls:
                        crashed = True
                        if not full:
                            break
                    flag = perceive(test, cells, position, heading, state, deltas)
                iterations += 1
                if flag == (code[pc + 3] != 0):
                    key = (marks[0] ^ agent_keys[position * 4 + heading]) + _GOLDEN * np.uint64((operand >> 8) + 1)
                    key = (key ^ (key >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
                    if crashed or seen_before(table, book, key):
                        crashed = True
                        pc += STRIDE
                        if not full:
                            break
                    elif book[2] > np.uint64(MAX_SEEN) or iterations > MAX_ITERATIONS:
                        exhausted = True
                        break
                    else:
                        pc = code[pc + 2]
                else:
                    pc += STRIDE
            elif operation == BRANCH:
                test = code[pc + 1]
                if test != FLAG:
                    calls += 1
                    if calls > max_calls:
                        crashed = True
                        if not full:
                            break
                    flag = perceive(test, cells, position, heading, state, deltas)
                pc = pc + STRIDE if flag == (code[pc + 3] != 0) else code[pc + 2]
            elif operation == JUMP:
                pc = code[pc + 2]
            elif operation == REPEAT_NEXT:
                slot = code[pc + 1]
                if counters[slot] > 0:
                    counters[slot] -= 1
                    pc = code[pc + 2]
                    iterations += 1
                    if iterations > MAX_ITERATIONS:
                        exhausted = True
                        break
                else:
                    pc += STRIDE
            elif operation == REPEAT_SET:
                counters[code[pc + 1]] = code[pc + 3]
                pc += STRIDE
            elif operation == END:
                break
            elif operation == FLAG_TEST:
                calls += 1
                if calls > max_calls:
                    crashed = True
                    if not full:
                        break
                flag = perceive(code[pc + 1], cells, position, heading, state, deltas)
                pc += STRIDE
            elif operation == FLAG_NOT:
                flag = not flag
                pc += STRIDE
            elif operation == FLAG_SET:
                flag = code[pc + 1] != 0
                pc += STRIDE
            elif flag == (operation != JUMP_FALSE):
                pc = code[pc + 2]
            else:
                pc += STRIDE
        if full:
            outcome[STEPS] = steps
            outcome[CALLS] = calls
            outcome[TERMINATED] = terminated
            outcome[CRASHED] = crashed or exhausted
            outcome[POSITION] = position
            outcome[HEADING] = heading
            outcome[EXHAUSTED] = exhausted
        return total, touched

    return run
