"""Measured sessions by class of intent: what a plan expects of a session of that class.

A class is an environment and the words that an intent of it contains. ``measured.toml`` of an environment's folder has the
sessions of the experiment `experiments/intents.yaml`; ``tools/measured_sessions.py`` writes it. The table ``measured`` of the
description has single sessions that were measured by hand, which count where that experiment has none.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dressage.envs.catalogue import catalogue

FILE = "measured.toml"
"""The file of the experiment's sessions, in an environment's folder."""


@dataclass(frozen=True)
class MeasuredSession:
    """Sessions of one intent.

    :param environment: environment id.
    :param words: words that an intent of its class contains, in lower case.
    :param seeds: seeds of its config.
    :param steps: environment steps of each seed at the delivered checkpoint; median of the sessions that passed.
    :param core_seconds: processor time from the sentence to the confirmed policy, over all processes; median as well. Of the
        experiment the wall-clock time multiplied by the number of cores: an upper bound.
    :param source: how it was measured.
    :param sessions: number of sessions.
    :param passed: number of those that passed.
    """

    environment: str
    words: tuple[str, ...]
    intent: str
    seeds: int
    steps: int
    core_seconds: float
    source: str
    sessions: int = 1
    passed: int = 1

    def text(self) -> str:
        """Return what was measured, in one line."""
        if not self.passed:
            one = self.sessions == 1
            return f"{self.intent!r} {'did not pass in one session' if one else f'passed in none of {self.sessions} sessions'}"
        text = f"{self.intent!r} passed after {self.steps:,} steps of each of {self.seeds} seeds"
        return text if self.sessions == 1 else f"{text} in {self.passed} of {self.sessions} sessions"


def measured_session(environment: str, intent: str) -> MeasuredSession | None:
    """Return the measured session of an intent's class, that of the most words.

    None if there is none, or if most sessions of the class did not pass: how long one takes that does is then unknown.
    """
    return closest(sessions(), environment, intent)


def unlikely_session(environment: str, intent: str) -> MeasuredSession | None:
    """Return the measured session of an intent's class if most sessions of the class did not pass."""
    nearest = _nearest(sessions(), environment, intent)
    return None if nearest is None or _passes(nearest) else nearest


def closest(entries: Sequence[MeasuredSession], environment: str, intent: str) -> MeasuredSession | None:
    """Return the entry of an intent's class as `measured_session`; of equal ones the first."""
    nearest = _nearest(entries, environment, intent)
    return nearest if nearest is not None and _passes(nearest) else None


def _nearest(entries: Sequence[MeasuredSession], environment: str, intent: str) -> MeasuredSession | None:
    words = set(re.findall(r"[a-z]+", intent.lower()))
    fitting = [entry for entry in entries if entry.environment == environment and words.issuperset(entry.words)]
    return max(fitting, key=lambda entry: len(entry.words), default=None)


def _passes(entry: MeasuredSession) -> bool:
    return 2 * entry.passed >= entry.sessions


@functools.cache
def sessions() -> tuple[MeasuredSession, ...]:
    """Return all measured sessions, of an environment those of the experiment first."""
    rows: list[MeasuredSession] = []
    for entry in catalogue().values():
        file = entry.path / FILE
        rows += parse_sessions(file.read_text("utf-8"), entry.id) if file.is_file() else ()
        rows += (_session(values, entry.id) for values in entry.table("measured"))
    return tuple(rows)


def parse_sessions(text: str, environment: str) -> tuple[MeasuredSession, ...]:
    """Return the sessions that a TOML file holds."""
    return tuple(_session(values, environment) for values in tomllib.loads(text).get("session", ()))


def _session(values: Mapping[str, Any], environment: str) -> MeasuredSession:
    words, seconds = tuple(values["words"]), float(values["core_seconds"])
    return MeasuredSession(**{**values, "environment": environment, "words": words, "core_seconds": seconds})
