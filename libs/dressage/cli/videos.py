"""`dressage render`: the video of a session, of an episode of a policy, or of a recorded rollout."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dressage import errors
from dressage.cli import output
from dressage.installation import install_command
from dressage.local.connection import Connection, ServerOptions, connect
from dressage.sdk.policy import policy_folder
from dressage.sdk.texts import short

if TYPE_CHECKING:
    from dressage.policies import ProgramPolicy

_CANNOT_RENDER_HERE = ("MISSING_EXTRA", "RENDERER_NOT_INSTALLED", "EGL_MISSING")
"""Reasons for which the server is asked to render instead."""


def render(source: str, server: ServerOptions, *, out: Path | None, as_json: bool) -> None:
    """Write a video and print its path.

    :param source: a session's name, a policy's folder, a file of a rollout, or the artifact key of one.
    :raises NotFound: if there is no such session or file.
    :raises InvalidArgument: if the video cannot be written.
    :raises FailedPrecondition: if the session has no rollout or program yet, or this machine cannot render.
    """
    path = Path(source).expanduser()
    if path.suffix == ".npz" and not path.is_file():
        if not source.startswith("sessions/"):
            message = (
                f"ROLLOUT.npz: there is no file {source!r}; expected a file, or a key of `dressage sessions rollouts`"
            )
            raise errors.NotFound(message)
        facts = asyncio.run(_of_rollout(source, server, out or Path(path.with_suffix(".mp4").name)))
    elif path.suffix == ".npz":
        facts = draw(path, out or path.with_suffix(".mp4"))
    elif path.is_dir():
        facts = _of_policy(path, out or Path(f"{path.resolve().name}.mp4"))
    else:
        target = out or Path(f"{short(source)}.mp4")
        facts = asyncio.run(_of_session(source, server, target))
    if as_json:
        output.print_json(facts)
    else:
        print(facts["video"])


def _of_policy(folder: Path, target: Path) -> dict[str, Any]:
    """Render one episode of a policy: on stock Gymnasium, or of a program in its engine."""
    from dressage.policies import ProgramPolicy
    from dressage.sdk.evaluation import record
    from dressage.sdk.policy import load_path

    policy = load_path(folder)
    if isinstance(policy, ProgramPolicy):
        return _of_program(policy, target)
    _check_drawable(policy.description.environment)
    trajectory = record(policy)
    with tempfile.TemporaryDirectory(prefix="dressage-render-") as scratch:
        recording = Path(scratch) / "episode.npz"
        trajectory.save(recording)
        return {**draw(recording, target), "seed": trajectory.seed, "return": trajectory.stock_return}


def _of_program(policy: ProgramPolicy, target: Path) -> dict[str, Any]:
    """Draw an episode of a program: the grid next to the program with its executing line."""
    from dressage.cli.program_inputs import report_compiling
    from dressage.sdk.program_pictures import draw_policy

    with output.writing("--out", target):
        return draw_policy(policy, target, progress=report_compiling)


async def _of_session(name: str, server: ServerOptions, target: Path) -> dict[str, Any]:
    async with connect(server) as connection:
        session = await connection.client.get_session(name)
        if session.best_video:
            await _fetch(session.best_video, connection, target)
            return {"video": str(target), "session": session.name, "artifact": session.best_video}
        if session.method == "program":
            async with policy_folder(session, connection) as folder:
                facts = await asyncio.to_thread(_of_policy, folder, target)
            return {**facts, "session": session.name, "artifact": session.best_policy}
        # A session that did not end by itself has no video; its newest rollout may be of a worse policy.
        rollout = session.policy_origin.rollout or await _last_rollout(session.name, connection)
        return {**await _draw_rollout(rollout, connection, target), "session": session.name}


async def _of_rollout(key: str, server: ServerOptions, target: Path) -> dict[str, Any]:
    """Render a rollout by its artifact key."""
    async with connect(server) as connection:
        return await _draw_rollout(key, connection, target)


async def _draw_rollout(rollout: str, connection: Connection, target: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="dressage-render-") as scratch:
        recording = Path(scratch) / short(rollout)
        await _fetch(rollout, connection, recording)
        try:
            facts = await asyncio.to_thread(draw, recording, target)
        except errors.FailedPrecondition as error:
            if error.reason not in _CANNOT_RENDER_HERE:
                raise
            video = await connection.client.get_rollout_video(rollout)
            await _fetch(video.key, connection, target)
            facts = {"video": str(target)}
        return {**facts, "artifact": rollout}


async def _last_rollout(session: str, connection: Connection) -> str:
    """Return the newest median rollout, for a session without video."""
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
    """Return iteration and environment step of a rollout."""
    parts = key.split("/")
    step = short(key).split("_")[0]
    return int(parts[3]) if parts[3].isdigit() else 0, int(step) if step.isdigit() else 0


async def _fetch(key: str, connection: Connection, target: Path) -> None:
    with output.writing("--out", target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".dressage-") as scratch:
            (downloaded,) = await connection.client.download_artifacts(key, scratch)
            shutil.move(downloaded, target)


def draw(recording: Path, target: Path) -> dict[str, Any]:
    """Render a recorded rollout with its overlay.

    :raises InvalidArgument: if the file is no rollout, or the folder of the video cannot be created.
    :raises FailedPrecondition: if the environment cannot be drawn, the renderer is not installed, or EGL does not work here.
    """
    try:
        from dressage_renderer.options import RenderOptions
        from dressage_renderer.video import render_video
    except ModuleNotFoundError as error:
        raise errors.FailedPrecondition(
            f"rendering needs {error.name}, which is not installed: {install_command('renderer')}",
            reason="MISSING_EXTRA",
        ) from error
    from dressage.envs.trajectory import Trajectory

    trajectory = Trajectory.load(recording)
    _check_drawable(trajectory.environment)
    with output.writing("--out", target):
        target.parent.mkdir(parents=True, exist_ok=True)
    report = render_video(trajectory, target, RenderOptions(overlay=True, end=float(trajectory.time[-1]) or None))
    return {"video": str(target), "frames": report.frames, "duration": report.duration}


def _check_drawable(environment: str) -> None:
    """Check that the renderer can draw an environment.

    :raises FailedPrecondition: naming it, and the commands that show its episodes.
    """
    from dressage.envs.cards import load_card

    card = load_card(environment)
    if card.has_video:
        return
    cause = f"its model is in the environment pack {card.pack}" if card.pack else "it has no MuJoCo model"
    remedy = "`dressage eval` measures its policies, and Trajectory.load of dressage.envs reads a recorded rollout."
    message = f"{environment} cannot be drawn: {cause}. {remedy}"
    raise errors.FailedPrecondition(message, reason="NO_VIDEO", metadata={"environment": environment})
