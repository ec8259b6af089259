"""What the revisers use of an iteration of the session."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dressage.api.v1 import session_pb2

HyperparameterValue = float | int | tuple[int, ...]


@dataclass(frozen=True)
class PastIteration:
    """An iteration of the session.

    :param score: in [0, 1]; None without a judgment.
    :param scores: by criterion, in [0, 1].
    :param remarks: what the video judge saw; empty without one.
    :param judged_by: ``code``, ``code and video`` or ``video``; empty if it is not known.
    :param hyperparameters: differences from the environment's preset, of the best config.
    """

    number: int
    source: str
    score: float | None = None
    scores: Mapping[str, float] = field(default_factory=dict)
    diagnosis: str = ""
    remarks: str = ""
    judged_by: str = ""
    failure_tags: tuple[str, ...] = ()
    planned_change: str = ""
    lesson: str = ""
    warnings: tuple[str, ...] = ()
    hyperparameters: Mapping[str, HyperparameterValue] = field(default_factory=dict)


def past_iteration(message: session_pb2.Iteration) -> PastIteration:
    """Return what the revisers use of an iteration."""
    has_judgment = message.HasField("judgment")
    config = next((config for config in message.reward.configs if config.id == message.reward.best_config), None)
    return PastIteration(
        number=message.number,
        source=message.reward.source,
        score=message.judgment.score if has_judgment else None,
        scores={criterion.name: criterion.score for criterion in message.judgment.criteria},
        diagnosis=message.judgment.diagnosis,
        remarks="\n".join(v.comment for v in message.judgment.verdicts if v.kind == session_pb2.JUDGE_KIND_VIDEO),
        judged_by=message.judgment.judged_by,
        failure_tags=tuple(message.judgment.failure_tags),
        planned_change=message.planned_change,
        lesson=message.lesson,
        warnings=tuple(message.warnings),
        hyperparameters={} if config is None else _set_values(config.hyperparameters),
    )


def hyperparameters_message(values: Mapping[str, HyperparameterValue]) -> session_pb2.Hyperparameters | None:
    """Return hyperparameters by name as a message; None for none, which leaves a field unset."""
    return session_pb2.Hyperparameters(**values) if values else None  # type: ignore[arg-type]


def _set_values(message: session_pb2.Hyperparameters) -> dict[str, HyperparameterValue]:
    values: dict[str, HyperparameterValue] = {}
    for descriptor, value in message.ListFields():
        values[descriptor.name] = tuple(value) if descriptor.name == "hidden_sizes" else value
    return values
