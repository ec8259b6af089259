"""`dressage programs render`: an episode of a program as GIF, MP4 or PNG."""

from __future__ import annotations

from pathlib import Path

from dressage.cli import output
from dressage.cli.program_inputs import find_task, read_program, use_kernels
from dressage.sdk.program_pictures import check_suffix, draw_episode


def render(
    source: str,
    name: str,
    profile: str,
    *,
    seed: int,
    out: Path,
    fps: float,
    frames: int,
    as_json: bool,
    data_dir: Path | None,
) -> None:
    """Write the picture or video of an episode and print its path.

    :raises InvalidArgument: for a bad program, or a file that cannot be written.
    :raises NotFound: for an unknown task.
    :raises FailedPrecondition: if a package for the format is not installed.
    """
    check_suffix(out)
    task = find_task(name, profile)
    program = read_program(source, task.language)
    use_kernels(data_dir)
    with output.writing("--out", out):
        count = draw_episode(task, program, seed, out, fps=fps, limit=frames)
    if as_json:
        output.print_json({"file": str(out), "frames": count, "task": task.environment, "seed": seed})
    else:
        print(out)
