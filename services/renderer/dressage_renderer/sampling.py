"""Frames for a model to look at: which moments, how large, and what is written besides.

Pure arithmetic, so that a bad request is refused before a worker or a simulator is touched.
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
"""Frames of a page: four by four of 320 pixels stay below the side at which providers shrink pictures (1568 pixels)."""

_MAX_FRAMES = 256
_VERSION = 1


@dataclass(frozen=True)
class SamplingOptions(View):
    """How frames are taken of a trajectory.

    :param fps: frames per second, above 0 and up to 60.
    :param start: first second of the window.
    :param end: last second; None, or one beyond it, means the end of the episode.
    :param max_frames: where the sampling gives more, so many are spread evenly over the window; 1 to 256.
    :param width: pixels of a frame, 64 to 1024; odd numbers are raised by one.
    :param camera: name of a camera of the model; empty for one that follows the robot.
    :param overlay: whether time and state are written at the top.
    :param motion_trail: whether each frame shows ghosts of the moments before it.
    :param pages: whether pages with numbered frames are made.
    :param clip: whether a clip of the frames is made.
    :raises InvalidArgument: for a value out of range, naming it.
    """

    width: int = 320
    height: int = 320
    fps: float = 10.0
    max_frames: int = 32
    motion_trail: bool = False
    pages: bool = True
    clip: bool = False
    max_side: ClassVar[int] = 1024
    max_fps: ClassVar[float] = 60.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.max_frames <= _MAX_FRAMES:
            raise InvalidArgument(field="max_frames", value=self.max_frames, expected=f"1 to {_MAX_FRAMES}")

    def fingerprint(self) -> str:
        """Hash by which pictures that were taken in the same way are known."""
        text = json.dumps({"version": _VERSION, **self.to_dict()}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


def sample_times(options: SamplingOptions, *, duration: float) -> npt.NDArray[np.float64]:
    """The moments to draw: at the rate asked for from the start on, or spread evenly where those would be too many.

    :param duration: seconds that the episode lasts.
    :returns: (F,) seconds of the episode, ascending, 1 to ``max_frames``.
    :raises InvalidArgument: when the window begins at or after the end of the episode.
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
    """Frames per second as they came out."""
    if len(times) < 2:
        return options.fps
    return float((len(times) - 1) / (times[-1] - times[0]))


def page_grid(frames: int) -> list[tuple[int, int, int]]:
    """First frame, frames, and columns of each page: as square as can be, at most `PER_PAGE` frames a page."""
    pages = []
    for first in range(0, frames, PER_PAGE):
        count = min(PER_PAGE, frames - first)
        pages.append((first, count, math.ceil(math.sqrt(count))))
    return pages
