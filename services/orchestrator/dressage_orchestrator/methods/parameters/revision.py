"""The revision rule: what a critic may change from the revision threshold (tau_c) on. Pure."""

from __future__ import annotations

import numpy as np

from dressage_orchestrator.methods.parameters.form import Values

SKIPPED = "skipped"
BOUNDED = "bounded"


def limits(score: float, threshold: float | None) -> bool:
    """Whether the rule applies to a candidate with this mean return."""
    return threshold is not None and score >= threshold


def bounded(before: Values, after: Values, *, step_size: float, choices: int) -> Values:
    """Return the revision, changed as little as needed to be within the bound.

    Real parameters change by at most ``step_size`` each. Of a table, only the first changed entry changes.

    :param choices: number of values of each parameter; 0 for real numbers.
    """
    if choices:
        first = next((index for index, pair in enumerate(zip(before, after, strict=True)) if pair[0] != pair[1]), None)
        return tuple(after[index] if index == first else value for index, value in enumerate(before))
    start = np.asarray(before, np.float64)
    return tuple(np.clip(np.asarray(after, np.float64), start - step_size, start + step_size).tolist())
