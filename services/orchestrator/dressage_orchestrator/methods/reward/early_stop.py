"""When a training ends early: every seed passes with a margin at two successive checkpoints. Pure.

The decision looks at the checkpoints from the first on, so that it does not depend on when it is made: a late one chooses the
checkpoint that a prompt one would have chosen. It needs the judgments of all seeds up to there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dressage.api.v1 import session_pb2 as v1

from dressage_orchestrator.lifecycle import aggregate
from dressage_orchestrator.lifecycle.checkpoint_judging import EarlyEnd

MARGIN = 0.1
"""Required above the pass threshold, at most half of the distance from the threshold to 1."""


def required_score(threshold: float) -> float:
    """Return the score that each checkpoint of each seed must reach."""
    return threshold + min(MARGIN, (1.0 - threshold) / 2)


def decide(
    members: Sequence[v1.Member], *, threshold: float, marks: int, number: Callable[[int], int]
) -> EarlyEnd | None:
    """Return how the training ends; None if it continues.

    :param members: the training's members with the judgments so far.
    :param marks: number of evaluations before the last one.
    :param number: returns the number of the last mark that a step has reached, from 1.
    """
    required, scores = required_score(threshold), [_scores(member, marks, number) for member in members]
    if not scores or any(member.HasField("failure") for member in members):
        return None
    for mark in range(1, marks):
        at = [(seed.get(mark), seed.get(mark + 1)) for seed in scores]
        if any(first is None or second is None for first, second in at):
            return None
        pairs = [(first, second) for first, second in at if first is not None and second is not None]
        lowest = min(min(first[1], second[1]) for first, second in pairs)
        if lowest >= required:
            steps = {m.name.rpartition("/")[2]: second[0] for m, (_, second) in zip(members, pairs, strict=True)}
            decision = v1.EarlyStop(score=lowest, required_score=required, reason=v1.STOP_REASON_PASSES_EARLY)
            return EarlyEnd(steps, decision)
    return None


def _scores(member: v1.Member, marks: int, number: Callable[[int], int]) -> dict[int, tuple[int, float]]:
    """Return steps and score of a member's judged checkpoints, by the number of their mark, from 1."""
    scores = {}
    for evaluation in member.evaluations:
        score = aggregate.checkpoint_score(evaluation)
        if score is not None and number(evaluation.env_step) <= marks:
            scores[number(evaluation.env_step)] = (evaluation.env_step, score)
    return scores
