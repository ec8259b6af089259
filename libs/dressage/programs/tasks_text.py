"""Descriptions of the languages and the program tasks for a language model, in short sentences.

They describe what a program can rely on. Sizes include the border of walls. A return is the sum of an episode's rewards.
The texts of a language are in ``languages_text.json``, those of a task in its family's folder of `dressage.envs.catalogue`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from dressage.envs.catalogue import catalogue
from dressage.programs.syntax import Language


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
    :param intent: an example of a user's words; empty: the goal.
    """

    name: str
    language: Language
    map: str
    start: str
    goal: str
    returns: str
    intent: str = ""


def task_texts(language: Language) -> dict[str, TaskText]:
    """Return the descriptions of a family of this package by the task's name.

    :param language: the family's, which has its name.
    """
    entries = [entry for entry in catalogue().values() if entry.id.startswith(f"{language.name}/")]
    names = [entry.id.partition("/")[2] for entry in entries]
    return {name: TaskText(name, language, **entries[0].table("tasks")[name]) for name in names}


def language_text(language: Language) -> LanguageText:
    """Return the description of a language of this package."""
    rows: dict[str, Any] = json.loads(resources.files(__package__).joinpath("languages_text.json").read_text("utf-8"))
    return LanguageText(**rows[language.name])
