"""LLM-GS's evaluation and hill climbing restated in plain Python, with or without its costs.

Written from a description of its behaviour, for StairClimber (sparse) and DoorKey. With its costs: a deep copy of the
environment and a new generator at each reset, a SHA-256 of a string as the loop detector's key and a search in a list of
them, a generator for each node, and all neighbours drawn before the first is scored. Lean: none of these.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
from dressage.programs.karel.layouts import Layout, layout
from dressage.programs.karel.tasks import class_of
from dressage.programs.syntax import Action, IfElse, Not, Program, Repeat, Test, While

ROWS, COLUMNS = (-1, 0, 1, 0), (0, 1, 0, -1)
MAX_CALLS = 10_000


class World:
    """One variation, rewards included."""

    def __init__(self, task: str, state: Layout, seed: int) -> None:
        self.task, self.seed, self.state = task, seed, state
        self.walls, self.markers = state.walls.copy(), state.markers.astype(np.int64)
        self.row, self.column = state.agent
        self.heading, self.calls, self.crashed, self.terminated, self.unlocked = state.heading, 0, False, False, False
        self.total = int(state.markers.sum())
        self.special = state.special
        self.random = np.random.RandomState(seed)
        self.features = {
            "frontIsClear": self.front_is_clear,
            "leftIsClear": self.left_is_clear,
            "rightIsClear": self.right_is_clear,
            "markersPresent": self.markers_present,
            "noMarkersPresent": self.no_markers_present,
        }

    def reset(self) -> World:
        """Return a fresh episode as the reference makes it: a deep copy, bound methods included, and a new generator."""
        memo = {id(shared): shared for shared in (self.state, self.special, self.random)}
        world = copy.deepcopy(self, memo)
        world.random = np.random.RandomState(self.seed)
        return world

    def clear(self, turn: int) -> bool:
        heading = (self.heading + turn) % 4
        return not self.walls[self.row + ROWS[heading]][self.column + COLUMNS[heading]]

    def front_is_clear(self) -> bool:
        return self.clear(0)

    def left_is_clear(self) -> bool:
        return self.clear(3)

    def right_is_clear(self) -> bool:
        return self.clear(1)

    def markers_present(self) -> bool:
        return self.markers[self.row][self.column] > 0

    def no_markers_present(self) -> bool:
        return self.markers[self.row][self.column] == 0

    def count_call(self) -> None:
        self.calls += 1
        if self.calls > MAX_CALLS:
            self.crashed = True

    def perceive(self, name: str) -> bool:
        self.count_call()
        return self.features[name]()

    def act(self, name: str) -> float:
        """Perform an action and return its reward."""
        self.count_call()
        if name == "move":
            if self.clear(0) and not self.crashed:
                self.row, self.column = self.row + ROWS[self.heading], self.column + COLUMNS[self.heading]
            else:
                self.heading = (self.heading + 2) % 4
        elif name == "turnLeft":
            self.heading = (self.heading + 3) % 4
        elif name == "turnRight":
            self.heading = (self.heading + 1) % 4
        else:
            change = 1 if name == "putMarker" else -1
            if 0 <= self.markers[self.row][self.column] + change <= 10:
                self.markers[self.row][self.column] += change
                self.total += change
        reward, self.terminated = self.stair_climber() if self.task == "StairClimber" else self.door_key()
        return reward

    def stair_climber(self) -> tuple[float, bool]:
        if (self.row, self.column) == self.state.goal:
            return 1.0, True
        return (0.0, False) if (self.row, self.column) in self.special else (-1.0, True)

    def door_key(self) -> tuple[float, bool]:
        (key_row, key_column), (goal_row, goal_column) = self.state.key, self.state.goal
        if not self.unlocked:
            if self.total > 2:
                return -1.0, True
            if self.markers[key_row][key_column] == 0:
                self.walls[2][4], self.walls[3][4] = False, False
                self.unlocked = True
                return 0.5, False
            return 0.0, False
        if self.total > 1:
            return (0.5 if self.markers[goal_row][goal_column] == 2 else -1.0), True
        return (-1.0, True) if self.total == 0 else (0.0, False)

    def text_key(self) -> str:
        """Return the loop detector's key with the reference's cost (and without its collisions)."""
        digits = "".join(str(count) for row in self.markers for count in row)
        return hashlib.sha256(f"{self.row},{self.column},{self.heading},{digits}".encode()).hexdigest()

    def key(self) -> tuple[object, ...]:
        return self.row, self.column, self.heading, tuple(map(tuple, self.markers))


def _holds(test: Any, world: World) -> bool:
    if isinstance(test, Not):
        return not _holds(test.condition, world)
    assert isinstance(test, Test)
    return world.perceive(test.name)


def _walk(statements: Any, world: World, seen: dict[int, list[str]]) -> Iterator[float]:
    for statement in statements:
        yield from _walk_one(statement, world, seen)


def _walk_one(statement: Any, world: World, seen: dict[int, list[str]]) -> Iterator[float]:
    if isinstance(statement, Action):
        if not world.crashed:
            yield world.act(statement.name)
    elif isinstance(statement, Repeat):
        for _ in range(statement.count):
            yield from _walk(statement.body, world, seen)
    elif isinstance(statement, While):
        states = seen.setdefault(id(statement), [])
        while _holds(statement.condition, world):
            key = world.text_key()
            if world.crashed or key in states:
                world.crashed = True
                return
            states.append(key)
            yield from _walk(statement.body, world, seen)
    elif isinstance(statement, IfElse):
        yield from _walk(statement.body if _holds(statement.condition, world) else statement.orelse, world, seen)
    elif _holds(statement.condition, world):
        yield from _walk(statement.body, world, seen)


def costly_return(program: Program, world: World) -> float:
    """Return an episode's return with the reference's costs."""
    world, total = world.reset(), 0.0
    for reward in _walk(program.body, world, {}):
        total += reward
        if world.terminated or world.crashed:
            break
    return total


class _Ended(Exception):
    """The return of the episode is known."""


def lean_return(program: Program, task: str, state: Layout) -> float:
    """Return an episode's return without the reference's costs."""
    world, seen, total = _lean_world(task, state), set[tuple[object, ...]](), 0.0

    def run(statements: Any) -> None:
        nonlocal total
        for statement in statements:
            kind = type(statement)
            if kind is Action:
                total += world.act(statement.name)
                if world.terminated or world.crashed:
                    raise _Ended
            elif kind is Repeat:
                for _ in range(statement.count):
                    run(statement.body)
            elif kind is While:
                while _holds(statement.condition, world):
                    key = (id(statement), *world.key())
                    if world.crashed or key in seen:
                        raise _Ended
                    seen.add(key)
                    run(statement.body)
            elif kind is IfElse:
                run(statement.body if _holds(statement.condition, world) else statement.orelse)
            elif _holds(statement.condition, world):
                run(statement.body)

    with contextlib.suppress(_Ended):
        run(program.body)
    return total


class _LeanWorld(World):
    def __init__(self, task: str, state: Layout) -> None:
        self.task, self.state, self.special = task, state, state.special
        self.walls, self.markers = state.walls.tolist(), state.markers.tolist()
        self.row, self.column = state.agent
        self.heading, self.calls, self.crashed, self.terminated, self.unlocked = state.heading, 0, False, False, False
        self.total = sum(map(sum, self.markers))

    def perceive(self, name: str) -> bool:
        self.count_call()
        if name == "frontIsClear":
            return self.clear(0)
        if name == "leftIsClear" or name == "rightIsClear":
            return self.clear(3 if name == "leftIsClear" else 1)
        return (self.markers[self.row][self.column] > 0) == (name == "markersPresent")


def _lean_world(task: str, state: Layout) -> World:
    return _LeanWorld(task, state)


class Peer:
    """Scores programs on 32 variations and climbs, in plain Python."""

    def __init__(self, task: str) -> None:
        self.task = task
        self.states = [layout(class_of(task), seed) for seed in range(32)]
        self.worlds = [World(task, state, seed) for seed, state in enumerate(self.states)]

    def costly_score(self, program: Program) -> float:
        return sum(costly_return(program, world) for world in self.worlds) / 32

    def lean_score(self, program: Program) -> float:
        return sum(lean_return(program, self.task, state) for state in self.states) / 32


# -- drawing neighbours, as the reference does: a deep copy, one node replaced, the whole checked


def draw_statement(rng: random.Random, depth: int, count: int, sequence: bool = True) -> list[Any]:
    """Draw a block's statements from one place on: a sequence is a list."""
    names = ["sequence", "while", "if", "ifelse", "repeat", "action"]
    weights = [50 if sequence and count < 6 else 0, *([15, 8, 4, 3] if depth < 4 else [0] * 4), 20]
    kind = rng.choices(names, weights)[0]
    if kind == "sequence":
        first = draw_statement(rng, depth, count, sequence=False)
        return ["sequence", first, draw_statement(rng, depth, count + 1)]
    if kind == "action":
        return [rng.choices(["move", "turnLeft", "turnRight", "pickMarker", "putMarker"], [50, 15, 15, 10, 10])[0]]
    if kind == "repeat":
        return [kind, [rng.randrange(20)], draw_statement(rng, depth + 1, 1)]
    condition = draw_test(rng) if kind == "ifelse" else draw_condition(rng)
    bodies = [draw_statement(rng, depth + 1, 1) for _ in range(2 if kind == "ifelse" else 1)]
    return [kind, condition, *bodies]


def draw_test(rng: random.Random) -> list[Any]:
    names = ["frontIsClear", "leftIsClear", "rightIsClear", "markersPresent", "noMarkersPresent"]
    return [rng.choices(names, [50, 15, 15, 10, 10])[0]]


def draw_condition(rng: random.Random) -> list[Any]:
    return ["not", draw_test(rng)] if rng.random() < 0.1 else draw_test(rng)
