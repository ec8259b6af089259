"""Recorded authors: a session's replies, given again in another session, where everything but the words is done anew.

A recording is a folder laid out as the journal of a session is: ``llm/{task key}/{turn}-{sample}.json``. So any session's
folder of the artifact store is one. A session whose model is ``recorded/{name}`` is answered from the recording of that name.
Tools that a reply calls are run, code is checked, policies are trained, judges judge: what comes of the replies is computed,
never read.

Replies are found by task key, turn and sample alone. The request's hash, which a journal holds them to, cannot be held to
here: a reviser's request quotes scores, and these come out anew.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dressage.errors import FailedPrecondition, InvalidArgument

from dressage_llm_agent.journal import Journal, ToolOutcome, read_reply
from dressage_llm_agent.provider.base import CompletionRequest, ModelDescription, Reply, ToolCall, Usage

PREFIX = "recorded/"
"""Models whose names begin so are recordings."""

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_KEY = re.compile(r"[a-z0-9][a-z0-9_-]*(/[a-z0-9][a-z0-9_-]*)*")
# A resumed session's tasks have its epoch in their keys; the recording answers them all the same.
_EPOCH = re.compile(r"-e\d+$")
_MAX_ENTRY_BYTES = 4_000_000
# What the callers of roles take as "there is nobody for that", as the template author says it.
_NOBODY = {"reviser": "TEMPLATE_NO_REVISION", "fixer": "TEMPLATE_CANNOT_FIX"}


class Recordings:
    """A folder with a recording in each sub-folder.

    :param folder: None where none is configured.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def describe(self, model: str) -> ModelDescription:
        """A recording as a model: it costs nothing, and is configured if it is there."""
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
        """The recording that a model's name stands for.

        :raises InvalidArgument: the name is none.
        :raises FailedPrecondition: ``NO_RECORDING``.
        """
        name = model.removeprefix(PREFIX)
        if not _NAME.fullmatch(name):
            raise InvalidArgument(field="model", value=model[:80], expected=f"{PREFIX}NAME, of a-z, 0-9, - and _")
        if self._folder is None:
            message = (
                f"no folder of recordings is configured for the model {model}: start the server with "
                "`dressage serve --recordings FOLDER`, or use `dressage run --replay` without a server"
            )
            raise FailedPrecondition(message, reason="NO_RECORDING")
        folder = self._folder / name
        if not (folder / "llm").is_dir():
            raise FailedPrecondition(f"there is no recording {name}: no folder {folder}/llm", reason="NO_RECORDING")
        return Recording(name, folder)


class Recording:
    """The replies of one session."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self._folder = folder

    def reply(self, key: str, turn: int, sample: int) -> Reply | None:
        """The reply recorded for a turn of a task; None if there is none. It cost nothing this time.

        :raises FailedPrecondition: ``RECORDING_CORRUPT``.
        """
        if not _KEY.fullmatch(key):
            return None
        path = self._folder / "llm" / _EPOCH.sub("", key) / f"{turn}-{sample}.json"
        try:
            if path.stat().st_size > _MAX_ENTRY_BYTES:
                raise _corrupt(path, f"it is larger than {_MAX_ENTRY_BYTES} bytes")
            entry: Any = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise _corrupt(path, str(error)) from None
        if not isinstance(entry, Mapping) or entry.get("kind") != "reply":
            raise _corrupt(path, "it is no journalled reply")
        return replace(read_reply(entry, str(path)), usage=Usage(dollars=0.0))


class RecordedJournal:
    """A session's journal that takes what it lacks from a recording; see `dressage_llm_agent.journal.Journal`.

    :param own: the session's journal; what is taken is written into it, so a session is whole without its recording.
    :param key: the task's key in the session.
    :param role: the task's role.
    """

    def __init__(self, own: Journal, recording: Recording, *, key: str, role: str) -> None:
        self._own = own
        self._recording = recording
        self._key = key
        self._role = role

    async def reply(self, turn: int, request: CompletionRequest) -> Reply | None:
        """The reply of the session, else of the recording.

        :raises FailedPrecondition: where neither has one; a reviser's and a fixer's reason end a session as the template
            author's do, with the best policy so far.
        """
        own = await self._own.reply(turn, request)
        if own is not None:
            return own
        recorded = await asyncio.to_thread(self._recording.reply, self._key, turn, request.sample)
        if recorded is not None:
            return await self._own.record(turn, request, recorded)
        message = f"the recording {self._recording.name} has no reply for {self._key}, turn {turn}"
        reason = _NOBODY.get(self._role, "TEMPLATE_NO_SUCH_ROLE") if turn == 0 else "RECORDING_ENDED"
        raise FailedPrecondition(message, reason=reason, metadata={"key": self._key})

    async def record(self, turn: int, request: CompletionRequest, reply: Reply) -> Reply:
        """See `Journal`."""
        return await self._own.record(turn, request, reply)

    async def tool_result(self, turn: int, call: ToolCall, index: int, sample: int) -> ToolOutcome | None:
        """Of the session only: tools are run anew."""
        return await self._own.tool_result(turn, call, index, sample)

    async def record_tool_result(
        self, turn: int, call: ToolCall, index: int, sample: int, outcome: ToolOutcome
    ) -> ToolOutcome:
        """See `Journal`."""
        return await self._own.record_tool_result(turn, call, index, sample, outcome)


def _corrupt(path: Path, why: str) -> FailedPrecondition:
    return FailedPrecondition(f"the recorded reply {path} cannot be read: {why}", reason="RECORDING_CORRUPT")
