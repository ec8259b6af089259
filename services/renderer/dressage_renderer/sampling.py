"""Options of sampled frames for a vision model, and the times of the frames.

This module only computes, so that a bad request is refused before a worker or a simulator is involved.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from dressage.errors import InvalidArgument

from dressage_renderer.options import SLACK, View

PER_PAGE = 16
"""Frames of a page: four by four of 320 pixels are smaller than the size above which providers scale images (1568 pixels)."""

_MAX_FRAMES = 256
_VERSION = 1


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
        if not 1 <= self.max_frames <= _MAX_FRAMES:
            raise InvalidArgument(field="max_frames", value=self.max_frames, expected=f"1 to {_MAX_FRAMES}")

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
    if options.start > 0 and options.start >= duration - SLACK:
        raise InvalidArgument(
            field="start", value=options.start, expected=f"a second before the episode's end at {duration:.2f} s"
        )
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
