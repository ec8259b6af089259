"""Options of a video and of sampled frames for a vision model (size, window, speed), and the times of the frames.

This module only computes, so that a bad request is refused before a worker or a simulator is involved.
"""

from __future__ import annotations

import hashlib
import json
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
"""Duration of the window in seconds if the options have no end."""

PER_PAGE = 16
"""Frames of a page: four by four of 320 pixels are smaller than the size above which providers scale images (1568 pixels)."""

_MAX_SAMPLES = 256
_VERSION = 1
_MIN_SIDE = 64
_MAX_SPEED, _MAX_STILLS = 100.0, 1000
SLACK = 1e-4
"""Tolerance in seconds of comparisons of times: recorded times are float32."""


@dataclass(frozen=True)
class View:
    """Size and window of frames: the options that videos and sampled frames share.

    :cvar max_side: pixels.
    :cvar max_fps: frames per second.
    :raises InvalidArgument: for a value out of range, with its name. An odd side becomes the next even number.
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

    def check_start(self, duration: float) -> None:
        """Refuse a window that begins at or after the end of an episode.

        :raises InvalidArgument: naming the start.
        """
        if self.start > 0 and self.start >= duration - SLACK:
            expected = f"a second before the episode's end at {duration:.2f} s"
            raise InvalidArgument(field="start", value=self.start, expected=expected)

    def to_dict(self) -> dict[str, Any]:
        """Return the options as JSON-ready data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the options from the output of `to_dict`; unknown names are ignored."""
        return cls(**{field.name: data[field.name] for field in fields(cls) if field.name in data})


@dataclass(frozen=True)
class RenderOptions(View):
    """Options of a video.

    :param width: pixels, 64 to 4096; an odd number becomes the next even one, which H.264 requires.
    :param height: as ``width``.
    :param fps: frames per second of the video, above 0 and up to 240.
    :param start: first second of the window.
    :param end: last second of the window; None means the end of the episode, but at most 10 s after ``start``. A later end
        is clipped to that of the episode.
    :param speed: playback speed, above 0 and up to 100; 0.5 is slow motion.
    :param camera: name of a camera of the model; empty for one that follows the robot.
    :param overlay: whether the video displays time, forward speed and return.
    :param overlay_return: field of the trajectory with the reward of each step, whose sum the overlay displays; empty for the
        environment's reward.
    :param stills: number of single frames, spread evenly over the video, that are also written.
    :raises InvalidArgument: for a value out of range, with its name.
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
    """Return the times of a video's frames.

    :param duration: duration of the episode in seconds.
    :return: (F,) seconds of the episode, ascending, at least one, ``speed / fps`` apart.
    :raises InvalidArgument: if the window begins at or after the end of the episode, or has too many frames.
    """
    options.check_start(duration)
    end = options.start + MAX_WINDOW_SECONDS if options.end is None else options.end
    seconds = max(min(end, duration) - options.start, 0.0)
    count = math.floor(seconds / options.speed * options.fps + 1e-6) + 1
    if count > MAX_FRAMES:
        message = (
            f"end: the window {options.start:g} to {min(end, duration):g} s at speed {options.speed:g} and {options.fps:g} "
            f"frames per second has {count} frames; expected at most {MAX_FRAMES}. Use a shorter window or a higher speed"
        )
        raise InvalidArgument(message, field="end", value=options.end, expected=f"at most {MAX_FRAMES} frames")
    times = options.start + np.arange(count, dtype=np.float64) * (options.speed / options.fps)
    clipped: npt.NDArray[np.float64] = np.minimum(times, duration)
    return clipped


def still_indices(frames: int, stills: int) -> list[int]:
    """Return the indices of ``stills`` frames, spread evenly over ``frames`` video frames."""
    if stills <= 0 or frames <= 0:
        return []
    return sorted({int(index) for index in np.round(np.linspace(0, frames - 1, min(stills, frames)))})


@dataclass(frozen=True)
class SamplingOptions(View):
    """Options of sampled frames.

    :param fps: frames per second, above 0 and up to 60.
    :param start: first second of the window.
    :param end: last second of the window; None, or a later second, means the end of the episode.
    :param max_frames: maximum number of frames, 1 to 256; a longer sampling is spread evenly over the window.
    :param width: pixels of a frame, 64 to 1024; an odd number becomes the next even one.
    :param camera: name of a camera of the model; empty for one that follows the robot.
    :param overlay: whether the frames display time and state.
    :param motion_trail: whether each frame also shows pale copies of the robot at earlier times.
    :param pages: whether to write pages of numbered frames.
    :param clip: whether to write a clip of the frames.
    :param first_number: number of the first frame on the pages.
    :raises InvalidArgument: for a value out of range, with its name.
    """

    width: int = 320
    height: int = 320
    fps: float = 10.0
    max_frames: int = 32
    motion_trail: bool = False
    pages: bool = True
    clip: bool = False
    first_number: int = 1
    max_side: ClassVar[int] = 1024
    max_fps: ClassVar[float] = 60.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.max_frames <= _MAX_SAMPLES:
            raise InvalidArgument(field="max_frames", value=self.max_frames, expected=f"1 to {_MAX_SAMPLES}")

    def fingerprint(self) -> str:
        """Return a hash of the options, which identifies frames with the same sampling."""
        text = json.dumps({"version": _VERSION, **self.to_dict()}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


def sample_times(options: SamplingOptions, *, duration: float) -> npt.NDArray[np.float64]:
    """Return the times of the frames: at the sampling rate from the start on, or spread evenly if those are too many.

    :param duration: duration of the episode in seconds.
    :return: (F,) seconds of the episode, ascending, 1 to ``max_frames``.
    :raises InvalidArgument: if the window begins at or after the end of the episode.
    """
    options.check_start(duration)
    end = duration if options.end is None else min(options.end, duration)
    count = math.floor(max(end - options.start, 0.0) * options.fps + 1e-6) + 1
    if count > options.max_frames:
        return np.linspace(options.start, end, options.max_frames)
    times: npt.NDArray[np.float64] = options.start + np.arange(count, dtype=np.float64) / options.fps
    return np.minimum(times, end)


def rate_of(times: npt.NDArray[np.float64], options: SamplingOptions) -> float:
    """Return the frames per second of sampled times."""
    if len(times) < 2:
        return options.fps
    return float((len(times) - 1) / (times[-1] - times[0]))


def page_grid(frames: int) -> list[tuple[int, int, int]]:
    """Return first frame, number of frames and columns of each page: nearly square, at most `PER_PAGE` frames."""
    pages = []
    for first in range(0, frames, PER_PAGE):
        count = min(PER_PAGE, frames - first)
        pages.append((first, count, math.ceil(math.sqrt(count))))
    return pages
