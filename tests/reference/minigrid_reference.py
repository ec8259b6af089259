"""The three Minigrid tasks of the slow reference, written from the behaviour of minigrid 2.5.0.

Initial states come from the conformance file. Columns come first: a cell is (x, y), as in Minigrid.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from dressage.programs.syntax import Test

OBJECTS = {2: "wall", 4: "door", 6: "ball", 7: "box", 8: "goal", 9: "lava"}
COLOURS = ("red", "green", "blue", "purple", "yellow", "grey")
STEPS = ((1, 0), (0, 1), (-1, 0), (0, -1))
"""Steps to the right, down, left, up."""

Cell = tuple[int, int]


@dataclass(frozen=True)
class Thing:
    """An object; only a door can be open."""

    kind: str
    colour: str
    is_open: bool = False

    @property
    def passable(self) -> bool:
        return self.kind in ("goal", "lava") or self.is_open


@dataclass
class Room:
    """A Minigrid world; ``things`` has the cells that are not empty."""

    max_calls: ClassVar[int] = 999  # an episode crashes at its 1,000th call

    agent: Cell
    direction: int
    things: dict[Cell, Thing]
    carried: Thing | None = None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Room:
        """Return the world of an ``init`` row."""
        code = base64.b64decode(row["grid"])
        things = {}
        for index in range(row["w"] * row["h"]):
            kind, colour, state = code[3 * index : 3 * index + 3]
            if kind in OBJECTS:
                things[divmod(index, row["h"])] = Thing(OBJECTS[kind], COLOURS[colour], kind == 4 and state == 0)
        return cls((row["agent"][0], row["agent"][1]), row["dir"], things)

    def ahead(self) -> Cell:
        dx, dy = STEPS[self.direction]
        return self.agent[0] + dx, self.agent[1] + dy

    def perceive(self, test: Test) -> bool:
        thing = self.things.get(self.ahead())
        match test.name:
            case "front_is_clear":
                return thing is None or thing.passable
            case "front_object_type":
                return thing is not None and thing.kind == test.argument
            case "front_object_color":
                return thing is not None and thing.colour == test.argument
            case "is_carrying_object":
                return self.carried is not None
        raise ValueError(test.name)

    def act(self, action: str, *, blocked: bool = False) -> None:
        cell = self.ahead()
        thing = self.things.get(cell)
        match action:
            case "left":
                self.direction = (self.direction - 1) % 4
            case "right":
                self.direction = (self.direction + 1) % 4
            case "forward":
                if thing is None or thing.passable:
                    self.agent = cell
            case "pickup":
                if thing is not None and thing.kind in ("ball", "box") and self.carried is None:
                    self.carried = self.things.pop(cell)
            case "drop":
                if thing is None and self.carried is not None:
                    self.things[cell], self.carried = self.carried, None
            case "toggle":
                if thing is not None and thing.kind == "door":
                    self.things[cell] = Thing("door", thing.colour, not thing.is_open)
                elif thing is not None and thing.kind == "box":
                    del self.things[cell]

    def state(self) -> tuple[object, ...]:
        return self.agent, self.direction, self.carried, tuple(sorted(self.things.items(), key=lambda item: item[0]))


Task = Callable[[Room], tuple[bool, float]]


def task_of(row: Mapping[str, Any], room: Room) -> Task:
    """Return the task of an ``init`` row for its world."""
    tasks = {"LavaGap": lambda room: _lava_gap, "PutNear": _put_near, "RedBlueDoor": lambda room: _red_blue_door()}
    return tasks[row["task"]](room)


def _lava_gap(room: Room) -> tuple[bool, float]:
    thing = room.things.get(room.agent)
    if thing is None:
        return False, 0.0
    return True, 1.0 if thing.kind == "goal" else -1.0


def _put_near(room: Room) -> Task:
    target = next(cell for cell, thing in room.things.items() if thing.kind == "box")
    carried_before: Thing | None = None
    rewarded = False

    def reward(room: Room) -> tuple[bool, float]:
        nonlocal carried_before, rewarded
        before, carried_before = carried_before, room.carried
        if room.carried is not None and room.carried.kind != "ball":
            return True, -1.0
        if before is not None and room.carried is None:
            x, y = room.ahead()
            return True, 0.5 if abs(x - target[0]) <= 1 and abs(y - target[1]) <= 1 else 0.0
        if room.carried is not None and not rewarded:
            rewarded = True
            return False, 0.5
        return False, 0.0

    return reward


def _red_blue_door() -> Task:
    rewarded = False

    def reward(room: Room) -> tuple[bool, float]:
        nonlocal rewarded
        is_open = {thing.colour: thing.is_open for thing in room.things.values() if thing.kind == "door"}
        if is_open["blue"]:
            return True, 0.5 if rewarded else -1.0
        if is_open["red"] and not rewarded:
            rewarded = True
            return False, 0.5
        return False, 0.0

    return reward
