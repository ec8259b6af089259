"""Registered languages, as services see them: data. What runs a plug-in's code runs it in a sandboxed process.

`RegisteredFamily` is a family like others. In a sandboxed process it scores, plays and traces programs with the plug-in's code;
in any other process it starts a sandboxed one to play or trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dressage.envs import custom
from dressage.errors import InvalidArgument
from dressage.programs.family import Outcome
from dressage.programs.languages.description import DescribedFamily
from dressage.programs.languages.store import read_description
from dressage.programs.search.parallel import Scorer
from dressage.programs.syntax import Program
from dressage.programs.trace import Trace
from dressage.sandbox import lockdown


@dataclass(frozen=True)
class RegisteredFamily(DescribedFamily):
    """A registered language; see `dressage.programs.family.Family`."""

    def scorer(self, task: str, profile: str, states: Sequence[int]) -> Scorer:
        """Load the plug-in and return its scorer, in a sandboxed process only.

        :raises FailedPrecondition: in another process.
        """
        from dressage.programs.languages.loading import load_family

        return load_family(self.name).scorer(task, profile, states)

    def play(self, task: str, profile: str, program: Program, states: Sequence[int]) -> Sequence[Outcome]:
        """Play a program, outside of a sandbox in a process of its own.

        :raises DressageError: if the plug-in's code fails.
        """
        if lockdown.is_locked_down():
            from dressage.programs.languages.loading import load_family

            return load_family(self.name).play(task, profile, program, states)
        from dressage.programs.languages import sandboxed

        return sandboxed.play(self.description, task, profile, program, states)

    def trace(self, task: str, profile: str, program: Program, state: int) -> Trace:
        """Record a program's episode, outside of a sandbox in a process of its own.

        :raises DressageError: if the plug-in's code fails.
        """
        if lockdown.is_locked_down():
            from dressage.programs.languages.loading import load_family

            return load_family(self.name).trace(task, profile, program, state)
        from dressage.programs.languages import sandboxed

        return sandboxed.trace(self.description, task, profile, program, state)

    def max_steps(self, task: str) -> int:
        return self.description.max_calls


def registered_families() -> tuple[RegisteredFamily, ...]:
    """Return the registered languages by name; one whose description is damaged is left out."""
    loaded = []
    for name in custom.language_names():
        try:
            family = registered_family(name)
        except InvalidArgument:
            continue
        if family is not None:
            loaded.append(family)
    return tuple(loaded)


def registered_family(name: str) -> RegisteredFamily | None:
    """Return a registered language; None if there is none of this name.

    :raises InvalidArgument: if its description is damaged.
    """
    if name not in custom.language_names():
        return None
    return RegisteredFamily(read_description(name))
