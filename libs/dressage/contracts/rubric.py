"""The fixed rubric by which words become scores and two verdicts become one (DESIGN §7).

A model that looks at video says of each criterion whether it is met, partly met or not met; it never gives a number. What the
numbers are is settled here, the same for every model, session and judge.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Literal

Status = Literal["met", "partly", "not_met"]

STATUS_SCORES: Mapping[str, float] = MappingProxyType({"met": 1.0, "partly": 0.5, "not_met": 0.0})
"""What a status counts."""

CODE_WEIGHT, VIDEO_WEIGHT = 0.6, 0.4
"""Weights of the two judges; measured numbers count more than pictures, of which a model sees a few a second."""

AGREEMENT = 0.2
"""Two verdicts that differ by no more than this agree."""

_SLACK = 1e-9


def agree(code: float, video: float) -> bool:
    """Whether two scores agree."""
    return abs(code - video) <= AGREEMENT + _SLACK


def weighted(code: float, video: float) -> float:
    """The score of two verdicts; between them, and between 0 and 1 if both are."""
    return CODE_WEIGHT * code + VIDEO_WEIGHT * video


def status_mean(statuses: Iterable[str]) -> float:
    """Mean of what the statuses count; 0 for none.

    :raises KeyError: for a status that there is not.
    """
    values = [STATUS_SCORES[status] for status in statuses]
    return sum(values) / len(values) if values else 0.0
