"""Dynamic checks of a loaded reward on recorded transitions. Call it only inside a sandbox.

Each check compares the reward with itself: run twice, row by row, in another order, after a reset. The meaning of a
reward is not checked here; judges do that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from dressage.contracts.failures import CheckFailure, RewardError
from dressage.contracts.reward import BatchReward, RewardModule
from dressage.contracts.transitions import Float, Segments, cut_segments, evaluate, whole_episodes
from dressage.envs.cards import EnvironmentCard
from dressage.envs.trajectory import Trajectory

SEGMENT_STEPS = 12
SEGMENT_ROWS = 37  # a prime, so that no shape of a field equals the batch size
LONE_ROWS = 6
TIMED_ROWS = 1000
_RELATIVE, _ABSOLUTE = 1e-6, 1e-9


def probe_reward(
    module: RewardModule,
    card: EnvironmentCard,
    trajectories: Sequence[Trajectory],
    *,
    budget: dict[str, float],
) -> tuple[list[CheckFailure], float]:
    """Run every dynamic check.

    :param budget: milliseconds allowed per call on 1000 rows, by style.
    :returns: the failures, and the measured milliseconds per call on 1000 rows (0 if it was not measured).
    """
    segments = cut_segments(trajectories, card, length=SEGMENT_STEPS, limit=SEGMENT_ROWS)
    try:
        terms = evaluate(module, card, segments)
        evaluate(module, card, whole_episodes(trajectories, card))
    except RewardError as error:
        return [error.failure], 0.0
    failures = []
    checks: tuple[Callable[[RewardModule, EnvironmentCard, Segments, Float], CheckFailure | None], ...] = (
        _deterministic,
        _rows_alone,
        _check_row_order,
        _reset_by_row,
    )
    for check in checks:
        try:
            failure = check(module, card, segments, terms)
        except RewardError as error:
            failure = error.failure
        if failure is not None:
            failures.append(failure)
    milliseconds = _milliseconds(module, card, segments)
    allowed = budget[module.style]
    if milliseconds > allowed:
        message = (
            f"the reward is too slow; it may take {allowed:g} ms per 1000 rows. Use array operations without loops."
        )
        failures.append(CheckFailure("time_budget", 0, message, f"{milliseconds:.1f} ms per 1000 rows"))
    return failures, milliseconds


def _differ(a: Float, b: Float) -> bool:
    return not np.allclose(a, b, rtol=_RELATIVE, atol=_ABSOLUTE)


def _first_difference(module: RewardModule, expected: Float, got: Float) -> tuple[str, int, str]:
    apart = ~np.isclose(expected, got, rtol=_RELATIVE, atol=_ABSOLUTE)
    if not apart.any():
        apart = expected != got
    step, term, row = (int(indices[0]) for indices in np.nonzero(apart))
    name = list(module.terms)[term]
    seen = f"term {name}, step {step}: {expected[step, term, row]:.9g} against {got[step, term, row]:.9g}"
    return name, module.lines.get(name, 0), seen


def _deterministic(
    module: RewardModule, card: EnvironmentCard, segments: Segments, terms: Float
) -> CheckFailure | None:
    again = evaluate(module, card, segments)
    if np.array_equal(again, terms):
        return None
    _, line, seen = _first_difference(module, terms, again)
    message = "the same inputs gave another result; keep state in memory only and use no outside state."
    return CheckFailure("deterministic", line, message, seen)


def _rows_alone(module: RewardModule, card: EnvironmentCard, segments: Segments, terms: Float) -> CheckFailure | None:
    chosen = np.unique(np.linspace(0, segments.rows - 1, LONE_ROWS).astype(int))
    alone = np.concatenate([evaluate(module, card, segments.select([row])) for row in chosen], axis=2)
    expected = terms[:, :, chosen]
    if not _differ(alone, expected):
        return None
    _, line, seen = _first_difference(module, expected, alone)
    message = (
        "an environment's reward depends on the other rows of the batch; reduce over the last axis (axis=-1), "
        "never over the first."
    )
    return CheckFailure("row-independence", line, message, f"in the batch and alone: {seen}")


def _check_row_order(
    module: RewardModule, card: EnvironmentCard, segments: Segments, terms: Float
) -> CheckFailure | None:
    order = np.random.default_rng(0).permutation(segments.rows)
    permuted = evaluate(module, card, segments.select(order))
    expected = terms[:, :, order]
    if not _differ(permuted, expected):
        return None
    _, line, seen = _first_difference(module, expected, permuted)
    message = "permuting the environments does not permute the rewards; treat every row alike."
    return CheckFailure("row-independence", line, message, seen)


def _reset_by_row(module: RewardModule, card: EnvironmentCard, segments: Segments, terms: Float) -> CheckFailure | None:
    """Run, reset every other row, run again: the reset rows must start again, the others must continue unchanged."""
    mask = np.arange(segments.rows) % 2 == 0
    reward, unreset = (BatchReward(module, card, segments.rows) for _ in range(2))
    evaluate(module, card, segments, reward)
    evaluate(module, card, segments, unreset)
    reward.reset(mask)
    after, continued = evaluate(module, card, segments, reward), evaluate(module, card, segments, unreset)
    expected = np.where(mask, terms, continued)
    if not _differ(after, expected):
        return None
    _, line, seen = _first_difference(module, expected, after)
    message = "an episode's memory does not start anew with the episode; keep state in memory (or on self) only."
    return CheckFailure("memory-reset", line, message, seen)


def _milliseconds(module: RewardModule, card: EnvironmentCard, segments: Segments) -> float:
    rows = np.arange(TIMED_ROWS) % segments.rows
    wide = segments.select(rows)
    reward = BatchReward(module, card, TIMED_ROWS)
    best = float("inf")
    for step in range(min(6, wide.steps)):
        fresh = wide.at(step), wide.at(step + 1)
        begin = time.perf_counter()
        reward(fresh[0], wide.action[step], fresh[1])
        best = min(best, time.perf_counter() - begin)
    return best * 1e3
