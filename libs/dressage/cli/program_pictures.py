"""`dressage programs render`: an episode of a program as GIF, MP4 or PNG."""

from __future__ import annotations

from pathlib import Path

from dressage.cli import output
from dressage.cli.program_inputs import find_task, read_program, use_kernels
from dressage.errors import FailedPrecondition, InvalidArgument
from dressage.installation import install_command
from dressage.programs.pictures import Caption, RunPictures, write_gif

_SUFFIXES = (".gif", ".mp4", ".png")


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
    suffix = out.suffix.lower()
    if suffix not in _SUFFIXES:
        raise InvalidArgument(
            field="--out", problem="unknown format", value=str(out), expected=f"a name in {', '.join(_SUFFIXES)}"
        )
    task = find_task(name, profile)
    program = read_program(source, task.language)
    use_kernels(data_dir)
    pictures = RunPictures(task.trace(program, seed), Caption(task.environment, seed), frames)
    with output.writing("--out", out):
        out.parent.mkdir(parents=True, exist_ok=True)
        if suffix == ".gif":
            count = write_gif(pictures, out, fps=fps)
        elif suffix == ".mp4":
            count = write_mp4(pictures, out, fps=fps)
        else:
            *_, last = pictures
            last.save(out)
            count = 1
    if as_json:
        output.print_json({"file": str(out), "frames": count, "task": task.environment, "seed": seed})
    else:
        print(out)


def write_mp4(pictures: RunPictures, path: Path, *, fps: float) -> int:
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
