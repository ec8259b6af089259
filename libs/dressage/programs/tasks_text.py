"""Descriptions of the languages and the program tasks for a language model, in short sentences.

They describe what a program can rely on. Sizes include the border of walls. A return is the sum of an episode's rewards.
The texts are in ``languages_text.json`` and ``tasks_text.json``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from dressage.programs.syntax import KAREL, MINIGRID, Language


@dataclass(frozen=True)
class LanguageText:
    """How a prompt describes a language.

    :param world: the world and what the agent perceives.
    :param actions: what each action does.
    :param tests: what each test means.
    :param execution: when an episode ends.
    """

    world: str
    actions: Mapping[str, str]
    tests: Mapping[str, str]
    execution: str


@dataclass(frozen=True)
class TaskText:
    """How a prompt describes a task.

    :param name: the task's name, as in ``karel/DoorKey`` or ``minigrid/LavaGap`` after the slash.
    :param language: the actions and tests of its programs.
    :param map: the grid and what is on it.
    :param start: where the agent starts and in which direction it faces.
    :param goal: what the agent has to do.
    :param returns: what is rewarded or penalised, and when the episode ends.
    """

    name: str
    language: Language
    map: str
    start: str
    goal: str
    returns: str


def _rows(file: str) -> dict[str, Any]:
    rows: dict[str, Any] = json.loads(resources.files(__package__).joinpath(file).read_text("utf-8"))
    return rows


def _tasks() -> dict[str, TaskText]:
    languages = {language.name: language for language in (KAREL, MINIGRID)}
    rows = _rows("tasks_text.json")
    return {name: TaskText(name, **(row | {"language": languages[row["language"]]})) for name, row in rows.items()}


TASK_TEXTS = _tasks()
"""The descriptions by the task's name."""
LANGUAGE_TEXTS = {name: LanguageText(**row) for name, row in _rows("languages_text.json").items()}
"""The descriptions by the language's name."""
