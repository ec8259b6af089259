"""A family of tasks: a language, its description, and what plays its tasks. Karel, Minigrid and plug-ins have this form.

A `CompiledFamily` has rules that the engine compiles. It imports the engine when a task is first scored or played, so that
services without a compiler can check programs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from dressage.programs.engine.grammar import Grammar
from dressage.programs.search.parallel import Scorer
from dressage.programs.syntax import Language, Program
from dressage.programs.tasks_text import LanguageText, TaskText
from dressage.programs.trace import Trace, World, trace

if TYPE_CHECKING:
    from dressage.programs.engine.interpreter import Machine
    from dressage.programs.engine.worlds import Worlds


class Outcome(Protocol):
    """One episode of a program."""

    @property
    def reward(self) -> float:
        """Return: the sum of the rewards."""

    @property
    def steps(self) -> int:
        """Actions."""


class Family(Protocol):
    """Tasks of one language. A service may use all but `scorer`, `play` and `trace` without a compiler."""

    @property
    def name(self) -> str:
        """First part of the ids of its environments."""

    @property
    def language(self) -> Language:
        """The language of its programs."""

    @property
    def text(self) -> LanguageText:
        """The description of the language."""

    @property
    def tasks(self) -> Mapping[str, TaskText]:
        """The descriptions of the tasks by name."""

    @property
    def grammar(self) -> Grammar:
        """Probabilities and limits of random programs."""

    @property
    def note(self) -> str:
        """What a user must know of its speed; empty: programs are searched in compiled code."""

    @property
    def own(self) -> tuple[str, ...]:
        """What its plug-in has besides rules: ``neighbour``, ``read_reply``."""

    @property
    def prompt(self) -> str:
        """Template of the prompt for programs; empty: the built-in one."""

    def scorer(self, task: str, profile: str, states: Sequence[int]) -> Scorer:
        """Return what scores programs on initial states. It compiles, or reads compiled kernels."""

    def play(self, task: str, profile: str, program: Program, states: Sequence[int]) -> Sequence[Outcome]:
        """Play a program from each state to the end.

        :raises InvalidArgument: for a program that the engine cannot run.
        """

    def trace(self, task: str, profile: str, program: Program, state: int) -> Trace:
        """Play a program from one state and record every step."""

    def max_steps(self, task: str) -> int:
        """Return the largest number of perceptions and actions of an episode."""


@dataclass(frozen=True)
class Rules:
    """The compiled part of a family.

    :param worlds: returns the initial states of a task in a profile.
    :param world: returns the first of some initial states for a trace.
    :param kernels: name of its compiled kernels.
    """

    machine: Machine
    worlds: Callable[[str, str, Sequence[int]], Worlds]
    world: Callable[[Worlds], World]
    kernels: str


@dataclass(frozen=True)
class CompiledFamily:
    """A family with compiled rules; see `Family`.

    :param max_calls: perceptions and actions of an episode, as in the rules' machine.
    :param load: returns the rules; it imports the engine.
    """

    name: str
    language: Language
    text: LanguageText
    tasks: Mapping[str, TaskText]
    grammar: Grammar
    max_calls: int
    load: Callable[[], Rules]
    note: str = ""
    own: tuple[str, ...] = ()
    prompt: str = ""

    @functools.cached_property
    def _rules(self) -> Rules:
        return self.load()

    def scorer(self, task: str, profile: str, states: Sequence[int]) -> Scorer:
        from dressage.programs.engine.scoring import ProgramScorer, scoring_kernels

        rules = self._rules
        kernels = scoring_kernels(rules.kernels, rules.machine)
        return ProgramScorer(rules.worlds(task, profile, states), self.grammar, kernels)

    def play(self, task: str, profile: str, program: Program, states: Sequence[int]) -> Sequence[Outcome]:
        from dressage.programs.engine.playing import player

        rules = self._rules
        return player(rules.kernels, self.language, rules.machine).play(program, rules.worlds(task, profile, states))

    def trace(self, task: str, profile: str, program: Program, state: int) -> Trace:
        return trace(program, self._rules.world(self._rules.worlds(task, profile, (state,))))

    def max_steps(self, task: str) -> int:
        return self.max_calls
