"""What a plug-in for a language of your own consists of. It imports no compiler.

A plug-in is a module with a `Plugin` named ``PLUGIN``. Its environment is either compiled rules, which the engine of Karel and
Minigrid runs (`compiled`), or a Gymnasium environment, which is stepped in Python and is much slower (`environment`). With
both, searches use the rules, and registration compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from dressage.programs.syntax import Program

if TYPE_CHECKING:
    import numpy as np

    from dressage.programs.languages.rules import CompiledRules

STATEMENTS = ("sequence", "WHILE", "IF", "IFELSE", "REPEAT", "action")
"""Productions of a statement, in the order of `dressage.programs.engine.grammar.Grammar.statements`."""
KAREL_STATEMENTS = {"sequence": 0.5, "WHILE": 0.15, "IF": 0.08, "IFELSE": 0.04, "REPEAT": 0.03, "action": 0.2}


@dataclass(frozen=True)
class Productions:
    """Probabilities and limits of random programs. Probabilities of one group need not sum to 1.

    :param statements: probability by production, see `STATEMENTS`; a missing one has probability 0.
    :param actions: probability by action; empty: all are equally probable.
    :param tests: probability by test, as ``name`` or ``name argument``; empty: all are equally probable.
    :param negation: probability that a condition is negated, 0 to 1.
    :param counts: REPEAT draws its count from 0 to ``counts`` - 1; 1 to 20.
    :param max_height: nested control statements, the program itself counted as one; 1 to 8.
    :param max_statements: statements of a block; 1 to 12.
    :param max_tokens: tokens of the whole text; 5 to 60.
    """

    statements: Mapping[str, float] = field(default_factory=lambda: dict(KAREL_STATEMENTS))
    actions: Mapping[str, float] = field(default_factory=dict)
    tests: Mapping[str, float] = field(default_factory=dict)
    negation: float = 0.1
    counts: int = 20
    max_height: int = 4
    max_statements: int = 6
    max_tokens: int = 45


@dataclass(frozen=True)
class Task:
    """A task, as a prompt describes it.

    :param map: the world and what is in it.
    :param start: where the agent starts.
    :param goal: what the agent has to do.
    :param returns: what is rewarded, and when an episode ends. A return is at most 1, which counts as solved.
    :param intent: an example of a user's words; empty: the goal.
    """

    map: str
    start: str
    goal: str
    returns: str
    intent: str = ""


@dataclass(frozen=True)
class View:
    """The world as a trace shows it.

    :param rows: the grid, one character a cell; ``#`` is a wall. Empty: the world is no grid.
    :param row: row of the agent, from 0 at the top.
    :param heading: name of the direction.
    :param note: what the grid does not show.
    """

    rows: tuple[str, ...] = ()
    row: int = 0
    column: int = 0
    heading: str = ""
    note: str = ""


class ProgramEnvironment(Protocol):
    """A Gymnasium environment or wrapper of the slow path. Action n is the n-th action of the language.

    A method ``view()`` that returns a `View` is optional.
    """

    action_space: Any

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin at the initial state with number ``seed``. The same number is always the same state."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Perform an action."""

    def perceive(self, test: str, argument: str) -> bool:
        """Return the outcome of a test in the present state; ``argument`` is empty where the test takes none."""

    def loop_state(self) -> Hashable:
        """Return all that a loop must not see twice: the agent, and everything that it can change."""


@dataclass(frozen=True)
class Plugin:
    """A language and its tasks.

    :param name: first part of the ids of its environments, as ``vacuum`` in ``vacuum/CleanRoom``.
    :param world: the world and what the agent perceives, for a prompt.
    :param execution: when an episode ends, for a prompt.
    :param actions: what each action does, by name; at most 16.
    :param tests: what each test means, by name; with arguments, at most 31.
    :param arguments: values of the argument of those tests that take one.
    :param tasks: tasks by name; an environment id is ``NAME/TASK``.
    :param productions: the grammar.
    :param max_calls: perceptions and actions of an episode; the next one ends it. 1 to 10,000.
    :param compiled: returns the compiled rules; None: there are none.
    :param environment: returns the Gymnasium environment of a task, see `ProgramEnvironment`; None: there is none.
    :param neighbour: returns a neighbour of a program, drawn from the given random numbers alone; None: one node is drawn anew.
        Candidates are then drawn in Python, which is slower.
    :param read_reply: returns the texts of the programs in a model's reply; None: Python and DSL text are read.
    :param prompt: template of the prompt for programs, see ``docs/own-languages.md``; empty: the built-in one.
    """

    name: str
    world: str
    execution: str
    actions: Mapping[str, str]
    tests: Mapping[str, str]
    tasks: Mapping[str, Task]
    arguments: Mapping[str, Sequence[str]] = field(default_factory=dict)
    productions: Productions = field(default_factory=Productions)
    max_calls: int = 1_000
    compiled: Callable[[], CompiledRules] | None = None
    environment: Callable[[str], ProgramEnvironment] | None = None
    neighbour: Callable[[Program, np.random.Generator], Program] | None = None
    read_reply: Callable[[str], Sequence[str]] | None = None
    prompt: str = ""
