"""The part of a plug-in's family that its description states, whether or not its code is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dressage.programs.engine.grammar import Grammar
from dressage.programs.languages.description import Description
from dressage.programs.syntax import Language
from dressage.programs.tasks_text import LanguageText, TaskText


@dataclass(frozen=True)
class DescribedFamily:
    """See `dressage.programs.family.Family`."""

    description: Description

    @property
    def name(self) -> str:
        """See `Family`."""
        return self.description.name

    @property
    def language(self) -> Language:
        """See `Family`."""
        return self.description.language

    @property
    def text(self) -> LanguageText:
        """See `Family`."""
        return self.description.text

    @property
    def tasks(self) -> Mapping[str, TaskText]:
        """See `Family`."""
        return self.description.tasks

    @property
    def grammar(self) -> Grammar:
        """See `Family`."""
        return self.description.grammar

    @property
    def note(self) -> str:
        """See `Family`."""
        return self.description.note

    @property
    def own(self) -> tuple[str, ...]:
        """See `Family`."""
        return self.description.own

    @property
    def prompt(self) -> str:
        """See `Family`."""
        return self.description.prompt
