"""Measured sessions by class of intent, from ``measured.toml``: what a plan expects of a session of that class."""

from __future__ import annotations

import functools
import re
import tomllib
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True)
class MeasuredSession:
    """A session that passed.

    :param environment: environment id.
    :param words: words that an intent of its class contains, in lower case.
    :param seeds: seeds of its config.
    :param steps: environment steps of each seed at the delivered checkpoint.
    :param core_seconds: processor time from the sentence to the confirmed policy, over all processes.
    :param source: how it was measured.
    """

    environment: str
    words: tuple[str, ...]
    intent: str
    seeds: int
    steps: int
    core_seconds: float
    source: str

    def text(self) -> str:
        """Return what was measured, in one line."""
        return f"{self.intent!r} passed after {self.steps:,} steps of each of {self.seeds} seeds"


def measured_session(environment: str, intent: str) -> MeasuredSession | None:
    """Return the measured session of an intent's class, that of the most words; None if there is none."""
    words = set(re.findall(r"[a-z]+", intent.lower()))
    fitting = [entry for entry in sessions() if entry.environment == environment and words.issuperset(entry.words)]
    return max(fitting, key=lambda entry: len(entry.words), default=None)


@functools.cache
def sessions() -> tuple[MeasuredSession, ...]:
    """Return all measured sessions."""
    text = resources.files("dressage.training").joinpath("measured.toml").read_text("utf-8")
    return tuple(
        MeasuredSession(**{**entry, "words": tuple(entry["words"]), "core_seconds": float(entry["core_seconds"])})
        for entry in tomllib.loads(text)["session"]
    )
