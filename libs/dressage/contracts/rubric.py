"""The rubric that maps statuses to scores and combines two verdicts.

The video judge rates each criterion as met, partly met, not met or unknown; it never gives a number. The numbers are fixed here
and are the same for every model, session and judge. Unknown has no number: what the frames do not show does not change a score.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Literal

Status = Literal["met", "partly", "not_met", "unknown"]

UNKNOWN = "unknown"
"""Status of a criterion that the frames do not decide."""

STATUS_SCORES: Mapping[str, float] = MappingProxyType({"met": 1.0, "partly": 0.5, "not_met": 0.0})
"""Score of each status that has one."""

STATUSES = (*STATUS_SCORES, UNKNOWN)

CODE_WEIGHT, VIDEO_WEIGHT = 0.6, 0.4
"""Weights of the two judges. Measured numbers count more than pictures, of which a model sees a few a second."""

AGREEMENT = 0.2
"""Largest difference of two verdicts that agree."""

_SLACK = 1e-9


def agree(code: float, video: float) -> bool:
    """Return whether two scores agree."""
    return abs(code - video) <= AGREEMENT + _SLACK


def weighted_mean(code: float, video: float) -> float:
    """Return the weighted mean of two scores."""
    return CODE_WEIGHT * code + VIDEO_WEIGHT * video


def status_mean(statuses: Iterable[str]) -> float | None:
    """Return the mean score of the statuses that are not unknown; None if there are none.

    :raises KeyError: for an unknown status.
    """
    values = [STATUS_SCORES[status] for status in statuses if status != UNKNOWN]
    return sum(values) / len(values) if values else None


def mean_score(code: float | None, video: float | None) -> float | None:
    """Return the weighted mean of two scores, the known one if the other is None, and None without any."""
    if code is None or video is None:
        return video if code is None else code
    return weighted_mean(code, video)
