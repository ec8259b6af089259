"""`dressage report SESSION --html`: one page about a session, with its pictures and videos in the file itself."""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Awaitable, Callable
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from dressage.api.v1 import session_pb2 as pb
from dressage.api.v1 import session_service_pb2 as sessions_pb
from dressage.cli import output
from dressage.cli.guidance import proposal
from dressage.cli.listings import lineage_parts
from dressage.local.connection import Connection, ServerOptions, execute
from dressage.sdk.curve_pictures import learning_curve
from dressage.sdk.results import collect, rows
from dressage.sdk.texts import score_text, short

_MAX_VIDEOS = 3
_MAX_VIDEO_BYTES = 16 * 2**20
_TEMPLATE = "session.html.j2"


def write(name: str, server: ServerOptions, *, out: Path | None, as_json: bool) -> int:
    """Write the page and print its path; return the exit code.

    :raises NotFound: if there is no such session.
    :raises InvalidArgument: if the file cannot be written.
    """
    target = out or Path(f"{short(name)}.html")
    text = execute(server, page(name))
    with output.writing("--out", target):
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, "utf-8")
    if as_json:
        output.print_json({"report": str(target), "bytes": len(text.encode())})
    else:
        print(target)
    return 0


def page(name: str) -> Callable[[Connection], Awaitable[str]]:
    """Return a function that makes the page of a session."""

    async def work(connection: Connection) -> str:
        session = await connection.client.get_session(name)
        iterations = [
            await connection.client.get_iteration(entry.name)
            async for entry in connection.client.list_iterations(session.name)
        ]
        tree = await connection.client.get_lineage(session.name)
        videos, left_out = await _videos(session, connection)
        with tempfile.TemporaryDirectory(prefix="dressage-report-") as scratch:
            curve = await learning_curve(session, connection, path=Path(scratch) / "curve.png")
            picture = curve.picture.read_bytes() if curve is not None and curve.picture is not None else b""
        result = await collect(session, connection, curve)
        return _render(
            {
                **_head(session),
                "results": rows(result),
                "criteria": result.judgment.criteria if result.judgment is not None else {},
                "videos": videos,
                "videos_left_out": left_out,
                "curve": base64.b64encode(picture).decode(),
                "iterations": [_row(entry, best=entry.name == session.best_iteration) for entry in iterations],
                "lineage": _tree(tree),
                "lessons": [entry.text for entry in tree.lessons],
                "sources": _sources(session, iterations),
            }
        )

    return work


def _render(values: dict[str, Any]) -> str:
    """Return the page. All values are escaped: intents, notes and replies of models are not HTML."""
    import jinja2

    text = resources.files("dressage.cli").joinpath("templates", _TEMPLATE).read_text("utf-8")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    return environment.from_string(text).render(values)


def _head(session: pb.Session) -> dict[str, Any]:
    created = session.create_time.ToDatetime().strftime("%Y-%m-%d %H:%M") if session.HasField("create_time") else ""
    return {
        "name": session.name,
        "intent": session.spec.intent,
        "environment": short(session.spec.environment),
        "method": f"method {session.method or 'reward'}",
        "model": session.spec.model or "no model",
        "created": created,
        "version": metadata.version("dressage"),
    }


async def _videos(session: pb.Session, connection: Connection) -> tuple[list[dict[str, str]], str]:
    """Return the videos of the best policy, the best first, and what is left out."""
    keys = [session.best_video] if session.best_video else []
    folder = session.best_video.rpartition("/")[0]
    sizes: dict[str, int] = {}
    if folder:
        async for artifact in connection.client.list_artifacts(f"{folder}/"):
            if artifact.key.endswith(".mp4"):
                sizes[artifact.key] = artifact.size
    keys += sorted(key for key in sizes if key != session.best_video)
    selection = [key for key in keys if 0 < sizes.get(key, 0) <= _MAX_VIDEO_BYTES][:_MAX_VIDEOS]
    videos = []
    for key in selection:
        data = b"".join([chunk async for chunk in connection.client.read_artifact(key)])
        caption = "the best policy" if key == session.best_video else short(key)
        videos.append({"data": base64.b64encode(data).decode(), "caption": caption})
    count = len(keys) - len(selection)
    return videos, f"{count} more videos are in the artifacts, at {folder}." if count else ""


def _row(iteration: pb.Iteration, *, best: bool) -> dict[str, Any]:
    judgment = iteration.judgment
    score = iteration.score if iteration.HasField("score") else judgment.score
    scored = iteration.HasField("score") or iteration.HasField("judgment")
    return {
        "number": iteration.number,
        "best": best,
        "score": score_text(score) if scored else "",
        "confirmed": score_text(iteration.confirmed_score) if iteration.HasField("confirmed_score") else "",
        "author": iteration.author,
        "change": iteration.planned_change,
        "diagnosis": iteration.failure.message or judgment.diagnosis,
    }


def _tree(tree: sessions_pb.Lineage) -> list[dict[str, Any]]:
    """Return the iterations as a tree: roots, each with its children."""
    nodes: dict[str, dict[str, Any]] = {}
    roots: list[dict[str, Any]] = []
    for node in tree.nodes:
        entry = {
            "number": short(node.iteration),
            "score": score_text(node.score) if node.HasField("score") else "–",
            "best": node.best,
            "parts": [part for part in lineage_parts(node) if part and part != "(best)"],
            "children": [],
        }
        nodes[node.iteration] = entry
        (nodes[node.parent]["children"] if node.parent in nodes else roots).append(entry)
    return roots


def _sources(session: pb.Session, iterations: list[pb.Iteration]) -> list[tuple[str, str]]:
    """Return title and text of the best proposal and its formula, else of the last one, and of the judge."""
    chosen = [entry for entry in iterations if entry.name == session.best_iteration] or iterations[-1:]
    sources = []
    for entry in chosen:
        kind = entry.WhichOneof("proposal") or "proposal"
        which = "best" if entry.name == session.best_iteration else "last"
        if entry.reward.latex:
            sources.append((f"Reward of iteration {entry.number} ({which}), as a formula", entry.reward.latex))
        text = proposal(entry)
        if text:
            sources.append((f"{kind.capitalize()} of iteration {entry.number} ({which})", text))
    if session.spec.judge_source:
        sources.append(("Judge", session.spec.judge_source))
    return sources
