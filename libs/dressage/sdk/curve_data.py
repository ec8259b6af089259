"""The curves of a training: returns and scores over environment steps, combined over the seeds of a config.

A row of ``metrics.jsonl`` repeats the mean of the last episodes until another episode ends. Only rows in which an episode has
ended are points, so that a curve has no steps where episodes end together.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dressage.api.v1 import session_pb2 as pb

_POINTS = 200

Array = NDArray[np.float64]
Rows = tuple[Array, Array]
"""Steps and values of one member."""


@dataclass(frozen=True)
class Curve:
    """One config's values over its seeds, on common steps."""

    steps: Array
    mean: Array
    deviation: Array
    """Standard deviation over seeds; 0 for one seed."""
    seeds: int


@dataclass(frozen=True)
class Returns:
    """The curves of one config; each may be missing."""

    training: Curve | None = None
    """Returns under the proposed reward; so is `evaluation`."""
    evaluation: Curve | None = None
    stock_training: Curve | None = None
    """Returns under the environment's reward; so is `stock_evaluation`."""
    stock_evaluation: Curve | None = None
    score: Curve | None = None
    """Scores of the judge."""


def read_rows(text: str, name: str = "episode_return") -> Rows:
    """Return steps and values of one member where an episode has ended; incomplete lines are skipped.

    :param name: of the metric.
    """
    points, ended = [], None
    for line in text.splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        step, value, count = row.get("step"), row.get(name), row.get("episodes")
        if count is not None and count == ended:
            continue
        ended = count
        if isinstance(step, int | float) and isinstance(value, int | float):
            points.append((float(step), float(value)))
    table = np.array(points, dtype=np.float64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def combine(members: Sequence[Rows]) -> Curve | None:
    """Return mean and deviation over seeds, at steps where all of them have points; None if there are none."""
    drawn = [(steps, values) for steps, values in members if len(steps)]
    if not drawn:
        return None
    first, last = max(steps[0] for steps, _ in drawn), min(steps[-1] for steps, _ in drawn)
    if first > last:
        return None
    grid = np.linspace(first, last, _POINTS if last > first else 1)
    return _over_seeds(grid, np.stack([np.interp(grid, steps, returns) for steps, returns in drawn]))


def proposed_returns(evaluation: pb.Evaluation) -> Sequence[float]:
    """Return the returns of an evaluation under the proposed reward."""
    return evaluation.proposed_returns


def stock_returns(evaluation: pb.Evaluation) -> Sequence[float]:
    """Return the returns of an evaluation under the environment's reward."""
    return evaluation.returns


def scores(evaluation: pb.Evaluation) -> Sequence[float]:
    """Return the scores of the judged rollouts of an evaluation."""
    return [rollout.judgment.score for rollout in evaluation.rollouts if rollout.HasField("judgment")]


def combine_evaluations(
    members: Sequence[pb.Member], values: Callable[[pb.Evaluation], Sequence[float]] = proposed_returns
) -> Curve | None:
    """Return mean and deviation over seeds of the mean value of evaluations, at the steps that all evaluated members have.

    :param values: of an evaluation; one without values is left out.
    :return: None if there are none.
    """
    returns = [{e.env_step: float(np.mean(values(e))) for e in m.evaluations if len(values(e))} for m in members]
    evaluated = [by_step for by_step in returns if by_step]
    steps = sorted(set.intersection(*(set(by_step) for by_step in evaluated))) if evaluated else []
    if not steps:
        return None
    table = np.array([[by_step[step] for step in steps] for by_step in evaluated])
    return _over_seeds(np.array(steps, dtype=np.float64), table)


def _over_seeds(steps: Array, values: Array) -> Curve:
    """Return the curve of (seeds, steps) values."""
    return Curve(steps, values.mean(axis=0), values.std(axis=0, ddof=int(len(values) > 1)), len(values))
