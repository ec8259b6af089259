"""Evaluates rewards on recorded transitions. Call it only inside a sandbox: it runs generated code."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dressage.contracts.failures import RewardError
from dressage.contracts.reward import BatchReward, RewardModule
from dressage.contracts.segments import Float, Segments
from dressage.envs.cards import EnvironmentCard


def evaluate(
    module: RewardModule, card: EnvironmentCard, segments: Segments, reward: BatchReward | None = None
) -> Float:
    """Return the terms (L, K, R) of a reward over segments, from fresh memory unless ``reward`` is given.

    The reward is called for the steps of each row only; past the end of a row, its terms are 0.

    :param reward: a reward whose memory is continued; requires rows of equal length.
    :raises RewardError: with the row, if the error concerns one row, and the step as part of ``seen``.
    """
    reward = reward or BatchReward(module, card, segments.rows)
    results = np.zeros((segments.steps, len(module.terms), segments.rows))
    # The longest first: the rows still running are then a prefix, which needs no copy at each step.
    order = np.argsort(-segments.lengths, kind="stable")
    if (np.diff(order) < 0).any():
        segments = segments.select(order)
    running, after = segments.rows, segments.at(0)
    for step in range(segments.steps):
        if segments.lengths[running - 1] <= step:
            running = int(np.count_nonzero(segments.lengths > step))
            reward.keep(running)
            after = segments.at(step, running)
        before, after = after, segments.at(step + 1, running)
        try:
            terms = reward(before, segments.action[step, :running], after).terms
        except RewardError as error:
            raise _with_step(error, step, order) from error
        results[step][:, order[:running]] = list(terms.values())
    return results


def _with_step(error: RewardError, step: int, order: NDArray[np.int64]) -> RewardError:
    """Return the error with the step, and with the row in the order of the caller."""
    row = None if error.row is None else int(order[error.row])
    seen = f"{error.seen} at step {step}".lstrip()
    return RewardError(error.rule, error.failure.message, line=error.line, seen=seen, term=error.term, row=row)
