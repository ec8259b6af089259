"""The Karel world of the slow reference. Initial states come from the conformance file, one per task and seed."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from dressage.programs.syntax import Test

DATA = Path(__file__).resolve().parent.parent / "data" / "programs"
MAX_MARKERS = 10
LETTERS = {"move": "m", "turnLeft": "l", "turnRight": "r", "pickMarker": "p", "putMarker": "u"}
"""How the conformance file abbreviates actions."""
STEPS = ((-1, 0), (0, 1), (1, 0), (0, -1))
"""Row and column of a step north, east, south, west."""

Cell = tuple[int, int]


def rows(name: str) -> list[dict[str, Any]]:
    """Return the rows of a stored conformance file, ``karel`` or ``minigrid``."""
    with gzip.open(DATA / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@dataclass
class World:
    """A Karel world; ``markers`` has an entry for every cell."""

    max_calls: ClassVar[int] = 10_000

    height: int
    width: int
    hero: Cell
    heading: int
    walls: set[Cell]
    markers: dict[Cell, int]

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> World:
        """Return the world of an ``init`` row."""
        height, width = row["h"], row["w"]
        cells = [(r, c) for r in range(height) for c in range(width)]
        bits = "".join(f"{byte:08b}" for byte in base64.b64decode(row["walls"]))
        walls = {cell for cell, bit in zip(cells, bits, strict=False) if bit == "1"}
        markers = {cell: int(digit, 16) for cell, digit in zip(cells, row["markers"], strict=True)}
        return cls(height, width, (row["hero"][0], row["hero"][1]), row["hero"][2], walls, markers)

    def clear(self, turn: int) -> bool:
        """Whether the cell in the direction ``heading + turn`` is on the grid and no wall."""
        cell = self.ahead(turn)
        return 0 <= cell[0] < self.height and 0 <= cell[1] < self.width and cell not in self.walls

    def ahead(self, turn: int = 0) -> Cell:
        dr, dc = STEPS[(self.heading + turn) % 4]
        return self.hero[0] + dr, self.hero[1] + dc

    def perceive(self, test: Test) -> bool:
        match test.name:
            case "frontIsClear":
                return self.clear(0)
            case "leftIsClear":
                return self.clear(-1)
            case "rightIsClear":
                return self.clear(1)
            case "markersPresent":
                return self.markers[self.hero] > 0
            case "noMarkersPresent":
                return self.markers[self.hero] == 0
        raise ValueError(test)

    def act(self, action: str, *, blocked: bool = False) -> None:
        """Perform an action; a blocked move, or one into a wall, is a turn by 180°."""
        if action == "move":
            if blocked or not self.clear(0):
                self.heading = (self.heading + 2) % 4
            else:
                self.hero = self.ahead()
        elif action == "turnLeft":
            self.heading = (self.heading - 1) % 4
        elif action == "turnRight":
            self.heading = (self.heading + 1) % 4
        elif action == "pickMarker":
            self.pick(self.hero)
        else:
            self.put(self.hero)

    def pick(self, cell: Cell) -> None:
        self.markers[cell] = max(0, self.markers[cell] - 1)

    def put(self, cell: Cell) -> None:
        self.markers[cell] = min(MAX_MARKERS, self.markers[cell] + 1)

    def state(self) -> tuple[object, ...]:
        """What the loop detector compares: agent and markers, without walls and task."""
        return self.hero, self.heading, tuple(self.markers.values())

    def total(self) -> int:
        return sum(self.markers.values())


Reward = tuple[bool, float]
Task = Callable[[World], Reward]
"""Called after each action: whether the episode terminates, and the reward."""
PENALTY: Reward = (True, -1.0)


def grid_hash(world: World) -> str:
    return hashlib.sha256(bytes(world.markers.values())).hexdigest()[:16]
