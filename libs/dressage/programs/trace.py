"""Traces an episode of a program: every perception and action with the line that executes it.

`trace` walks the tree of a program in a `World` and returns a `Trace`, a list of `Step`. `dressage.programs.trace_text` prints
one for a language model. `dressage.programs.karel.stepping` and
`dressage.programs.minigrid.stepping` have the worlds.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import repeat
from typing import Literal, Protocol

from dressage.programs.pretty import Printout, statements, to_python
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

MAX_ITERATIONS = 1 << 22
"""Iterations of loops in an episode: a bound for programs whose loops neither perceive nor act."""
MAX_SEEN = 1 << 14
"""States that the loop detector records in an episode."""
DEFAULT_STEPS = 20_000
"""Most steps that a trace records; more than an episode of Karel can have."""


@dataclass(frozen=True)
class Agent:
    """Where the agent is: row and column from 0 at the top left, borders included.

    :param heading: name of the direction.
    :param note: what the grid does not show, such as ``on 1 marker`` or ``carrying a ball``; empty: nothing.
    """

    row: int
    column: int
    heading: str
    note: str = ""


@dataclass
class Contents:
    """What the cells of a world hold, by row and column.

    :param rows: height of the grid.
    :param columns: its width.
    :param walls: cells that are a wall.
    :param markers: markers of the cells that have some.
    :param objects: names of other objects, such as ``red ball``, ``open blue door``, ``lava``.
    """

    rows: int
    columns: int
    walls: set[tuple[int, int]] = field(default_factory=set)
    markers: dict[tuple[int, int], int] = field(default_factory=dict)
    objects: dict[tuple[int, int], str] = field(default_factory=dict)

    def change(self, step: Step) -> None:
        """Change what a step of a trace changed."""
        for row, column, count in step.markers:
            self.markers[row, column] = count
        for row, column, is_wall in step.walls:
            (self.walls.add if is_wall else self.walls.discard)((row, column))
        for row, column, name in step.objects:
            self.objects[row, column] = name


@dataclass(frozen=True)
class Effect:
    """What an action did.

    :param reward: the reward after the action.
    :param terminated: whether the task ended.
    :param markers: (row, column, markers afterwards) of each cell whose markers changed.
    :param walls: (row, column, whether it is a wall afterwards) of each cell that became a wall or free.
    :param objects: (row, column, object afterwards) of each cell whose object changed; an empty text for none.
    """

    reward: float
    terminated: bool
    markers: tuple[tuple[int, int, int], ...] = ()
    walls: tuple[tuple[int, int, bool], ...] = ()
    objects: tuple[tuple[int, int, str], ...] = ()


class World(Protocol):
    """One initial state of a task; a trace changes it, so that a world serves for one trace."""

    max_calls: int
    """Perceptions and actions of an episode; the next one crashes it."""
    legend: str
    """What the characters of the grid mean, in one sentence."""

    def perceive(self, test: Test) -> bool:
        """Return the outcome of a test."""
        ...

    def act(self, action: str, *, blocked: bool) -> Effect:
        """Perform an action.

        :param blocked: whether the limit of calls is exceeded, so that the agent cannot move.
        """
        ...

    def state(self) -> Hashable:
        """Return what the loop detector compares: the agent and what it can change."""
        ...

    def agent(self) -> Agent:
        """Return where the agent is."""
        ...

    def grid(self) -> tuple[str, ...]:
        """Return the rows of the grid, one character a cell."""
        ...

    def contents(self) -> Contents:
        """Return what the cells hold, without the agent."""
        ...

    def view(self) -> tuple[str, ...]:
        """Return the three rows of the 3x3 cells around the agent; a space is outside of the grid."""
        ...


@dataclass(frozen=True)
class Step:
    """A perception or an action.

    :param line: its line in `Trace.printout`, from 1.
    :param kind: ``test`` or ``action``.
    :param operation: the call as Python, such as ``move()``.
    :param result: outcome of a test; None for an action.
    :param reward: 0 for a test.
    :param agent: where the agent is afterwards.
    :param markers: see `Effect`.
    :param walls: see `Effect`.
    :param view: the 3x3 cells around the agent afterwards.
    :param objects: see `Effect`.
    """

    line: int
    kind: Literal["test", "action"]
    operation: str
    result: bool | None
    reward: float
    agent: Agent
    markers: tuple[tuple[int, int, int], ...]
    walls: tuple[tuple[int, int, bool], ...]
    view: tuple[str, ...]
    objects: tuple[tuple[int, int, str], ...] = ()


@dataclass(frozen=True)
class Trace:
    """An episode.

    :param printout: the program as it was printed; lines of steps refer to it.
    :param grid: the grid at the beginning.
    :param legend: what its characters mean.
    :param contents: what the cells hold at the beginning.
    :param start: the agent at the beginning.
    :param steps: up to the crash, and up to the limit of recorded steps.
    :param total: sum of the rewards of the whole episode.
    :param actions: actions of the whole episode.
    :param calls: perceptions and actions of the whole episode; those after a crash count.
    :param terminated: whether the task ended the episode.
    :param crashed: whether a loop saw a state again, or a limit was exceeded.
    :param exhausted: whether the loops ran too often without perceiving or acting, or recorded too many states.
    """

    printout: Printout
    grid: tuple[str, ...]
    legend: str
    start: Agent
    steps: tuple[Step, ...]
    total: float
    actions: int
    calls: int
    terminated: bool
    crashed: bool
    exhausted: bool
    contents: Contents


def trace(program: Program, world: World, *, printout: Printout | None = None, limit: int = DEFAULT_STEPS) -> Trace:
    """Run a program in a world and record its steps.

    :param printout: what the lines of steps refer to; None: the program as Python.
    :param limit: most steps that are recorded; the rest of the episode is not recorded.
    """
    printout = printout or to_python(program)
    walk = _Walk(world, limit)
    grid, start, contents = world.grid(), world.agent(), world.contents()
    walk.run(_number(program, printout.lines))
    return Trace(
        printout,
        grid,
        world.legend,
        start,
        tuple(walk.steps),
        walk.total,
        walk.actions,
        walk.calls,
        walk.terminated,
        walk.crashed,
        walk.exhausted,
        contents,
    )


@dataclass(frozen=True)
class Run:
    """Totals of an episode, as `Trace` has them."""

    total: float
    actions: int
    calls: int
    terminated: bool
    crashed: bool
    exhausted: bool


def run(program: Program, world: World) -> Run:
    """Run a program in a world without recording its steps."""
    walk = _Walk(world, 0)
    walk.run(_number(program, repeat(0)))
    return Run(walk.total, walk.actions, walk.calls, walk.terminated, walk.crashed, walk.exhausted)


@dataclass(eq=False)
class _Node:
    """A statement at one place of the program: equal loops at different places are different nodes."""

    statement: Statement
    line: int
    body: tuple[_Node, ...] = ()
    orelse: tuple[_Node, ...] = ()
    seen: set[Hashable] = field(default_factory=set)
    """The states in which the condition of a WHILE held, over the whole episode."""


def _number(program: Program, lines: Iterable[int]) -> tuple[_Node, ...]:
    """Return the nodes of a program with the lines of its statements."""
    numbered = zip(statements(program), lines, strict=False)

    def block(length: int) -> tuple[_Node, ...]:
        return tuple(node() for _ in range(length))

    def node() -> _Node:
        statement, line = next(numbered)
        match statement:
            case IfElse(body=body, orelse=orelse):
                return _Node(statement, line, block(len(body)), block(len(orelse)))
            case Repeat(body=body) | While(body=body) | If(body=body):
                return _Node(statement, line, block(len(body)))
            case _:
                return _Node(statement, line)

    return block(len(program.body))


class _Exhausted(Exception):
    """The loops of an episode ran too often."""


class _Walk:
    """The state of an episode. Blocks are generators that yield after each action."""

    def __init__(self, world: World, limit: int) -> None:
        self.steps: list[Step] = []
        self.total = 0.0
        self.actions = self.calls = 0
        self.terminated = self.crashed = self.exhausted = False
        self._world = world
        self._limit = limit
        self._iterations = self._recorded_states = 0

    def run(self, nodes: tuple[_Node, ...]) -> None:
        """Run the statements of the whole program to the end of the episode."""
        try:
            for _ in self._block(nodes):
                if self.terminated or self.crashed:
                    break
        except _Exhausted:
            self.exhausted = self.crashed = True

    def _block(self, nodes: tuple[_Node, ...]) -> Iterator[None]:
        for node in nodes:
            yield from self._node(node)

    def _node(self, node: _Node) -> Iterator[None]:
        match node.statement:
            case Action(name=name):
                if not self.crashed:
                    self._act(name, node.line)
                    yield
            case Repeat(count=count):
                for _ in range(count):
                    self._iterate()
                    yield from self._block(node.body)
            case If(condition=condition) | IfElse(condition=condition):
                yield from self._block(node.body if self._holds(condition, node.line) else node.orelse)
            case While():
                yield from self._while(node, node.statement.condition)

    def _while(self, node: _Node, condition: Condition) -> Iterator[None]:
        while True:
            holds = self._holds(condition, node.line)
            self._iterations += 1
            if not holds or self.crashed:
                return
            state = self._world.state()
            if state in node.seen:
                self.crashed = True
                return
            node.seen.add(state)
            self._recorded_states += 1
            if self._recorded_states > MAX_SEEN or self._iterations > MAX_ITERATIONS:
                raise _Exhausted
            yield from self._block(node.body)

    def _iterate(self) -> None:
        self._iterations += 1
        if self._iterations > MAX_ITERATIONS:
            raise _Exhausted

    def _act(self, name: str, line: int) -> None:
        self._count()
        effect = self._world.act(name, blocked=self.crashed)
        self.actions += 1
        self.total += effect.reward
        self.terminated = effect.terminated
        self._record(line, "action", f"{name}()", None, effect)

    def _count(self) -> None:
        self.calls += 1
        if self.calls > self._world.max_calls:
            self.crashed = True

    def _holds(self, condition: Condition, line: int) -> bool:
        match condition:
            case Test(name=name, argument=argument):
                before = self.crashed
                self._count()
                result = self._world.perceive(condition)
                if not before:
                    operation = f'{name}("{argument}")' if argument else f"{name}()"
                    self._record(line, "test", operation, result, Effect(0.0, False))
                return result
            case Not(condition=inner):
                return not self._holds(inner, line)
            case And(left=left, right=right):
                return self._holds(left, line) and self._holds(right, line)
            case Or(left=left, right=right):
                return self._holds(left, line) or self._holds(right, line)
            case Constant(value=value):
                return value

    def _record(
        self, line: int, kind: Literal["test", "action"], operation: str, result: bool | None, effect: Effect
    ) -> None:
        if len(self.steps) >= self._limit:
            return
        world = self._world
        self.steps.append(
            Step(
                line,
                kind,
                operation,
                result,
                effect.reward,
                world.agent(),
                effect.markers,
                effect.walls,
                world.view(),
                effect.objects,
            )
        )
