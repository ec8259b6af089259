"""Records a session as a folder that `dressage run --replay` replays: its spec and the replies of its models.

Files are the entries of the session's journal without what a replay computes again: prompts, results of tools, and what a
vision model saw. A resumed session writes the entries of its later epochs under keys with the number of the epoch. A replay has
one epoch, so the latest entry of a task stands for all.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

from google.protobuf.json_format import MessageToDict

from dressage import errors
from dressage.api.v1 import session_pb2 as pb
from dressage.client.aio import AsyncClient
from dressage.client.downloads import relative_path

SPEC = "session.json"
_REPLY = re.compile(r"\d+-\d+\.json")
_EPOCH = re.compile(r"-e(\d+)$")
# Recordings have no vision support: video is not judged in a replay.
_OF_VIDEO = re.compile(r"^(video_criteria|iterations/\d+/judge)/")
_MAX_BYTES = 16 * 2**20


async def record(client: AsyncClient, session: str, folder: Path) -> list[Path]:
    """Write a session's recording; return the files.

    :param session: its id, or ``sessions/ID``.
    :param folder: new, or without files of its own; its name is the recording's, of a-z, 0-9, - and _.
    :raises NotFound: if there is no such session.
    :raises FailedPrecondition: if no model replied in it, as with the built-in author, or only video judged it.
    :raises InvalidArgument: for a folder that has files, or whose name a recording cannot have.
    """
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,62}", folder.absolute().name):
        expected = "a folder whose name consists of a-z, 0-9, - and _, as it becomes the recording's name"
        raise errors.InvalidArgument(field="--out", value=str(folder), expected=expected)
    if folder.exists() and any(folder.iterdir()):
        raise errors.InvalidArgument(field="--out", problem="not empty", value=str(folder), expected="a new folder")
    original = await client.get_session(session)
    if original.spec.video_judging == pb.VIDEO_JUDGING_ONLY:
        message = f"{original.name} was judged only by video, which a replay does not have"
        raise errors.FailedPrecondition(message, reason="NO_VIDEO_IN_REPLAYS")
    entries = {path: text async for path, text in _entries(client, f"{original.name}/llm")}
    if not entries:
        message = f"{original.name} has no replies of a model; a session of {original.spec.model} needs no recording"
        raise errors.FailedPrecondition(message, reason="NOTHING_TO_RECORD")
    texts = {SPEC: _json(MessageToDict(recorded_spec(original), preserving_proto_field_name=True))}
    texts |= {f"llm/{path}": text for path, text in entries.items()}
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return [folder / path for path in texts]


def recorded_spec(session: pb.Session) -> pb.SessionSpec:
    """Return the spec of a replay: without models and limits of their cost, and without what the author set itself."""
    spec = pb.SessionSpec()
    spec.CopyFrom(session.spec)
    for name in ("model", "roles", "thinking", "provider_wait", "pool"):
        spec.ClearField(name)  # type: ignore[arg-type]
    spec.budget.ClearField("dollars")
    spec.budget.ClearField("tokens")
    if not spec.budget.ByteSize():
        spec.ClearField("budget")
    for field, _ in session.options_of_author.ListFields():
        spec.environment_options.ClearField(field.name)  # type: ignore[arg-type]
    spec.max_iterations = max(spec.max_iterations, 1)
    return spec


async def _entries(client: AsyncClient, prefix: str) -> AsyncIterator[tuple[str, str]]:
    """The replies below a prefix, by their path there; those of the latest epoch where a task has several."""
    latest: dict[str, tuple[int, str]] = {}
    async for artifact in client.list_artifacts(f"{prefix}/"):
        path = relative_path(artifact.key, prefix)
        if path is None or not _REPLY.fullmatch(path.name) or _OF_VIDEO.match(str(path)):
            continue
        match = _EPOCH.search(str(path.parent))
        epoch = int(match[1]) if match else 0
        target = f"{_EPOCH.sub('', str(path.parent))}/{path.name}"
        if epoch >= latest.get(target, (-1, ""))[0]:
            latest[target] = (epoch, artifact.key)
    for target, (_, key) in sorted(latest.items()):
        data = b"".join([chunk async for chunk in client.read_artifact(key)])
        if len(data) > _MAX_BYTES:
            raise errors.FailedPrecondition(f"{key} has {len(data)} bytes, more than {_MAX_BYTES}", reason="TOO_LARGE")
        entry = json.loads(data)
        entry["messages"] = []
        yield target, _json(entry)


def _json(value: object) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"
