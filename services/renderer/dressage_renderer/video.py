"""Renders a recorded trajectory as an MP4 that plays in a browser."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from dressage.envs.trajectory import Trajectory
from dressage.errors import InvalidArgument

from dressage_renderer.options import SLACK, RenderOptions, frame_times, still_indices

_CODEC = {"crf": "23", "preset": "veryfast"}
_QUEUED_FRAMES = 8
_CONTAINER = {"movflags": "+faststart"}
"""The index is at the front of the file, so that a browser can play it before the download ends."""


@dataclass(frozen=True)
class RenderReport:
    """The result of rendering a video.

    :param frames: number of frames.
    :param duration: duration of the video in seconds.
    :param seconds: seconds that rendering and encoding took.
    :param stills: the single frames, in order of time.
    """

    frames: int
    duration: float
    seconds: float
    stills: tuple[Path, ...] = ()


def render_video(
    trajectory: Trajectory,
    path: Path,
    options: RenderOptions | None = None,
    *,
    stills: Path | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> RenderReport:
    """Render a trajectory as an H.264 file. States between two recorded ones are interpolated.

    :param path: file to write; it is complete or does not exist.
    :param options: None for the defaults.
    :param stills: folder of the ``options.stills`` single frames (``0000.png``, …).
    :param clock: returns seconds, for the report.
    :raises InvalidArgument: for a bad window, camera or overlay term, or states that are not of this environment's model.
    :raises NotFound: for an unknown environment.
    :raises FailedPrecondition: without EGL.
    """
    from PIL import Image

    from dressage_renderer.overlay import Overlay, readings
    from dressage_renderer.stage import open_stage

    options, begin = options or RenderOptions(), clock()
    time_axis = times_of(trajectory)
    moments = frame_times(options, duration=float(time_axis[-1]))
    overlay = None
    if options.overlay:
        numbers = readings(trajectory, term=options.overlay_return)
        overlay = Overlay(numbers, width=options.width, height=options.height)
    still_moments = {float(moments[index]) for index in still_indices(len(moments), options.stills)}
    pictures: list[Path] = []
    with open_stage(trajectory.environment, width=options.width, height=options.height, camera=options.camera) as stage:
        qpos = positions(trajectory, stage.position_size)

        def finish(frame: Any, moment: float) -> None:
            if overlay is not None:
                overlay.draw(frame, moment)
            if stills is not None and moment in still_moments:
                pictures.append(stills / f"{len(pictures):04d}.png")
                Image.fromarray(frame).save(pictures[-1])

        with encoder(path, options, finish=finish) as write:
            for moment in moments.tolist():
                write(stage.draw(state_at(stage, time_axis, qpos, moment)), moment)
    return RenderReport(len(moments), len(moments) / options.fps, clock() - begin, tuple(pictures))


def times_of(trajectory: Trajectory) -> Any:
    """Return the times of the states in seconds, (T+1,)."""
    times = np.asarray(trajectory.time, dtype=np.float64)
    if not (np.isfinite(times).all() and (np.diff(times) > 0).all()):
        raise InvalidArgument(field="trajectory.time", value=times[:8].tolist(), expected="ascending seconds")
    return times


def positions(trajectory: Trajectory, size: int) -> Any:
    """Return the generalised positions of the states, (T+1, size)."""
    qpos = np.asarray(trajectory.qpos, dtype=np.float64)
    if qpos.ndim != 2 or qpos.shape[1] != size:
        expected = f"(T+1, {size}) positions, as {trajectory.environment}'s model has them"
        raise InvalidArgument(field="trajectory.qpos", value=qpos.shape, expected=expected)
    bad = np.flatnonzero(~np.isfinite(qpos).all(axis=1))
    if len(bad):
        raise InvalidArgument(
            f"trajectory.qpos: the state after step {bad[0]} is not finite; the simulation diverged",
            field="trajectory.qpos",
        )
    return qpos


def state_at(stage: Any, time_axis: Any, qpos: Any, moment: float) -> Any:
    """Return the positions at a time in seconds, interpolated between two states."""
    left = int(np.searchsorted(time_axis, moment + SLACK, side="right")) - 1
    if left >= len(time_axis) - 1:
        return qpos[-1]
    share = (moment - time_axis[left]) / (time_axis[left + 1] - time_axis[left])
    return stage.between(qpos[left], qpos[left + 1], float(share) if share > 1e-6 else 0.0)


@contextmanager
def encoder(path: Path, options: RenderOptions, *, finish: Callable[[Any, float], None] | None = None) -> Iterator[Any]:
    """Yield a function that appends a frame (H, W, 3) with its time. The file gets its name on success, or is deleted.

    Another thread adds the overlay to frames and encodes them while the next is rendered: both release the interpreter's lock.
    The queue is short, so that a slow encoder delays the rendering and does not fill the memory.

    :param finish: is called in that thread with each frame and its time before it is encoded; None: frames are not changed.
    """
    import av

    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with av.open(str(partial), "w", format="mp4", options=_CONTAINER) as container:
            # Every browser and the models with video input play H.264; its encoder is under the GPL (decision 0058).
            stream = container.add_stream("libx264", rate=Fraction(options.fps).limit_denominator(1001), options=_CODEC)
            stream.width, stream.height, stream.pix_fmt = options.width, options.height, "yuv420p"
            stream.codec_context.thread_count = 1

            def encode(frame: Any, moment: float) -> None:
                if finish is not None:
                    finish(frame, moment)
                container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))

            with ThreadPoolExecutor(1, thread_name_prefix="encode") as pool:
                pending: deque[Future[None]] = deque()

                def write(frame: Any, moment: float = 0.0) -> None:
                    while len(pending) >= _QUEUED_FRAMES:
                        pending.popleft().result()
                    pending.append(pool.submit(encode, frame, moment))

                yield write
                for future in pending:
                    future.result()
            container.mux(stream.encode(None))
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
