"""A slow interpreter of programs in plain Python, over the program's tree.

It states the semantics of profile ``llmgs-v1`` as directly as possible and shares only the tree with the engine, so that the
engine's property tests have something to compare with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from dressage.programs.syntax import (
    Action,
    And,
    Condition,
    Constant,
    If,
    IfElse,
    Not,
    Or,
    Program,
    Repeat,
    Statement,
    Test,
    While,
)  # fmt: skip


class World(Protocol):
    """What a program acts on; ``max_calls`` is the number of perceptions and actions above which an episode crashes."""

    @property
    def max_calls(self) -> int: ...
    def perceive(self, test: Test) -> bool: ...
    def act(self, action: str, *, blocked: bool) -> None: ...
    def state(self) -> tuple[object, ...]: ...


WorldType = TypeVar("WorldType", bound=World)


@dataclass
class Episode:
    """The record of a run; ``rewards`` are (step, reward) of non-zero rewards."""

    actions: list[str] = field(default_factory=list)
    rewards: list[tuple[int, float]] = field(default_factory=list)
    total: float = 0.0
    calls: int = 0
    terminated: bool = False
    crashed: bool = False


def run(program: Program, world: WorldType, task: Callable[[WorldType], tuple[bool, float]]) -> Episode:
    """Run a program in a world, which it changes.

    :param task: called after each action: whether the episode terminates, and the reward.
    """
    interpreter = _Interpreter(world)
    episode = interpreter.episode
    for name in interpreter.block(program.body):
        episode.actions.append(name)
        episode.terminated, reward = task(world)
        episode.total += reward
        if reward:
            episode.rewards.append((len(episode.actions), reward))
        if episode.terminated or episode.crashed:
            break
    return episode


class _Interpreter:
    """Yields the name of each action after it was performed."""

    def __init__(self, world: World) -> None:
        self.episode = Episode()
        self._world = world
        self._seen: dict[int, set[tuple[object, ...]]] = {}
        """The states in which the condition of a WHILE held, over the whole episode."""

    def block(self, statements: tuple[Statement, ...]) -> Iterator[str]:
        for statement in statements:
            yield from self._statement(statement)

    def _statement(self, statement: Statement) -> Iterator[str]:
        match statement:
            case Action(name=name):
                if not self.episode.crashed:
                    self._count()
                    self._world.act(name, blocked=self.episode.crashed)
                    yield name
            case Repeat(count=times, body=body):
                for _ in range(times):
                    yield from self.block(body)
            case If(condition=condition, body=body):
                if self._holds(condition):
                    yield from self.block(body)
            case IfElse(condition=condition, body=body, orelse=orelse):
                yield from self.block(body if self._holds(condition) else orelse)
            case While():
                yield from self._while(statement)

    def _while(self, loop: While) -> Iterator[str]:
        # By identity: the parser builds an object for each loop of the text, so equal loops are different nodes.
        states = self._seen.setdefault(id(loop), set())
        while self._holds(loop.condition) and not self.episode.crashed:
            state = self._world.state()
            if state in states:
                self.episode.crashed = True
                return
            states.add(state)
            yield from self.block(loop.body)

    def _count(self) -> None:
        self.episode.calls += 1
        if self.episode.calls > self._world.max_calls:
            self.episode.crashed = True

    def _holds(self, condition: Condition) -> bool:
        match condition:
            case Test():
                self._count()
                return self._world.perceive(condition)
            case Not(condition=inner):
                return not self._holds(inner)
            case And(left=left, right=right):
                return self._holds(left) and self._holds(right)
            case Or(left=left, right=right):
                return self._holds(left) or self._holds(right)
            case Constant(value=value):
                return value
