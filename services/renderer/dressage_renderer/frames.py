"""Renders a recorded trajectory for a vision model: frames, pages of numbered frames, a clip."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from dressage.envs.trajectory import Trajectory

from dressage_renderer.options import RenderOptions, SamplingOptions, page_grid, rate_of, sample_times
from dressage_renderer.video import encoder, positions, state_at, times_of

Picture = npt.NDArray[np.uint8]

_GHOSTS = 4
_DIFFERENCE = 24
"""Minimum difference (of 255) of a pixel between an earlier and the current frame in a motion trail."""

_GAP = 4
_PAPER = 245
_CLIP_FPS = 30.0


@dataclass(frozen=True)
class FrameSamples:
    """Rendered frames.

    :param times: time of each frame, in seconds of the episode.
    :param frames: files in order of time.
    :param clip: file; None if there is none.
    """

    times: tuple[float, ...]
    frames: tuple[Path, ...]
    pages: tuple[Path, ...]
    clip: Path | None
    fps: float
    start: float
    end: float
    episode_seconds: float


def sample_frames(trajectory: Trajectory, folder: Path, options: SamplingOptions) -> FrameSamples:
    """Render sampled frames into a folder (``0000.png``, …, ``page-0.png``, …, ``clip.mp4``).

    :raises InvalidArgument: for a bad window or camera, or states that are not of this environment's model.
    :raises FailedPrecondition: without EGL.
    """
    axis = times_of(trajectory)
    duration = float(axis[-1])
    moments = sample_times(options, duration=duration)
    pictures = _draw(trajectory, axis, moments, options)
    frames = tuple(folder / f"{place:04d}.png" for place in range(len(pictures)))
    for path, picture in zip(frames, pictures, strict=True):
        _save(path, picture)
    pages = []
    for number, (first, count, columns) in enumerate(page_grid(len(pictures)) if options.pages else []):
        pages.append(folder / f"page-{number}.png")
        _save(
            pages[-1],
            compose_page(pictures[first : first + count], first=first + options.first_number, columns=columns),
        )
    fps = rate_of(moments, options)
    clip = _write_clip(folder / "clip.mp4", pictures, fps, options) if options.clip else None
    return FrameSamples(
        tuple(float(moment) for moment in moments),
        frames,
        tuple(pages),
        clip,
        fps,
        float(moments[0]),
        float(moments[-1]),
        duration,
    )


def compose_page(pictures: list[Picture], *, first: int, columns: int) -> Picture:
    """Return a page of frames, row by row, each with its number at its lower left.

    :param pictures: frames (H, W, 3) of one size, at least one.
    :param first: number of the first frame.
    """
    from PIL import Image, ImageDraw, ImageFont

    height, width = pictures[0].shape[:2]
    rows = -(-len(pictures) // columns)
    page = np.full((rows * (height + _GAP) - _GAP, columns * (width + _GAP) - _GAP, 3), _PAPER, dtype=np.uint8)
    for place, picture in enumerate(pictures):
        top, left = (place // columns) * (height + _GAP), (place % columns) * (width + _GAP)
        page[top : top + height, left : left + width] = picture
    image = Image.fromarray(page)
    pen, size = ImageDraw.Draw(image), max(12, height // 14)
    font = ImageFont.load_default(size=size)
    for place in range(len(pictures)):
        bottom, left = (place // columns) * (height + _GAP) + height, (place % columns) * (width + _GAP)
        text = str(first + place)
        box = (left, bottom - size - 6, left + round(pen.textlength(text, font=font)) + 10, bottom)
        pen.rectangle(box, fill=(0, 0, 0))
        pen.text((left + 5, bottom - 3), text, fill=(255, 255, 255), font=font, anchor="lb")
    return np.asarray(image)


def blend_ghosts(present: Picture, robot: npt.NDArray[np.bool_], ghosts: list[Picture]) -> Picture:
    """Return the current frame with pale copies of earlier frames, the earliest the palest; the robot itself is unchanged.

    :param present: the current frame (H, W, 3).
    :param robot: mask (H, W) of the robot in it.
    :param ghosts: earlier frames from the same view, the earliest first.
    """
    out = present.astype(np.float32)
    for place, ghost in enumerate(ghosts):
        strength = 0.5 * (place + 1) / len(ghosts)
        moved = (np.abs(ghost.astype(np.int16) - present).max(axis=2) > _DIFFERENCE) & ~robot
        out[moved] = (1 - strength) * out[moved] + strength * ghost[moved]
    return out.round().astype(np.uint8)


def _draw(trajectory: Trajectory, axis: Any, moments: Any, options: SamplingOptions) -> list[Picture]:
    from dressage_renderer.overlay import Overlay, readings
    from dressage_renderer.stage import Stage, open_stage

    overlay = None
    if options.overlay:
        numbers = readings(trajectory, state_only=True)
        overlay = Overlay(numbers, width=options.width, height=options.height)
    pictures = []
    with open_stage(trajectory.environment, width=options.width, height=options.height, camera=options.camera) as stage:
        qpos = positions(trajectory, stage.position_size)
        step = 1.0 / options.fps
        for moment in moments:
            picture = stage.draw(state_at(stage, axis, qpos, float(moment)))
            if options.motion_trail and isinstance(stage, Stage) and moment > axis[0]:
                earlier = [max(float(moment) - step * (_GHOSTS - k) / 2, 0.0) for k in range(_GHOSTS)]
                robot = stage.robot_mask()
                ghosts = [stage.draw(state_at(stage, axis, qpos, at), aim=False) for at in earlier]
                picture = blend_ghosts(picture, robot, ghosts)
            if overlay is not None:
                overlay.draw(picture, float(moment))
            pictures.append(picture)
    return pictures


def _save(path: Path, picture: Picture) -> None:
    from PIL import Image

    Image.fromarray(picture).save(path, compress_level=6)


def _write_clip(path: Path, pictures: list[Picture], fps: float, options: SamplingOptions) -> Path:
    """A clip at the speed of the episode; each frame is repeated until the next, so that a provider's sampling skips none.

    The first frame is shown for half as long: a provider that samples at ``fps`` then meets each frame in its middle.
    """
    repeats = max(1, round(_CLIP_FPS / fps)) if fps < _CLIP_FPS else 1
    shape = RenderOptions(width=options.width, height=options.height, fps=min(max(fps * repeats, 1.0), 240.0))
    with encoder(path, shape, finish=lambda frame, moment: None) as write:
        for place, picture in enumerate(pictures):
            for _ in range(repeats if place else (repeats + 1) // 2):
                write(picture, place / fps)
    return path
