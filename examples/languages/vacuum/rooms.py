"""Rooms by number, and the environment as Gymnasium has it: the slow path."""

import gymnasium
import numpy as np
from dressage.programs.languages.plugin import View

FLOOR, DIRT, WALL = range(3)
TASKS = ("Corridor", "CleanRoom")
HEADINGS = ("north", "east", "south", "west")
STEPS = ((-1, 0), (0, 1), (1, 0), (0, -1))
FORWARD, TURN_LEFT, TURN_RIGHT, SUCK = range(4)


def room(task, number):
    """Return the cells [H, W], the robot's cell and its heading. The same number is always the same room."""
    rng = np.random.default_rng([TASKS.index(task), number])
    height, width = (1, 10) if task == "Corridor" else (6, 6)
    cells = np.zeros(height * width, np.uint8)
    places = rng.permutation(height * width)
    if task == "Corridor":
        cells[places[: rng.integers(3, 7)]], robot = DIRT, 0
    else:
        cells[places[: rng.integers(6, 13)]] = DIRT
        cells[places[-3:]] = WALL
        robot = int(places[20])
    return cells.reshape(height, width), divmod(robot, width), int(rng.integers(4))


class VacuumRoom(gymnasium.Env):
    """The room of one task."""

    action_space = gymnasium.spaces.Discrete(4)
    observation_space = gymnasium.spaces.Discrete(1)  # a program perceives tests instead

    def __init__(self, task):
        self.task = task

    def reset(self, *, seed=None, options=None):
        self.cells, self.robot, self.heading = room(self.task, seed or 0)
        self.dirt = self.left = int((self.cells == DIRT).sum())
        return 0, {}

    def step(self, action):
        reward = 0.0
        if action == FORWARD:
            ahead = self._ahead()
            if self._cell(ahead) != WALL:
                self.robot = ahead
        elif action == TURN_LEFT:
            self.heading = (self.heading + 3) % 4
        elif action == TURN_RIGHT:
            self.heading = (self.heading + 1) % 4
        elif self.cells[self.robot] == DIRT:
            self.cells[self.robot] = FLOOR
            self.left -= 1
            reward = 1 / self.dirt
        return 0, reward, self.left == 0, False, {}

    def perceive(self, test, argument):
        if test == "dirtHere":
            return bool(self.cells[self.robot] == DIRT)
        return self._cell(self._ahead()) == (WALL if test == "wallAhead" else DIRT)

    def loop_state(self):
        return self.robot, self.heading, self.cells.tobytes()

    def view(self):
        rows = ["".join(".o#"[cell] for cell in row) for row in self.cells]
        row, column = self.robot
        rows[row] = rows[row][:column] + "@" + rows[row][column + 1 :]
        return View(tuple(rows), row, column, HEADINGS[self.heading])

    def _ahead(self):
        step = STEPS[self.heading]
        return self.robot[0] + step[0], self.robot[1] + step[1]

    def _cell(self, place):
        inside = all(0 <= at < size for at, size in zip(place, self.cells.shape, strict=True))
        return int(self.cells[place]) if inside else WALL
