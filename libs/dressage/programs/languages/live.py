"""The family of a plug-in whose code is loaded. In a sandboxed process only, see `loading`."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from dressage.errors import InvalidArgument
from dressage.programs.engine.trees import Nodes, unflatten
from dressage.programs.family import CompiledFamily, Outcome, Rules
from dressage.programs.languages.description import COMPILED, DescribedFamily, Description
from dressage.programs.languages.failures import plugin_code
from dressage.programs.languages.plugin import Plugin
from dressage.programs.languages.stepped import (
    DrawingScorer,
    GymnasiumWorld,
    SteppedEpisode,
    check_environment,
    play_stepped,
)
from dressage.programs.search.parallel import Scorer
from dressage.programs.syntax import Program
from dressage.programs.trace import Trace, trace

_KERNEL_DIGITS = 12


@dataclass(frozen=True)
class SteppedFamily(DescribedFamily):
    """A family whose environments are stepped in Python; see `dressage.programs.family.Family`."""

    plugin: Plugin
    _environments: dict[str, Any] = field(default_factory=dict)

    def scorer(self, task: str, profile: str, states: Sequence[int]) -> Scorer:
        environment = self._make(task)  # of its own: a scorer belongs to one thread

        def returns(nodes: Nodes, i: int) -> float:
            program = unflatten(nodes, self.language)
            return play_stepped(program, self._world(environment, states[i])).reward

        return DrawingScorer(
            returns,
            variations=len(states),
            language=self.language,
            grammar=self.grammar,
            neighbour=self.plugin.neighbour,
        )

    def play(self, task: str, profile: str, program: Program, states: Sequence[int]) -> Sequence[SteppedEpisode]:
        environment = self._environment(task)
        return [play_stepped(program, self._world(environment, state)) for state in states]

    def trace(self, task: str, profile: str, program: Program, state: int) -> Trace:
        return trace(program, self._world(self._environment(task), state))

    def max_steps(self, task: str) -> int:
        return self.description.max_calls

    def _world(self, environment: Any, state: int) -> GymnasiumWorld:
        return GymnasiumWorld(environment, self.language, state, self.description.max_calls)

    def _environment(self, task: str) -> Any:
        if task not in self._environments:
            self._environments[task] = self._make(task)
        return self._environments[task]

    def _make(self, task: str) -> Any:
        assert self.plugin.environment is not None
        with plugin_code("environment"):
            environment = self.plugin.environment(task)
            check_environment(environment, self.language, task)
        return environment


@dataclass(frozen=True)
class DrawnFamily(CompiledFamily):
    """A family with compiled rules whose neighbours the plug-in draws."""

    neighbour: Any = None

    def scorer(self, task: str, profile: str, states: Sequence[int]) -> Scorer:
        from dressage.programs.engine.scoring import ProgramScorer

        scorer = super().scorer(task, profile, states)
        assert isinstance(scorer, ProgramScorer)
        played: tuple[Nodes | None, Any] = None, None

        def returns(nodes: Nodes, i: int) -> float:
            """Play all variations together when the first one is asked for: compiled code needs no early end."""
            nonlocal played
            if played[0] is not nodes:
                played = nodes, scorer.score(nodes)[1]
            return float(played[1][i])

        return DrawingScorer(
            returns,
            variations=len(states),
            language=self.language,
            grammar=self.grammar,
            neighbour=self.neighbour,
        )


LiveFamily = CompiledFamily | SteppedFamily
"""A family that can be played."""


def live_family(plugin: Plugin, description: Description) -> LiveFamily:
    """Return the family of a plug-in that searches and results use.

    :raises InvalidArgument: for rules of a wrong form.
    """
    if description.engine != COMPILED:
        return SteppedFamily(description, plugin)
    return compiled_family(plugin, description)


def compiled_family(plugin: Plugin, description: Description) -> CompiledFamily:
    """Return the family with the compiled rules of a plug-in.

    :raises InvalidArgument: for rules of a wrong form.
    """
    from dressage.programs.languages.rules import GridWorld, check_rules, worlds_of

    assert plugin.compiled is not None
    with plugin_code("compiled"):
        rules = check_rules(plugin.compiled(), description.max_calls)
    tasks = tuple(description.tasks)
    kernels = f"{description.name}-{description.code.version[:_KERNEL_DIGITS]}"

    def worlds(task: str, profile: str, states: Sequence[int]) -> Any:
        with plugin_code("compiled.start"):
            return worlds_of(rules, tasks, task, states)

    def load() -> Rules:
        language = description.language
        return Rules(rules.machine, worlds, lambda first: GridWorld(first, rules, language, kernels), kernels)

    make = CompiledFamily if plugin.neighbour is None else functools.partial(DrawnFamily, neighbour=plugin.neighbour)
    return make(
        name=description.name,
        language=description.language,
        text=description.text,
        tasks=description.tasks,
        grammar=description.grammar,
        max_calls=description.max_calls,
        load=load,
        note=description.note,
        own=description.own,
        prompt=description.prompt,
    )


def outcome_row(outcome: Outcome) -> dict[str, Any]:
    """Return an episode as JSON values.

    :raises InvalidArgument: for a return that is not finite.
    """
    reward = float(outcome.reward)
    if not abs(reward) < 1e300:
        raise InvalidArgument(field="reward", value=reward, expected="finite rewards")
    flags = ("terminated", "crashed", "exhausted")
    return {
        "reward": reward,
        "steps": int(outcome.steps),
        "calls": int(getattr(outcome, "calls", 0)),
        **{name: bool(getattr(outcome, name, False)) for name in flags},
    }
