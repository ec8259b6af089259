"""What to draw: sizes, window, speed; and which moments of the episode become frames.

Pure arithmetic, so that a bad request is refused before a worker or a simulator is touched.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from dressage.errors import InvalidArgument

MAX_FRAMES = 18_000
"""Longest video: ten minutes at 30 frames per second."""

MAX_WINDOW_SECONDS = 10.0
"""Seconds of the episode that are drawn when no end is given."""

_MIN_SIDE = 64
_MAX_SPEED, _MAX_STILLS = 100.0, 1000
SLACK = 1e-4
"""Seconds within which two moments are the same: recorded times are float32."""


@dataclass(frozen=True)
class View:
    """Size and window of what is drawn, and what both kinds of drawing do with their options.

    :cvar max_side: pixels.
    :cvar max_fps: frames per second.
    :raises InvalidArgument: for a value out of range, naming it. An odd side is raised to the next even number.
    """

    width: int = 480
    height: int = 480
    fps: float = 30.0
    start: float = 0.0
    end: float | None = None
    camera: str = ""
    overlay: bool = True
    max_side: ClassVar[int] = 4096
    max_fps: ClassVar[float] = 240.0

    def __post_init__(self) -> None:
        for name in ("width", "height"):
            value = getattr(self, name)
            if not _MIN_SIDE <= value <= self.max_side:
                raise InvalidArgument(field=name, value=value, expected=f"{_MIN_SIDE} to {self.max_side} pixels")
            object.__setattr__(self, name, value + value % 2)
        if not 0 < self.fps <= self.max_fps:
            raise InvalidArgument(field="fps", value=self.fps, expected=f"above 0 and up to {self.max_fps:g}")
        if not (math.isfinite(self.start) and self.start >= 0):
            raise InvalidArgument(field="start", value=self.start, expected="a second of the episode, 0 or later")
        if self.end is not None and not (math.isfinite(self.end) and self.end > self.start):
            raise InvalidArgument(field="end", value=self.end, expected=f"a second after start ({self.start:g})")

    def to_dict(self) -> dict[str, Any]:
        """The options as JSON-ready data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The options that `to_dict` wrote; unknown names are ignored."""
        return cls(**{field.name: data[field.name] for field in fields(cls) if field.name in data})


@dataclass(frozen=True)
class RenderOptions(View):
    """How a trajectory is drawn.

    :param width: pixels, 64 to 4096; an odd number is raised to the next even one, as H.264 needs it.
    :param height: as ``width``.
    :param fps: frames per second of the video, above 0 and up to 240.
    :param start: first second of the episode to draw.
    :param end: last second; None means the end of the episode, but at most 10 s after ``start``. An end beyond the
        episode's is brought back to it.
    :param speed: playback speed, above 0 and up to 100; 0.5 is slow motion.
    :param camera: name of a camera of the model; empty for one that follows the robot.
    :param overlay: whether time, forward speed and return are written into the picture.
    :param overlay_return: name of the trajectory's field with the reward of each step that the overlay sums; empty for
        the stock reward.
    :param stills: number of single frames to write besides the video, spread evenly over it.
    :raises InvalidArgument: for a value out of range, naming it.
    """

    speed: float = 1.0
    overlay_return: str = ""
    stills: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.speed <= _MAX_SPEED:
            raise InvalidArgument(field="speed", value=self.speed, expected=f"above 0 and up to {_MAX_SPEED:g}")
        if not 0 <= self.stills <= _MAX_STILLS:
            raise InvalidArgument(field="frames", value=self.stills, expected=f"0 to {_MAX_STILLS}")


def frame_times(options: RenderOptions, *, duration: float) -> npt.NDArray[np.float64]:
    """The moments to draw.

    :param duration: seconds that the episode lasts.
    :returns: (F,) seconds of the episode, ascending, at least one, ``speed / fps`` apart.
    :raises InvalidArgument: when the window begins at or after the end of the episode, or has too many frames.
    """
    if options.start > 0 and options.start >= duration - SLACK:
        raise InvalidArgument(
            field="start", value=options.start, expected=f"a second before the episode's end at {duration:.2f} s"
        )
    end = options.start + MAX_WINDOW_SECONDS if options.end is None else options.end
    seconds = max(min(end, duration) - options.start, 0.0)
    count = math.floor(seconds / options.speed * options.fps + 1e-6) + 1
    if count > MAX_FRAMES:
        message = (
            f"the window {options.start:g} to {min(end, duration):g} s at speed {options.speed:g} and {options.fps:g} frames "
            f"per second asks for {count} frames; at most {MAX_FRAMES} are drawn: choose a shorter window or a higher speed"
        )
        raise InvalidArgument(message, field="end", value=options.end, expected=f"at most {MAX_FRAMES} frames")
    times = options.start + np.arange(count, dtype=np.float64) * (options.speed / options.fps)
    clipped: npt.NDArray[np.float64] = np.minimum(times, duration)
    return clipped


def still_indices(frames: int, stills: int) -> list[int]:
    """Which of ``frames`` video frames are written as pictures: ``stills`` of them, evenly from the first to the last."""
    if stills <= 0 or frames <= 0:
        return []
    return sorted({int(index) for index in np.round(np.linspace(0, frames - 1, min(stills, frames)))})
