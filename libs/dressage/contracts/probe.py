"""The verdict on a reward, from what it returned on recorded transitions (`dressage.contracts.evidence`).

Each check compares the reward with itself: run twice, row by row, in another order, after a reset, by modules that were never
called before. The meaning of a reward is not checked here; judges do that. Only arrays are read, so that this runs on the
trusted side.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dressage.contracts.failures import CheckFailure, RewardError, reported_error
from dressage.contracts.segments import Float, Segments, cut_segments
from dressage.envs.cards import EnvironmentCard
from dressage.envs.trajectory import Trajectory

SEGMENT_STEPS = 12
SEGMENT_ROWS = 37  # a prime, so that no shape of a field equals the batch size
LONE_ROWS = 6
TIMED_ROWS = 1000
_RELATIVE, _ABSOLUTE = 1e-6, 1e-9


def segments_of(trajectories: Sequence[Trajectory], card: EnvironmentCard) -> Segments:
    """Return the pieces of episodes that a reward is run on."""
    return cut_segments(trajectories, card, length=SEGMENT_STEPS, limit=SEGMENT_ROWS)


def lone_rows(count: int) -> NDArray[np.int64]:
    """Return the rows, of ``count``, that are also run alone."""
    return np.unique(np.linspace(0, count - 1, LONE_ROWS).astype(np.int64))


def permutation(count: int) -> NDArray[np.int64]:
    """Return the order in which all rows are also run."""
    return np.random.default_rng(0).permutation(count)


def reset_mask(count: int) -> NDArray[np.bool_]:
    """Return the rows that are reset."""
    return np.asarray(np.arange(count) % 2 == 0)


@dataclass(frozen=True)
class Declaration:
    """What a reward declares; with `probe_reward` it makes the report."""

    style: str
    latex: str
    terms: Mapping[str, str]
    lines: Mapping[str, int]
    """Line that computes each term, where it is known."""


class MalformedReply(ValueError):
    """The values that a sandboxed process sent are not those of a run."""


def probe_reward(
    runs: Mapping[str, Any], declared: Declaration, card: EnvironmentCard, trajectories: Sequence[Trajectory]
) -> Iterator[CheckFailure]:
    """Yield what is wrong with a reward.

    :param runs: of `evidence.reward_evidence`: arrays (steps, terms, rows), or failures.
    :raises MalformedReply: they are of another form, or not finite.
    """
    segments = segments_of(trajectories, card)
    count = len(declared.terms)
    whole = max(trajectory.num_steps for trajectory in trajectories), count, len(trajectories)
    shape, lone = (segments.steps, count, segments.rows), lone_rows(segments.rows)
    for name in ("first", "whole"):
        if (failure := _failure(runs, name)) is not None:
            yield failure
            return
    first, episodes = _array(runs["first"], shape), _array(runs["whole"], whole)
    expected = {"again": first, "alone": first[:, :, lone], "permuted": first[:, :, permutation(segments.rows)]}
    for name, terms in expected.items():
        if (failure := _failure(runs, name)) is not None:
            yield failure
        elif (apart := _compare(name, terms, _array(runs[name], terms.shape), declared)) is not None:
            yield apart
    if (failure := _failure(runs, "reset")) is not None:
        yield failure
    else:
        after, continued = (_array(part, shape) for part in _pair(runs["reset"]))
        mixed = np.where(reset_mask(segments.rows), first, continued)
        if (apart := _compare("reset", mixed, after, declared)) is not None:
            yield apart
    if declared.style == "vectorised":
        yield from _check_fresh(runs, episodes, declared)


def _check_fresh(runs: Mapping[str, Any], episodes: Float, declared: Declaration) -> Iterator[CheckFailure]:
    if (failure := _failure(runs, "fresh")) is not None:
        yield failure
        return
    fresh = _array(runs["fresh"], (None, *episodes.shape[1:]))
    if not 1 <= len(fresh) <= len(episodes):
        raise MalformedReply(f"{len(fresh)} steps of {len(episodes)}")
    if (apart := _compare("fresh", episodes[: len(fresh)], fresh, declared)) is not None:
        yield apart


_MESSAGES = {
    "again": (
        "deterministic",
        "the same inputs gave another result; keep state in memory only and use no outside state.",
    ),
    "alone": (
        "row-independence",
        "an environment's reward depends on the other rows of the batch; reduce over the last axis (axis=-1), "
        "never over the first.",
    ),
    "permuted": ("row-independence", "permuting the environments does not permute the rewards; treat every row alike."),
    "reset": (
        "memory-reset",
        "an episode's memory does not start anew with the episode; keep state in memory (or on self) only.",
    ),
    "fresh": (
        "deterministic",
        "the result depends on earlier calls; keep state in memory only, never in lists or functions of the module.",
    ),
}
_EXACT = frozenset({"again", "fresh"})


def _compare(name: str, expected: Float, got: Float, declared: Declaration) -> CheckFailure | None:
    close = np.allclose(got, expected, rtol=_RELATIVE, atol=_ABSOLUTE)
    if close and (name not in _EXACT or np.array_equal(expected, got)):
        return None
    apart = ~np.isclose(expected, got, rtol=_RELATIVE, atol=_ABSOLUTE)
    if not apart.any():
        apart = expected != got
    step, term, row = (int(indices[0]) for indices in np.nonzero(apart))
    title = list(declared.terms)[term]
    seen = f"term {title}, step {step}: {expected[step, term, row]:.9g} against {got[step, term, row]:.9g}"
    rule, message = _MESSAGES[name]
    return CheckFailure(
        rule, declared.lines.get(title, 0), message, f"in the batch and alone: {seen}" if name == "alone" else seen
    )


def _failure(runs: Mapping[str, Any], name: str) -> CheckFailure | None:
    run = runs.get(name)
    return reported_error(run, RewardError).failure if isinstance(run, dict) else None


def _pair(value: Any) -> list[Any]:
    if not isinstance(value, list) or len(value) != 2:
        raise MalformedReply("not the two runs of a reset")
    return value


def _array(value: Any, shape: tuple[int | None, ...]) -> Float:
    if not isinstance(value, np.ndarray) or value.dtype != np.float64 or value.ndim != len(shape):
        raise MalformedReply(f"not an array of {len(shape)} axes")
    if any(size not in (None, extent) for size, extent in zip(shape, value.shape, strict=True)):
        raise MalformedReply(f"an array of shape {value.shape}")
    if not np.isfinite(value).all():
        raise MalformedReply("an array that is not finite")
    return value


def limit_duration(value: Any, most: float) -> float:
    """Return a duration that a process measured, at most as long as the wait for it."""
    return float(value) if isinstance(value, (int, float)) and 0 <= value <= most and math.isfinite(value) else most
