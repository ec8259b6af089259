"""Chooses the decisive window of an episode, which a vision model sees at a rate that shows motion. Pure.

A window's value is a weighted sum of three parts: how much the joints move in it, whether it contains the moments at which
visual criteria show (the fastest turning, the highest point, …), and the seconds that the code judge's evidence names
(``landing_at_s``). Each part is scaled to 0 to 1 over all windows. Of equal windows the one closest to the middle is chosen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.envs.trajectory import Trajectory

AT_SECONDS = "_at_s"
"""Suffix of evidence that is a second of the episode."""

_WEIGHT_EVIDENCE = 2.0
_WEIGHT_CRITERION = 1.0
_WEIGHT_MOTION = 0.5
_MAX_WINDOWS = 400
_FLAT = 0.05
"""A signal that varies by a smaller share over the windows prefers none."""
_TIE = 1e-6
_HEIGHTS = ("z_position", "height", "torso_height", "head_height")

Signal = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Window:
    """A part of an episode.

    :param start: first second.
    :param end: last second.
    :param reason: why it was chosen, as the end of a sentence; empty for the whole episode.
    """

    start: float
    end: float
    reason: str = ""


def choose(
    trajectory: Trajectory,
    criteria: Sequence[agent_pb.VisualCriterion],
    evidence: Mapping[str, float],
    *,
    seconds: float,
) -> Window:
    """Choose the decisive window; an episode that is not longer than one is a window itself.

    :param evidence: what the code judge measured; empty without a code judge.
    :param seconds: length of the window.
    """
    time = np.asarray(trajectory.time, dtype=np.float64)
    duration = float(time[-1])
    if duration <= seconds + 1e-9:
        return Window(0.0, duration)
    starts = _starts(time, duration - seconds)
    total, reasons = _joint_motion(trajectory, time, starts, seconds), []
    for criterion in criteria:
        values = _moment(criterion.moment, trajectory, time, starts, seconds)
        if values is not None:
            total = total + _WEIGHT_CRITERION * values
            reasons.append((values, f"the moment of “{criterion.title}” ({criterion.moment})"))
    for name, second in sorted(evidence.items()):
        if name.endswith(AT_SECONDS) and math.isfinite(second) and 0 <= second <= duration:
            # 1 in the middle of the window, 0 at its ends and outside; at the episode's ends as close as possible.
            values = np.clip(1 - np.abs(second - starts - seconds / 2) / (seconds / 2), 0.0, 1.0)
            total = total + _WEIGHT_EVIDENCE * _scale(values)
            # Without its name, so that the video judge does not read what the code claims.
            reasons.append((values, f"second {second:.2f}, which a measurement names"))
    best = _best(total, starts, middle=(duration - seconds) / 2)
    named = [text for values, text in reasons if values[best] > 0]
    reason = f"it contains {', '.join(named)}" if named else "the joints move most in it"
    return Window(float(starts[best]), float(starts[best] + seconds), reason)


def _starts(time: Signal, last: float) -> Signal:
    """Starts of windows: recorded times up to the last start, at most `_MAX_WINDOWS`."""
    possible = np.append(time[time < last], last)
    if len(possible) <= _MAX_WINDOWS:
        return np.asarray(possible, dtype=np.float64)
    return np.asarray(possible[np.linspace(0, len(possible) - 1, _MAX_WINDOWS).astype(int)], dtype=np.float64)


def _best(total: Signal, starts: Signal, *, middle: float) -> int:
    equal = np.flatnonzero(total >= total.max() - _TIE)
    return int(equal[np.argmin(np.abs(starts[equal] - middle))])


def _joint_motion(trajectory: Trajectory, time: Signal, starts: Signal, seconds: float) -> Signal:
    """Motion of all joints, each relative to its fastest."""
    return _WEIGHT_MOTION * _scale(_means(_motion(trajectory), time, starts, seconds))


def _moment(name: str, trajectory: Trajectory, time: Signal, starts: Signal, seconds: float) -> Signal | None:
    """How well each window contains a moment, 0 to 1; None for `throughout` and for an episode that lacks it."""
    if name in ("start", "end"):
        away = np.abs(starts - starts[-1 if name == "end" else 0])
        return np.asarray(np.clip(1 - away / seconds, 0.0, 1.0))
    signal = _signal(name, trajectory)
    if signal is None:
        return None
    means = _means(signal, time, starts, seconds)
    first, last = _places(time, starts, seconds)
    peaks = np.array([signal[a : b + 1].max() for a, b in zip(first, last, strict=True)])
    # The mean moves the window around the peak, so that the frames before and after it are seen as well.
    return (_scale(peaks) + _scale(means)) / 2


def _signal(name: str, trajectory: Trajectory) -> Signal | None:
    match name:
        case "fastest":
            return _norm(trajectory, ("x_velocity", "y_velocity"))
        case "turning":
            return _norm(trajectory, ("roll_velocity", "pitch_velocity", "yaw_velocity"))
        case "highest":
            return _height(trajectory)
        case "lowest":
            height = _height(trajectory)
            return None if height is None else -height
    return None


def _norm(trajectory: Trajectory, names: Sequence[str]) -> Signal | None:
    columns = [np.asarray(trajectory.fields[name], dtype=np.float64) for name in names if name in trajectory.fields]
    return np.asarray(np.sqrt(np.sum(np.square(columns), axis=0))) if columns else _motion(trajectory)


def _height(trajectory: Trajectory) -> Signal | None:
    height: Any = next((trajectory.fields[name] for name in _HEIGHTS if name in trajectory.fields), None)
    return None if height is None else np.asarray(height, dtype=np.float64)


def _motion(trajectory: Trajectory) -> Signal:
    """(T+1,) mean over the joints of the squared velocity, each relative to its largest."""
    velocity = np.abs(np.asarray(trajectory.qvel, dtype=np.float64))
    if velocity.ndim != 2 or velocity.shape[1] == 0:
        return np.zeros(len(np.asarray(trajectory.time)))
    largest = velocity.max(axis=0)
    motion: Signal = np.square(velocity / np.where(largest > 0, largest, 1.0)).mean(axis=1)
    return motion


def _places(time: Signal, starts: Signal, seconds: float) -> tuple[Any, Any]:
    """Indices of the first and the last state of each window."""
    first = np.searchsorted(time, starts - 1e-9)
    last = np.searchsorted(time, starts + seconds + 1e-9, side="right") - 1
    return first, np.maximum(last, first)


def _means(signal: Signal, time: Signal, starts: Signal, seconds: float) -> Signal:
    sums = np.concatenate([[0.0], np.cumsum(signal)])
    first, last = _places(time, starts, seconds)
    means: Signal = (sums[last + 1] - sums[first]) / (last + 1 - first)
    return means


def _scale(values: Signal) -> Signal:
    """Values scaled to 0 to 1; zeros if they vary little."""
    low, high = float(values.min()), float(values.max())
    if high - low <= _FLAT * max(abs(low), abs(high)) or high == low:
        return np.zeros(len(values))
    scaled: Signal = (values - low) / (high - low)
    return scaled
