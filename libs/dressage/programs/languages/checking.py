"""Tries a plug-in when it is registered: what a session would use, on random programs, with errors that name the part.

Compiled rules are compared with the Gymnasium environment where a plug-in has both. The kernels that this compiles are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dressage.errors import InvalidArgument
from dressage.programs.engine import trees
from dressage.programs.engine.trees import flatten
from dressage.programs.family import CompiledFamily
from dressage.programs.languages.description import COMPILED, Description
from dressage.programs.languages.failures import FAILED
from dressage.programs.languages.live import SteppedFamily, compiled_family, live_family, outcome_row
from dressage.programs.languages.loading import read_replies
from dressage.programs.languages.plugin import Plugin
from dressage.programs.search.draws import neighbours, random_programs
from dressage.programs.search.parallel import Scorer
from dressage.programs.syntax import Program, to_text

_STATES = (0, 1, 1_000)
_PROGRAMS, _COMPARED = 24, 300
_STEPS = 200
_TASKS = 8
_TOLERANCE = 1e-9
_CORRECTED = "corrected"


def check_plugin(plugin: Plugin, description: Description, report: Callable[[str], None]) -> None:
    """Try a plug-in.

    :param report: called with what is tried next.
    :raises InvalidArgument: naming the part that does not work.
    """
    report("drawing programs")
    programs = random_programs(description.grammar, 1, _COMPARED)
    family = live_family(plugin, description)
    for task in list(description.tasks)[:_TASKS]:
        report(f"playing {description.name}/{task}")
        if isinstance(family, CompiledFamily):
            check_steps(family, task)
        _check_family(family, task, programs[:_PROGRAMS])
        if description.engine == COMPILED and plugin.environment is not None:
            report(f"comparing rules and environment of {description.name}/{task}")
            compare(compiled_family(plugin, description), SteppedFamily(description, plugin), task, programs)
    if plugin.read_reply is not None:
        read_replies(plugin, ["", "no program", to_text(programs[0])])


def _check_family(family: CompiledFamily | SteppedFamily, task: str, programs: Sequence[Program]) -> None:
    """Play and score programs: the same returns twice, at most 1, and in searches as in results."""
    scorer = family.scorer(task, _CORRECTED, _STATES)
    for program in programs:
        rows = [[outcome_row(one) for one in family.play(task, _CORRECTED, program, _STATES)] for _ in range(2)]
        if rows[0] != rows[1]:
            raise _wrong(family, task, program, "the same program and states give different episodes", "equal ones")
        returns = [row["reward"] for row in rows[0]]
        if max(returns) > 1 + _TOLERANCE:
            raise _wrong(family, task, program, f"a return of {max(returns):g}", "returns of at most 1")
        _, scored = scorer.score(flatten(program, family.language))
        if not np.allclose(scored, returns, rtol=0, atol=_TOLERANCE):
            raise _wrong(family, task, program, f"the search has returns {scored.tolist()}", f"{returns}")
    _check_search(family, task, scorer, programs[0])
    family.trace(task, _CORRECTED, programs[0], _STATES[0])


def _check_search(family: CompiledFamily | SteppedFamily, task: str, scorer: Scorer, parent: Program) -> None:
    """Draw the same candidates twice, as a resumed search does."""
    order, nodes = np.arange(len(_STATES)), flatten(parent, family.language)
    finds = [scorer.search(nodes, 3, 0, 4, 1, -np.inf, order) for _ in range(2)]
    scorer.search(np.zeros(0, np.int32), 3, 0, 1, 1, -np.inf, order)
    neighbours(parent, family.grammar, 3, 1)
    if finds[0] is None or finds[1] is None or not np.array_equal(finds[0][1], finds[1][1]):
        message = "neighbour: the same random numbers give different programs; expected equal ones"
        raise InvalidArgument(message, field="neighbour", reason=FAILED)


def check_steps(family: CompiledFamily, task: str) -> None:
    """Perform random actions one by one, and check what the compiled functions return and change.

    :raises InvalidArgument: naming the function.
    """
    rules = family.load()
    world = rules.world(rules.worlds(task, _CORRECTED, (0,)))
    rng, actions, tests = np.random.default_rng(0), family.language.actions, trees.tests_of(family.language)

    def refuse(part: str, problem: str, expected: str) -> InvalidArgument:
        return InvalidArgument(
            field=f"compiled.machine.{part} ({task})", problem=problem, expected=expected, reason=FAILED
        )

    for _ in range(_STEPS):
        before = world.state()
        for test in tests:
            world.perceive(test)
        if world.state() != before:
            raise refuse("perceive", "a test changed the world", "tests that change nothing")
        name = str(rng.choice(actions))
        blocked = world.act(name, blocked=True)
        if world.state() != before or blocked.reward != 0:
            expected = "no change and no reward where blocked is true: the limit of calls is exceeded"
            raise refuse("act", f"{name} had an effect when blocked", expected)
        effect = world.act(name, blocked=False)
        agent = world.agent()
        rows, columns = world.contents().rows, world.contents().columns
        if not (0 <= agent.row < rows and 0 <= agent.column < columns):
            raise refuse("act", f"{name} moved the agent out of the map", "a cell of the map")
        if not np.isfinite(effect.reward):
            raise refuse("act", f"{name} has the reward {effect.reward}", "finite rewards")
        if not world.hash_is_current():  # type: ignore[attr-defined]
            raise refuse("act", f"{name} changed a cell without its hash", "changes by set_cell")
        if effect.terminated:
            world = rules.world(rules.worlds(task, _CORRECTED, (int(rng.integers(1_000)),)))


def compare(first: CompiledFamily, second: SteppedFamily, task: str, programs: Sequence[Program]) -> None:
    """Compare the episodes of programs under the rules and in the environment.

    :raises InvalidArgument: for a program and a state whose episodes differ.
    """
    for program in programs:
        pairs = zip(
            first.play(task, _CORRECTED, program, _STATES), second.play(task, _CORRECTED, program, _STATES), strict=True
        )
        for state, (one, other) in zip(_STATES, pairs, strict=True):
            alike = abs(one.reward - other.reward) <= _TOLERANCE and one.steps == other.steps
            if not alike:
                problem = f"return {one.reward:g} and {one.steps} actions by the rules from state {state}"
                expected = f"{other.reward:g} and {other.steps}, as in the environment"
                raise _wrong(first, task, program, problem, expected)


def _wrong(
    family: CompiledFamily | SteppedFamily, task: str, program: Program, problem: str, expected: str
) -> InvalidArgument:
    part = "compiled" if isinstance(family, CompiledFamily) else "environment"
    field, remedy = f"{part} ({task})", f"The program: {to_text(program)}"
    return InvalidArgument(field=field, problem=problem, expected=expected, remedy=remedy, reason=FAILED)
