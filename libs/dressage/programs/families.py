"""The tasks that programs solve, by environment id such as ``karel/DoorKey``. The part before the slash is a family.

A family has a language, tasks and what plays them. This module and the families' own import no compiler until a task is scored
or played, so that services without one can check programs and states. A family of this package is a module with a `Family` and
an entry in `FAMILIES`; its environments are listed in `dressage.envs.cards.PROGRAM_ENVIRONMENT_IDS`. Other families are
registered languages, see `dressage.programs.languages`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dressage.errors import InvalidArgument, NotFound
from dressage.programs.family import Family, Outcome
from dressage.programs.karel.family import KAREL_FAMILY
from dressage.programs.languages.registered import registered_families, registered_family
from dressage.programs.minigrid.family import MINIGRID_FAMILY
from dressage.programs.search.parallel import Scorer
from dressage.programs.syntax import Language, Program, parse, to_text
from dressage.programs.tasks_text import TaskText
from dressage.programs.trace import Trace
from dressage.programs.trace_text import trace_text

CORRECTED, PUBLISHED = "corrected", "llmgs-v1"
PROFILES = (CORRECTED, PUBLISHED)
# The published experiment reports on the states that it searched on; a corrected result must not (decision 0046).
_FIRST_REPORT_STATE = {CORRECTED: 1_000, PUBLISHED: 0}
_ROUNDING = {CORRECTED: 1e-9, PUBLISHED: 0.0}
AGENT_TRACE, PROGRAM_TRACE = "agent_trace", "program_trace"
TRACES = (AGENT_TRACE, PROGRAM_TRACE)
"""Texts of an episode: without and with the lines of the program at each step."""
SOLVED = 1.0 - 1e-9
"""Return of an episode that reaches the goal of its task."""
MAX_STATE = 2**32 - 1
"""Largest number of an initial state."""


FAMILIES: dict[str, Family] = {family.name: family for family in (KAREL_FAMILY, MINIGRID_FAMILY)}
"""The families of this package by name."""


@dataclass(frozen=True)
class ProgramTask:
    """A task in a profile.

    :param profile: ``corrected``, or ``llmgs-v1``: the published experiment with its peculiarities.
    """

    environment: str
    family: Family
    name: str
    profile: str = CORRECTED

    @property
    def language(self) -> Language:
        """The language of its programs."""
        return self.family.language

    @property
    def text(self) -> TaskText:
        """Its description."""
        return self.family.tasks[self.name]

    def parse(self, text: str) -> Program:
        """Return the program of a text.

        :raises InvalidArgument: if it is none.
        """
        return parse(text, self.language)

    def canonical(self, text: str) -> str:
        """Return the text of a program in its canonical form.

        :raises InvalidArgument: if it is no program.
        """
        return to_text(self.parse(text))

    def search_states(self, count: int) -> tuple[int, ...]:
        """Return the initial states that a search scores programs on."""
        return tuple(range(count))

    def report_states(self, count: int) -> tuple[int, ...]:
        """Return the initial states of a result: others than those of the search, unless the profile is the published one."""
        first = _FIRST_REPORT_STATE[self.profile]
        return tuple(range(first, first + count))

    def threshold(self, target: float) -> float:
        """Return the score that reaches a target: in ``corrected`` less by the rounding error of a mean."""
        return target - _ROUNDING[self.profile]

    def scorer(self, states: Sequence[int]) -> Scorer:
        """Return what scores programs on initial states."""
        return self.family.scorer(self.name, self.profile, states)

    def play(self, program: Program, states: Sequence[int]) -> Sequence[Outcome]:
        """Play a program from each state to the end.

        :raises InvalidArgument: for a program that the engine cannot run.
        """
        return self.family.play(self.name, self.profile, program, states)

    def trace(self, program: Program, state: int) -> Trace:
        """Play a program from one state and record every step."""
        return self.family.trace(self.name, self.profile, program, state)

    def worst_episode(self, program: Program, states: Sequence[int], variant: str) -> str:
        """Return the episode with the lowest return, the first of several, as text.

        :param variant: one of `TRACES`.
        :raises InvalidArgument: for a program that the engine cannot run.
        """
        returns = [episode.reward for episode in self.play(program, states)]
        worst = states[returns.index(min(returns))]
        return trace_text(self.trace(program, worst), program_lines=variant == PROGRAM_TRACE)


def families() -> tuple[Family, ...]:
    """Return all families: those of this package, then the registered languages."""
    return (*FAMILIES.values(), *registered_families())


def find_family(name: str) -> Family | None:
    """Return a family by its name; None if there is none.

    :raises InvalidArgument: for a registered language whose description is damaged.
    """
    return FAMILIES.get(name) or registered_family(name)


def has_programs(environment: str) -> bool:
    """Return whether an environment id is that of a program task."""
    name, _, task = environment.partition("/")
    family = find_family(name) if task else None
    return family is not None and task in family.tasks


def program_task(environment: str, profile: str = "") -> ProgramTask:
    """Return the task of an environment.

    :param profile: empty: ``corrected``.
    :raises NotFound: for an environment without programs.
    :raises InvalidArgument: for an unknown profile, or a registered language whose description is damaged.
    """
    profile = profile or CORRECTED
    if profile not in PROFILES:
        expected = f"one of {', '.join(PROFILES)}"
        raise InvalidArgument(field="profile", problem="unknown profile", value=profile, expected=expected)
    name, _, task = environment.partition("/")
    family = find_family(name) if task else None
    if family is None or task not in family.tasks:
        names = ", ".join(f"{family.name}/{task}" for family in families() for task in family.tasks)
        message = f"environment {environment[:60]!r} has no programs; those that have: {names}"
        raise NotFound(message, reason="TASK_NOT_FOUND")
    return ProgramTask(environment, family, task, profile)
