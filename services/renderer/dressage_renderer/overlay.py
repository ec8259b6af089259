"""The overlay of time, forward speed and return: a dark strip along the top edge of a frame.

Only the strip changes, and each distinct text is drawn once, so that the overlay takes well under a millisecond a frame.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from dressage.envs.trajectory import Trajectory
from dressage.errors import InvalidArgument
from PIL import Image, ImageDraw, ImageFont

from dressage_renderer.options import SLACK

Frame = npt.NDArray[np.uint8]
Series = npt.NDArray[np.float64]

_SPEED_WINDOW = 0.2
"""Window in seconds of the displayed mean speed: the raw velocity changes too fast to read."""

_HEIGHTS = ("height", "z_position", "torso_height")
_DIM_BITS = 2
"""The strip has a quarter of the frame's brightness, as a background for white text."""


@dataclass(frozen=True)
class Readings:
    """The values of the overlay, for each state of the trajectory.

    :param time: (T+1,) s.
    :param speed: (T+1,) m/s, mean over the last 0.2 s; None if the environment has no forward speed.
    :param total: (T+1,) sum of the reward up to that state; None: not displayed.
    :param height: (T+1,) m; None: not displayed.
    """

    time: Series
    speed: Series | None
    total: Series | None
    height: Series | None = None

    def text(self, moment: float) -> list[str]:
        """Return the texts at a time in seconds, from left to right."""
        at = min(int(np.searchsorted(self.time, moment + SLACK, side="right")) - 1, len(self.time) - 1)
        parts = [f"{moment:.2f} s"]
        if self.speed is not None:
            parts.append(f"{self.speed[at] + 0.0:.2f} m/s")
        if self.height is not None:
            parts.append(f"height {self.height[at] + 0.0:.2f} m")
        return parts if self.total is None else [*parts, f"return {self.total[at]:.1f}"]


def readings(trajectory: Trajectory, *, term: str = "", state_only: bool = False) -> Readings:
    """Return the overlay's values of a trajectory.

    :param term: field with a reward per step; empty for the environment's reward.
    :param state_only: display the height instead of the return, which would influence a judge.
    :raises InvalidArgument: if the trajectory has no such field with one number per step.
    """
    time = np.asarray(trajectory.time, dtype=np.float64)
    steps = len(time) - 1
    total = None if state_only else np.concatenate([[0.0], np.cumsum(_rewards(trajectory, term, steps))])
    velocity = trajectory.fields.get("x_velocity")
    speed = None if velocity is None else _trailing_mean(np.asarray(velocity, dtype=np.float64), time)
    raised = next((trajectory.fields[name] for name in _HEIGHTS if name in trajectory.fields), None)
    height = np.asarray(raised, dtype=np.float64) if state_only and raised is not None and raised.ndim == 1 else None
    return Readings(time, speed, total, height)


def _rewards(trajectory: Trajectory, term: str, steps: int) -> Series:
    if not term:
        return np.asarray(trajectory.reward, dtype=np.float64)
    values = trajectory.fields.get(term)
    if values is None or values.ndim != 1:
        scalars = sorted(name for name, column in trajectory.fields.items() if column.ndim == 1)
        raise InvalidArgument(
            field="overlay_return", value=term, expected=f"one of the fields {', '.join(scalars)}, or empty"
        )
    return np.asarray(values, dtype=np.float64)[-steps:] if steps else np.zeros(0)


def _trailing_mean(values: Series, time: Series) -> Series:
    sums = np.concatenate([[0.0], np.cumsum(values)])
    first = np.searchsorted(time, time - _SPEED_WINDOW + SLACK, side="right")
    last = np.arange(len(values)) + 1
    mean: Series = (sums[last] - sums[first]) / (last - first)
    return mean


class Overlay:
    """Draws values into frames of one size."""

    def __init__(self, numbers: Readings, *, width: int, height: int) -> None:
        self._numbers = numbers
        size = max(11, round(min(height, width) / 22))
        self._width = width
        self._strip = min(round(size * 1.7), height)
        self._font = ImageFont.load_default(size=size)
        self._cached: tuple[list[str], Frame] | None = None

    def draw(self, frame: Frame, moment: float) -> None:
        """Draw the values at a time in seconds into ``frame`` (H, W, 3), in place."""
        texts = self._numbers.text(moment)
        if self._cached is None or self._cached[0] != texts:
            self._cached = (texts, self._mask(texts))
        strip = frame[: self._strip]
        np.right_shift(strip, _DIM_BITS, out=strip)
        np.maximum(strip, self._cached[1], out=strip)

    def _mask(self, texts: list[str]) -> Frame:
        image = Image.new("L", (self._width, self._strip))
        pen = ImageDraw.Draw(image)
        # Columns are fixed, so that texts do not move when the width of another one changes.
        margin = self._strip // 3
        column = (self._width - 2 * margin) / len(texts)
        for place, text in enumerate(texts):
            pen.text((margin + place * column, self._strip / 2), text, fill=255, font=self._font, anchor="lm")
        return np.repeat(np.asarray(image)[:, :, None], 3, axis=2)
