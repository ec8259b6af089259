"""An episode of a program as a file: GIF, MP4, or a PNG of its end."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dressage.errors import FailedPrecondition, InvalidArgument
from dressage.installation import install_command
from dressage.local.kernels import use_kernels
from dressage.policies import ProgramPolicy
from dressage.programs.families import ProgramTask, program_task
from dressage.programs.pictures import MAX_FRAMES, Caption, RunPictures, write_gif
from dressage.programs.syntax import Program

SUFFIXES = (".gif", ".mp4", ".png")
FPS = 5.0
"""Steps per second."""


def check_suffix(out: Path, field: str = "--out") -> None:
    """:raises InvalidArgument: for a file name of another format."""
    if out.suffix.lower() not in SUFFIXES:
        expected = f"a name in {', '.join(SUFFIXES)}"
        raise InvalidArgument(field=field, problem="unknown format", value=str(out), expected=expected)


def draw_policy(
    policy: ProgramPolicy, out: Path, *, fps: float = FPS, progress: Callable[[str], None] | None = None
) -> dict[str, Any]:
    """Draw the program of a bundle on the report state with the median return, the first of several.

    :param out: the file to write; its folder is made if it is absent.
    :param progress: called with the name of each kernel that is about to be compiled.
    :return: the file, the number of frames, the initial state and the return of the episode.
    :raises InvalidArgument: for another format, or a program that the engine cannot run.
    :raises NotFound: for an unknown task.
    :raises FailedPrecondition: if a package for the format is not installed.
    :raises OSError: if the file cannot be written.
    """
    check_suffix(out)
    task = program_task(policy.environment, policy.profile)
    program = task.parse(policy.program)
    use_kernels(progress)
    states = policy.report_states or task.report_states(1)
    returns = [outcome.reward for outcome in task.play(program, states)]
    chosen = returns.index(statistics.median_low(returns))
    frames = draw_episode(task, program, states[chosen], out, fps=fps)
    return {"video": str(out), "frames": frames, "state": states[chosen], "return": returns[chosen]}


def draw_episode(
    task: ProgramTask, program: Program, state: int, out: Path, *, fps: float = FPS, limit: int = MAX_FRAMES
) -> int:
    """Draw an episode of a program from an initial state, and return the number of frames.

    :param limit: frames at most.
    :raises InvalidArgument: for another format.
    :raises FailedPrecondition: if a package for the format is not installed.
    :raises OSError: if the file cannot be written.
    """
    check_suffix(out)
    pictures = RunPictures(task.trace(program, state), Caption(task.environment, state), limit)
    out.parent.mkdir(parents=True, exist_ok=True)
    suffix = out.suffix.lower()
    if suffix == ".gif":
        return write_gif(pictures, out, fps=fps)
    if suffix == ".mp4":
        return _write_mp4(pictures, out, fps=fps)
    *_, last = pictures
    last.save(out)
    return 1


def _write_mp4(pictures: RunPictures, path: Path, *, fps: float) -> int:
    """Write the frames as an H.264 file; the last frame stays for two seconds. Return the number of frames.

    :raises FailedPrecondition: if the renderer is not installed.
    """
    try:
        import numpy as np
        from dressage_renderer.options import RenderOptions
        from dressage_renderer.video import encoder
    except ModuleNotFoundError as error:
        message = f"an .mp4 needs {error.name}, which is not installed: {install_command('renderer')}; or write a .gif"
        raise FailedPrecondition(message, reason="MISSING_EXTRA") from error
    width, height = pictures.size
    count = 0
    with encoder(path, RenderOptions(width=width, height=height, fps=fps)) as write:
        for picture in pictures:
            frame = np.asarray(picture)
            write(frame)
            count += 1
        for _ in range(round(2 * fps)):
            write(frame)
            count += 1
    return count
