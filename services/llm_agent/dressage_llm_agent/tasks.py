"""What roles are asked and what they answer, as plain values: the protos' messages without protobuf.

`translate` turns messages into these and back; everything else of the service knows only these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Subject = Literal["reward", "judge"]
HyperparameterValue = float | int | tuple[int, ...]


@dataclass(frozen=True)
class Criterion:
    """One measurable aspect of an intent."""

    title: str
    description: str = ""
    category: str = ""
    default_on: bool = True


@dataclass(frozen=True)
class Brief:
    """What every author needs to know.

    :param environment: id of the environment, such as ``Hopper-v5``.
    """

    intent: str
    environment: str
    criteria: tuple[Criterion, ...] = ()


@dataclass(frozen=True)
class Failure:
    """One rule that generated code broke; ``line`` counts from 1, 0 for none."""

    rule: str
    line: int
    message: str
    seen: str = ""


@dataclass(frozen=True)
class PastIteration:
    """An iteration of the session so far.

    :param score: between 0 and 1; None where it was not judged.
    :param scores: by criterion, between 0 and 1.
    :param hyperparameters: what differs from the environment's preset, for the best config.
    """

    number: int
    source: str
    score: float | None = None
    scores: Mapping[str, float] = field(default_factory=dict)
    diagnosis: str = ""
    failure_tags: tuple[str, ...] = ()
    planned_change: str = ""
    lesson: str = ""
    warnings: tuple[str, ...] = ()
    hyperparameters: Mapping[str, HyperparameterValue] = field(default_factory=dict)


@dataclass(frozen=True)
class ElicitorTask:
    """Intent to criteria."""

    brief: Brief


@dataclass(frozen=True)
class RewardAuthorTask:
    """Intent to reward."""

    brief: Brief


@dataclass(frozen=True)
class JudgeAuthorTask:
    """Intent to judge; ``pass_threshold`` is the score from which the behaviour counts as achieved."""

    brief: Brief
    pass_threshold: float


@dataclass(frozen=True)
class FixerTask:
    """Check failures to repaired code."""

    brief: Brief
    subject: Subject
    source: str
    failures: tuple[Failure, ...]


@dataclass(frozen=True)
class ReviserTask:
    """History to a revised reward; the latest iteration is the last of ``history``."""

    brief: Brief
    history: tuple[PastIteration, ...]
    notes: tuple[str, ...] = ()
    lessons: tuple[str, ...] = ()
    tune_hyperparameters: bool = False
    iterations_without_improvement: int = 0
    dynamics: str = ""


RoleTask = ElicitorTask | RewardAuthorTask | JudgeAuthorTask | FixerTask | ReviserTask


@dataclass(frozen=True)
class ElicitorResult:
    """Criteria, and what the intent leaves open."""

    criteria: tuple[Criterion, ...]
    questions: tuple[str, ...] = ()


@dataclass(frozen=True)
class RewardProposal:
    """A reward's Python source and why it is as it is."""

    source: str
    reasoning: str


@dataclass(frozen=True)
class JudgeProposal:
    """A judge's Python source and the null controls that it must fail."""

    source: str
    null_controls: tuple[str, ...]
    reasoning: str


@dataclass(frozen=True)
class FixedCode:
    """Repaired Python source and what was changed."""

    source: str
    explanation: str


@dataclass(frozen=True)
class Revision:
    """A revised reward; ``based_on`` is the number of an iteration, 0 for the latest."""

    diagnosis: str
    lesson: str
    planned_change: str
    source: str
    based_on: int = 0
    hyperparameters: Mapping[str, HyperparameterValue] = field(default_factory=dict)
    hyperparameter_reasoning: str = ""


RoleResult = ElicitorResult | RewardProposal | JudgeProposal | FixedCode | Revision

NULL_CONTROLS = ("random", "untrained", "motionless", "time_reversed")
"""Kinds of trajectories that a judge may be asked to fail."""
