"""Karel as a family of program tasks: the ten tasks of the published benchmark and its two novel ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dressage.programs.engine.grammar import KAREL_GRAMMAR
from dressage.programs.family import CompiledFamily, Rules
from dressage.programs.karel.tasks import class_of
from dressage.programs.syntax import KAREL
from dressage.programs.tasks_text import language_text, task_texts

_MAX_CALLS = 10_000


def _rules() -> Rules:
    from dressage.programs.karel.machine import KAREL_MACHINE
    from dressage.programs.karel.stepping import KarelWorld

    return Rules(KAREL_MACHINE, _worlds, lambda worlds: KarelWorld(worlds, 0), "karel")


def _worlds(task: str, profile: Any, states: Sequence[int]) -> Any:
    from dressage.programs.karel.worlds import Worlds

    return Worlds.of(class_of(task), states, profile)


KAREL_FAMILY = CompiledFamily(
    name="karel",
    language=KAREL,
    text=language_text(KAREL),
    tasks=task_texts(KAREL),
    grammar=KAREL_GRAMMAR,
    max_calls=_MAX_CALLS,
    load=_rules,
)
