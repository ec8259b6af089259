"""Plays one program in full: outcomes, actions and rewards of each variation."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dressage.episodes.compiling import kernel
from dressage.errors import InvalidArgument
from dressage.programs.engine import bytecode, interpreter, loop_states
from dressage.programs.engine.interpreter import Machine
from dressage.programs.engine.trees import flatten
from dressage.programs.engine.worlds import Worlds
from dressage.programs.syntax import Language, Program


@dataclass(frozen=True)
class Episode:
    """What happened in one variation."""

    reward: float
    """Return: the sum of the rewards."""
    steps: int
    calls: int
    """Perceptions and actions, those after a crash included."""
    terminated: bool
    crashed: bool
    exhausted: bool
    """The episode ended because its loops ran too often without perceiving or acting, or recorded too many states."""
    agent: tuple[int, int, int]
    """Row, column, heading at the end."""
    cells: NDArray[np.uint8]
    """[H, W] at the end, as the world encodes them."""
    actions: NDArray[np.uint8]
    """[steps], numbers of the language's actions."""
    rewards: NDArray[np.float64]
    """[steps]."""


@dataclass(frozen=True)
class Player:
    """Plays programs of a language in the worlds of a machine; `player` makes one."""

    language: Language
    machine: Machine
    kernel: Any

    def play(self, program: Program, worlds: Worlds) -> list[Episode]:
        """Play a program in every variation.

        :raises InvalidArgument: for a program that is not of the language or too deeply nested.
        """
        nodes = flatten(program, self.language)
        code, stack = bytecode.workspace(len(nodes))
        if _compile(nodes, code, stack) < 0:
            raise InvalidArgument(
                field="program", problem="nested too deeply", expected="fewer nested blocks and conditions"
            )
        return [self._episode(code, worlds, i, len(nodes)) for i in range(worlds.count)]

    def _episode(self, code: NDArray[np.int32], worlds: Worlds, i: int, size: int) -> Episode:
        cells = worlds.cells[i].copy()
        outcome = np.zeros(interpreter.OUTCOME, np.int64)
        capacity = self.machine.max_calls + 1  # an episode has at most one action more than it may have calls
        actions, rewards = np.zeros(capacity, np.uint8), np.zeros(capacity)
        total = self.kernel(
            code,
            worlds.task,
            worlds.width,
            cells,
            worlds.special[i],
            worlds.facts[i],
            worlds.food[i],
            worlds.agents[i],
            *loop_states.hash_keys(cells.size, self.machine.contents),
            np.zeros((loop_states.ROWS, 2), np.uint64),
            np.zeros(size, np.int64),
            np.zeros(interpreter.SCRATCH, np.int64),
            outcome,
            actions,
            rewards,
        )
        row, column = divmod(int(outcome[interpreter.POSITION]), worlds.width)
        steps = int(outcome[interpreter.STEPS])
        return Episode(
            reward=float(total),
            steps=steps,
            calls=int(outcome[interpreter.CALLS]),
            terminated=bool(outcome[interpreter.TERMINATED]),
            crashed=bool(outcome[interpreter.CRASHED]),
            exhausted=bool(outcome[interpreter.EXHAUSTED]),
            agent=(row - 1, column - 1, int(outcome[interpreter.HEADING])),
            cells=cells.reshape(worlds.height, worlds.width)[1:-1, 1:-1],
            actions=actions[:steps],
            rewards=rewards[:steps],
        )


@kernel("programs-compile")
def _compile(nodes: Any, code: Any, stack: Any) -> Any:
    return bytecode.compile_nodes(nodes, code, stack)


def player(family: str, language: Language, machine: Machine) -> Player:
    """Return a player; its kernel compiles when it first plays."""
    return Player(language, machine, _playing_kernel(family, machine))


@functools.cache
def _playing_kernel(family: str, machine: Machine) -> Any:
    run_in_full = interpreter.episode_function(machine, full=True)

    @kernel(f"programs-{family}-play")
    def play_one(
        code: Any,
        task: int,
        width: int,
        cells: Any,
        special: Any,
        facts: Any,
        food: Any,
        agent: Any,
        content_keys: Any,
        agent_keys: Any,
        table: Any,
        counters: Any,
        scratch: Any,
        outcome: Any,
        actions: Any,
        rewards: Any,
    ) -> Any:
        book = np.zeros(3, np.uint64)
        marks = np.zeros(1, np.uint64)
        total, _ = run_in_full(
            code,
            task,
            width,
            cells,
            special,
            facts,
            food,
            agent[0],
            agent[1],
            content_keys,
            agent_keys,
            table,
            book,
            counters,
            scratch,
            marks,
            outcome,
            actions,
            rewards,
        )
        return total

    return play_one
