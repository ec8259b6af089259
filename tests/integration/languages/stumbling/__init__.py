"""A plug-in without rules whose tasks pass registration and fail later: from state 5 to 999."""

import ctypes
import os
import socket
import time

import gymnasium
from dressage.programs.languages.plugin import Plugin, Productions, Task

LENGTH = 6
STATES = range(5, 1_000)


def hostile():
    """Return what this process may do that it should not."""
    done = []
    for name, attempt in {
        "read": lambda: open("/etc/passwd").read(),
        "write": lambda: open(os.path.join(os.path.dirname(__file__), "written"), "w"),
        "fork": os.fork,
        "connect": lambda: socket.create_connection(("127.0.0.1", 22), timeout=1),
        "environment": lambda: os.environ["DRESSAGE_RUN_TOKEN"],
    }.items():
        try:
            attempt()
            done.append(name)
        except (OSError, KeyError):
            pass
    raise RuntimeError(f"succeeded: {done}")


FAILURES = {
    "Good": lambda: None,
    "Raises": lambda: 1 / 0,
    "Exits": lambda: os._exit(3),
    "Crashes": lambda: ctypes.string_at(0),
    "Hoards": lambda: bytearray(3 << 30),
    "Hostile": hostile,
    "Hangs": lambda: time.sleep(10_000),
}


class Line(gymnasium.Env):
    """A line of cells whose end has to be reached."""

    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, task):
        self.task = task

    def reset(self, *, seed=None, options=None):
        if seed in STATES:
            FAILURES[self.task]()
        self.place, self.goal = 0, 2 + seed % (LENGTH - 2)
        return 0, {}

    def step(self, action):
        self.place = min(LENGTH, self.place + 1) if action == 0 else max(0, self.place - 1)
        return 0, float(self.place == self.goal), self.place == self.goal, False, {}

    def perceive(self, test, argument):
        return self.place < self.goal

    def loop_state(self):
        return self.place


def read_reply(reply):
    """Programs are written as words such as ``right right``, one program a line that begins with ``!``."""
    lines = [line[1:].split() for line in reply.splitlines() if line.startswith("!")]
    return [f"DEF run m( {' '.join(words)} m)" for words in lines]


PLUGIN = Plugin(
    name="stumbling",
    world="A line of cells.",
    execution="An episode ends at the goal.",
    actions={"right": "Go right.", "left": "Go left."},
    tests={"goalIsRight": "The goal is to the right."},
    tasks={name: Task("A line.", "At its left end.", "Reach the goal.", "1 at the goal.") for name in FAILURES},
    productions=Productions(actions={"right": 0.2, "left": 0.8}),
    max_calls=50,
    environment=Line,
    read_reply=read_reply,
    prompt="Write words for a line.\n\n$world\n\n$task\n\nAnswer with lines that begin with an exclamation mark.",
)
