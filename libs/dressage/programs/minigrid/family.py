"""Minigrid as a family of program tasks: three tasks of Minigrid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dressage.programs.engine.grammar import MINIGRID_GRAMMAR
from dressage.programs.family import CompiledFamily, Rules
from dressage.programs.minigrid.tasks import minigrid_task
from dressage.programs.syntax import MINIGRID
from dressage.programs.tasks_text import language_text, task_texts

_MAX_CALLS = 999


def _rules() -> Rules:
    from dressage.programs.minigrid.machine import MINIGRID_MACHINE
    from dressage.programs.minigrid.stepping import MinigridWorld

    return Rules(MINIGRID_MACHINE, _worlds, lambda worlds: MinigridWorld(worlds, 0), "minigrid")


def _worlds(task: str, profile: str, states: Sequence[int]) -> Any:
    from dressage.programs.minigrid.worlds import Worlds

    return Worlds.of(minigrid_task(task), states)


MINIGRID_FAMILY = CompiledFamily(
    name="minigrid",
    language=MINIGRID,
    text=language_text(MINIGRID),
    tasks=task_texts(MINIGRID),
    grammar=MINIGRID_GRAMMAR,
    max_calls=_MAX_CALLS,
    load=_rules,
)
