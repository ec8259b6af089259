"""A rendering process: reads jobs as JSON lines from its standard input and answers each with one JSON line.

Rendering has a process of its own because an EGL context belongs to one thread, a graphics driver may crash, and a video that
takes too long must be stopped. The process ends with its input, so that it does not outlive the service, even one that was
killed.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from pathlib import Path
from typing import IO, Any

from dressage.errors import DressageError, Internal, InvalidArgument
from dressage.installation import install_command


def main() -> None:
    """Serve jobs until the input ends; with ``--probe``, check whether rendering works here."""
    os.environ["MUJOCO_GL"] = "egl"
    answers = _own_output()
    if "--probe" in sys.argv[1:]:
        _answer(answers, {"fault": _probe()})
        return
    jobs: queue.Queue[str] = queue.Queue(maxsize=4)
    threading.Thread(target=_read, args=(jobs,), daemon=True).start()
    while True:
        _answer(answers, handle(json.loads(jobs.get())))


def handle(job: dict[str, Any]) -> dict[str, Any]:
    """Do one job.

    :param job: ``kind`` ``video``: ``trajectory`` and ``video`` (paths), ``options`` (`RenderOptions`), ``stills`` (folder or
        None); ``frames``: ``trajectory``, ``folder``, ``options`` (see `SamplingOptions`); ``poses``: ``trajectory``,
        ``poses`` (path).
    :return: ``{"report": …}``, or ``{"error": …}`` for a domain error.
    """
    try:
        return {"report": _KINDS[job["kind"]](job)}
    except DressageError as error:
        return {"error": describe_error(error)}
    except MemoryError:
        return {"error": describe_error(Internal("not enough memory to render this video", reason="OUT_OF_MEMORY"))}


def _draw_video(job: dict[str, Any]) -> dict[str, Any]:
    from dressage.envs.trajectory import Trajectory

    from dressage_renderer.options import RenderOptions
    from dressage_renderer.video import render_video

    trajectory = Trajectory.load(Path(job["trajectory"]))
    options = RenderOptions.from_dict(job["options"])
    stills = Path(job["stills"]) if job["stills"] else None
    report = render_video(trajectory, Path(job["video"]), options, stills=stills)
    return {
        "frames": report.frames,
        "duration": report.duration,
        "seconds": report.seconds,
        "stills": [str(path) for path in report.stills],
    }


def _take_frames(job: dict[str, Any]) -> dict[str, Any]:
    from dressage.envs.trajectory import Trajectory

    from dressage_renderer.frames import sample_frames
    from dressage_renderer.options import SamplingOptions

    trajectory = Trajectory.load(Path(job["trajectory"]))
    sampled = sample_frames(trajectory, Path(job["folder"]), SamplingOptions.from_dict(job["options"]))
    return {
        "times": list(sampled.times),
        "frames": [str(path) for path in sampled.frames],
        "pages": [str(path) for path in sampled.pages],
        "clip": str(sampled.clip) if sampled.clip else None,
        "fps": sampled.fps,
        "start": sampled.start,
        "end": sampled.end,
        "episode_seconds": sampled.episode_seconds,
    }


def _write_poses(job: dict[str, Any]) -> dict[str, Any]:
    from dressage.envs.trajectory import Trajectory

    from dressage_renderer.poses import write_poses

    return {"rows": write_poses(Trajectory.load(Path(job["trajectory"])), Path(job["poses"]))}


_KINDS = {"video": _draw_video, "frames": _take_frames, "poses": _write_poses}


def describe_error(error: DressageError) -> dict[str, Any]:
    """Return a domain error as JSON-ready data."""
    data: dict[str, Any] = {
        "kind": type(error).__name__,
        "message": error.message,
        "reason": error.reason,
        "metadata": error.metadata,
    }
    if isinstance(error, InvalidArgument):
        data |= {"field": error.field, "expected": error.expected}
    return data


def restore_error(data: dict[str, Any]) -> DressageError:
    """Return the error from the output of `describe_error`."""
    from dressage import errors

    kind = getattr(errors, data["kind"], Internal)
    rest = {name: data[name] for name in ("field", "expected") if name in data}
    error: DressageError = kind(data["message"], reason=data["reason"], metadata=data["metadata"], **rest)
    return error


def _own_output() -> IO[str]:
    """The standard output, reserved for answers: output of libraries is redirected to the standard error."""
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return output


def _read(jobs: queue.Queue[str]) -> None:
    for line in sys.stdin:
        jobs.put(line)
    os._exit(0)


def _answer(answers: IO[str], message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def _probe() -> str | None:
    """Render one frame of a test scene."""
    try:
        import mujoco
    except ImportError as error:
        return f"mujoco is not installed ({error}); install it with `{install_command('renderer')}`"
    from dressage_renderer.stage import open_egl

    try:
        gl = open_egl(64, 64)
    except DressageError as error:
        return error.message
    model = mujoco.MjModel.from_xml_string("<mujoco><worldbody><geom size='1'/></worldbody></mujoco>")
    mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100).free()
    gl.free()
    return None


if __name__ == "__main__":
    main()
