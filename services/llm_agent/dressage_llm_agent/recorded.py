"""Recorded authors: the model replies of one session, replayed in another.

A recording is a folder with the layout of a session's journal: ``llm/{task key}/{turn}-{sample}.json``. The folder of any
session in the artifact store is one. A reply that is written by hand may be a file ``{turn}-{sample}.md`` with its text alone,
for any role: code stays readable there. A session with the model ``recorded/{name}`` gets its replies from the recording of
that name. Everything else is computed again: tools run, code is checked, policies are trained, judges judge.

Replies are identified by task key, turn and sample. The hash of the request, which a journal checks, is not compared: a
reviser's request contains scores, which differ from session to session.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dressage.errors import FailedPrecondition, InvalidArgument

from dressage_llm_agent.journal import Journal, ToolOutcome, read_reply
from dressage_llm_agent.provider.base import CompletionRequest, ModelDescription, Reply, ToolCall, Usage
from dressage_llm_agent.roles.base import Role

PREFIX = "recorded/"
"""Prefix of the names of recordings as models."""

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_KEY = re.compile(r"[a-z0-9][a-z0-9_-]*(/[a-z0-9][a-z0-9_-]*)*")
# Keys of tasks of a resumed session end with its epoch, which recordings do not have.
_EPOCH = re.compile(r"-e\d+$")
_MAX_ENTRY_BYTES = 4_000_000


class Recordings:
    """Folders with a recording in each sub-folder.

    :param folders: the first one that has a recording of a name is used; empty if none is configured.
    """

    def __init__(self, folders: Sequence[Path] = ()) -> None:
        self._folders = tuple(folders)

    def describe(self, model: str) -> ModelDescription:
        """Describe a recording as a model: free of cost, and configured if it exists."""
        try:
            self.open(model)
            problem = ""
        except (InvalidArgument, FailedPrecondition) as error:
            problem = error.message
        return ModelDescription(
            model,
            language_model=False,
            configured=not problem,
            input_dollars_per_million=0.0,
            output_dollars_per_million=0.0,
            problem=problem,
        )

    def open(self, model: str) -> Recording:
        """Return the recording of a model's name.

        :raises InvalidArgument: for an invalid name.
        :raises FailedPrecondition: ``NO_RECORDING``.
        """
        name = model.removeprefix(PREFIX)
        if not _NAME.fullmatch(name):
            raise InvalidArgument(field="model", value=model[:80], expected=f"{PREFIX}NAME, of a-z, 0-9, - and _")
        if not self._folders:
            message = (
                f"no folder of recordings is configured for the model {model}: start the server with "
                "`dressage serve --recordings FOLDER`, or use `dressage run --replay` without a server"
            )
            raise FailedPrecondition(message, reason="NO_RECORDING")
        places = [folder / name for folder in self._folders]
        for place in places:
            if (place / "llm").is_dir():
                return Recording(name, place)
        missing = " or ".join(f"{place}/llm" for place in places)
        raise FailedPrecondition(f"there is no recording {name}: no folder {missing}", reason="NO_RECORDING")


class Recording:
    """The replies of one session."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self._folder = folder

    def reply(self, key: str, turn: int, sample: int) -> Reply | None:
        """Return the reply for a turn of a task, without cost; None if there is none.

        :raises FailedPrecondition: ``RECORDING_CORRUPT``.
        """
        if not _KEY.fullmatch(key):
            return None
        path = self._folder / "llm" / _EPOCH.sub("", key) / f"{turn}-{sample}.json"
        text = _read(path)
        if text is None:
            written = _read(path.with_suffix(".md"))
            return None if written is None else Reply(written, usage=Usage(dollars=0.0))
        try:
            entry: Any = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise _corrupt(path, str(error)) from None
        if not isinstance(entry, Mapping) or entry.get("kind") != "reply":
            raise _corrupt(path, "it is not a journalled reply")
        return replace(read_reply(entry, str(path)), usage=Usage(dollars=0.0))


class RecordedJournal:
    """A session's journal with a recording behind it.

    :param journal: the session's journal; it also stores the replies of the recording, which is not needed afterwards.
    :param key: the task's key in the session.
    :param role: the task's role.
    """

    def __init__(self, journal: Journal, recording: Recording, *, key: str, role: Role[Any]) -> None:
        self._journal = journal
        self._recording = recording
        self._key = key
        self._role = role

    def entry(self, turn: int, request: CompletionRequest) -> str:
        return self._journal.entry(turn, request)

    async def reply(self, turn: int, request: CompletionRequest) -> Reply | None:
        """Return the reply of the session, or of the recording.

        :raises FailedPrecondition: with the role's reason if neither has one. A reviser's and a fixer's end a session with the
            best policy so far.
        """
        journal_reply = await self._journal.reply(turn, request)
        if journal_reply is not None:
            return journal_reply
        recorded_reply = await asyncio.to_thread(self._recording.reply, self._key, turn, request.sample)
        if recorded_reply is not None:
            return await self._journal.record(turn, request, recorded_reply)
        message = f"the recording {self._recording.name} has no reply for {self._key}, turn {turn}"
        reason = self._role.no_recording if turn == 0 else "RECORDING_ENDED"
        raise FailedPrecondition(message, reason=reason, metadata={"key": self._key})

    async def record(self, turn: int, request: CompletionRequest, reply: Reply) -> Reply:
        return await self._journal.record(turn, request, reply)

    async def tool_result(self, turn: int, call: ToolCall, index: int, sample: int) -> ToolOutcome | None:
        """Return the result of the session: recordings have none, since tools run again."""
        return await self._journal.tool_result(turn, call, index, sample)

    async def record_tool_result(
        self, turn: int, call: ToolCall, index: int, sample: int, outcome: ToolOutcome
    ) -> ToolOutcome:
        return await self._journal.record_tool_result(turn, call, index, sample, outcome)


def _read(path: Path) -> str | None:
    """Return the text of a file; None if there is none.

    :raises FailedPrecondition: ``RECORDING_CORRUPT``.
    """
    try:
        if path.stat().st_size > _MAX_ENTRY_BYTES:
            raise _corrupt(path, f"it is larger than {_MAX_ENTRY_BYTES} bytes")
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise _corrupt(path, str(error)) from None


def _corrupt(path: Path, why: str) -> FailedPrecondition:
    return FailedPrecondition(f"the recorded reply {path} cannot be read: {why}", reason="RECORDING_CORRUPT")
