"""The learning curves of a session's best training: loads them and writes the picture next to the policy.

Lines show training episodes, from ``metrics.jsonl`` of the members. Points show evaluations, which also exist if training was
too short for an episode to end.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from dressage.api.v1 import session_pb2 as pb
from dressage.errors import DressageError, FailedPrecondition
from dressage.local.connection import Connection
from dressage.sdk.curve_data import Returns, combine, combine_evaluations, read_rows, scores, stock_returns
from dressage.sdk.curve_file import CURVE_FILE, Picture
from dressage.sdk.curve_picture import References, draw
from dressage.sdk.texts import short

_POLICY = re.compile(r"^(?P<members>.+/assignments/[^/]+/members)/(?P<member>[^/]+)/policy$")
_METRICS = re.compile(r"/members/(?P<config>[^/]+)-s\d+/metrics\.jsonl$")
_MAX_BYTES = 64 * 2**20
_NOTHING = "no episode ended and nothing was evaluated"


async def load_curves(session: pb.Session, connection: Connection) -> dict[str, Returns] | None:
    """Load the curves of the training that the best policy is from, by config; None where there is no such training."""
    match = _POLICY.match(session.best_policy)
    return None if match is None else await _load(match["members"], connection)


def title(session: pb.Session) -> str:
    """The title of the picture."""
    environment = session.spec.environment.removeprefix("environments/")
    return f"{_shortened(session.spec.intent)} · {environment}"


async def save(session: pb.Session, connection: Connection, *, path: Path | None = None) -> Picture | None:
    """Draw the curves of the training of the best policy; None if there is no such training.

    :param path: of the picture; by default next to the policy if the artifacts are on this machine, else in the current folder.
    """
    curves = await load_curves(session, connection)
    if curves is None:
        return None
    if path is not None:
        return draw_to(curves, path, session)
    policy = connection.local_path(session.best_policy)
    name = f"learning-curve-{short(session.name)}.png"
    return draw_to(curves, policy.parent / CURVE_FILE if policy is not None else Path(name).absolute(), session)


def draw_to(curves: Mapping[str, Returns], path: Path, session: pb.Session) -> Picture:
    """Draw the picture into a file; why there is none is in the result."""
    if not curves:
        return Picture(missing=_NOTHING)
    try:
        draw(curves, path, title=title(session), references=_references(session))
    except FailedPrecondition as error:
        if error.reason != "MISSING_PACKAGE":
            raise
        return Picture(missing=error.message)
    except OSError as error:  # the summary is printed even if the picture cannot be written
        return Picture(missing=f"the file cannot be written: {error}")
    return Picture(path)


def _references(session: pb.Session) -> References:
    random = session.returns.random_mean if session.HasField("returns") else None
    judged = session.HasField("best_judgment") and session.spec.pass_threshold > 0
    return References(random, session.spec.pass_threshold if judged else None)


def _shortened(text: str, limit: int = 70) -> str:
    line = " ".join(text.split()).replace("$", r"\$")
    return line if len(line) <= limit else line[: limit - 1] + "…"


async def _load(prefix: str, connection: Connection) -> dict[str, Returns]:
    """Return the curves by config, in the order of their names."""
    texts: dict[str, list[str]] = {}
    async for artifact in connection.client.list_artifacts(f"{prefix}/"):
        match = _METRICS.search(artifact.key)
        if match is not None and artifact.size <= _MAX_BYTES:
            texts.setdefault(match["config"], []).append(await _text(artifact.key, connection))
    evaluated: dict[str, list[pb.Member]] = {}
    for member in await _members(prefix, connection):
        evaluated.setdefault(member.config, []).append(member)
    curves = {
        config: _returns(texts.get(config, []), evaluated.get(config, [])) for config in sorted({*texts, *evaluated})
    }
    return {config: returns for config, returns in curves.items() if returns != Returns()}


def _returns(texts: Sequence[str], members: Sequence[pb.Member]) -> Returns:
    """Return the curves of one config.

    :param texts: metrics of its members.
    """
    return Returns(
        training=combine([read_rows(text) for text in texts]),
        evaluation=combine_evaluations(members),
        stock_training=combine([read_rows(text, "environment_return") for text in texts]),
        stock_evaluation=combine_evaluations(members, stock_returns),
        score=combine_evaluations(members, scores),
    )


async def _members(prefix: str, connection: Connection) -> Sequence[pb.Member]:
    try:
        assignment = await connection.client.get_assignment(prefix.removesuffix("/members"))
    except DressageError:
        return []  # the training curves can be drawn without the evaluations
    return assignment.members


async def _text(key: str, connection: Connection) -> str:
    local = connection.local_path(key)
    if local is not None:
        return local.read_text("utf-8", errors="replace")
    try:
        chunks = [chunk async for chunk in connection.client.read_artifact(key)]
    except DressageError:
        return ""  # the curves of the other members can be drawn
    return b"".join(chunks).decode("utf-8", errors="replace")
