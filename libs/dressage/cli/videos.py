"""`dressage render`: a session's video, or a recorded trajectory drawn here."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import Any

from dressage import errors
from dressage.cli import output
from dressage.local.connection import Connection, connect
from dressage.local.connection import ServerOptions as Where
from dressage.sdk.progress import short


def render(what: str, where: Where, *, out: Path | None, as_json: bool) -> None:
    """Writes a video and says where.

    :raises NotFound: if there is no such session or file.
    :raises InvalidArgument: if the place of the video cannot be written to.
    :raises FailedPrecondition: if the session has nothing to show yet, or this machine cannot draw.
    """
    path = Path(what).expanduser()
    if path.suffix == ".npz":
        if not path.is_file():
            raise errors.NotFound(f"ROLLOUT.npz: there is no file {what!r}")
        facts = draw(path, out or path.with_suffix(".mp4"))
    else:
        target = out or Path(f"{short(what)}.mp4")
        facts = asyncio.run(_of_session(what, where, target))
    if as_json:
        output.print_json(facts)
    else:
        print(facts["video"])


async def _of_session(name: str, where: Where, target: Path) -> dict[str, Any]:
    async with connect(where) as connection:
        session = await connection.client.get_session(name)
        if session.best_video:
            await _fetch(session.best_video, connection, target)
            return {"video": str(target), "session": session.name, "artifact": session.best_video}
        rollout = await _last_rollout(session.name, connection)
        with tempfile.TemporaryDirectory(prefix="dressage-render-") as scratch:
            recorded = Path(scratch) / short(rollout)
            await _fetch(rollout, connection, recorded)
            return {**await asyncio.to_thread(draw, recorded, target), "session": session.name, "artifact": rollout}


async def _last_rollout(session: str, connection: Connection) -> str:
    """The newest median rollout, for a session that has no video yet."""
    keys = [
        artifact.key
        async for artifact in connection.client.list_artifacts(f"{session}/iterations/")
        if artifact.key.endswith("_median.npz")
    ]
    if not keys:
        raise errors.FailedPrecondition(
            f"{session} has neither a video nor a recorded rollout yet", reason="NO_ROLLOUT"
        )
    return max(keys, key=_age)


def _age(key: str) -> tuple[int, int]:
    """Iteration and environment step of a rollout's key: later ones are greater."""
    parts = key.split("/")
    step = short(key).split("_")[0]
    return int(parts[3]) if parts[3].isdigit() else 0, int(step) if step.isdigit() else 0


async def _fetch(key: str, connection: Connection, target: Path) -> None:
    with output.writing("--out", target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".dressage-") as scratch:
            (downloaded,) = await connection.client.download_artifacts(key, scratch)
            shutil.move(downloaded, target)


def draw(recorded: Path, target: Path) -> dict[str, Any]:
    """Draws a recorded trajectory, with its overlay.

    :raises InvalidArgument: if the file is no trajectory, or the video's folder cannot be made.
    :raises FailedPrecondition: if the renderer is not installed, or EGL does not work here.
    """
    try:
        from dressage_renderer.options import RenderOptions
        from dressage_renderer.video import render_video
    except ModuleNotFoundError as error:
        raise errors.FailedPrecondition(
            f"drawing needs {error.name}, which is not installed: pip install 'dressage[renderer]'",
            reason="MISSING_EXTRA",
        ) from error
    from dressage.envs.trajectory import Trajectory

    trajectory = Trajectory.load(recorded)
    with output.writing("--out", target):
        target.parent.mkdir(parents=True, exist_ok=True)
    report = render_video(trajectory, target, RenderOptions(overlay=True, end=float(trajectory.time[-1]) or None))
    return {"video": str(target), "frames": report.frames, "duration": report.duration}
