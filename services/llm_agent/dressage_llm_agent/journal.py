"""The journal: every reply is stored before it is used, so that it is not paid for again after a crash.

A conversation's entries are ``sessions/{s}/llm/{task key}/{turn}-{sample}.json`` for a reply, with the hash of its request, and
``…/{turn}-{sample}-tool-{n}.json`` for a tool's result. Writes are put-if-absent: of two processes that requested the same
reply, both use the first one. Secrets are redacted before an entry is written or used.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Protocol

from dressage.artifacts.store import ArtifactStore
from dressage.errors import FailedPrecondition, Internal, NotFound

from dressage_llm_agent.provider.base import CompletionRequest, Reply, ToolCall, Usage
from dressage_llm_agent.provider.redaction import Redactor

_VERSION = 1


@dataclass(frozen=True)
class ToolOutcome:
    """A tool's output; with ``is_error`` the tool failed, and ``content`` is the reason."""

    content: str
    is_error: bool = False


class Journal(Protocol):
    """The journal of one conversation."""

    def entry(self, turn: int, request: CompletionRequest) -> str:
        """Return a name of a turn's request that is unique in the store; empty if nothing is stored."""
        ...

    async def reply(self, turn: int, request: CompletionRequest) -> Reply | None:
        """Return the reply for this turn; None if there is none yet.

        :raises FailedPrecondition: ``JOURNAL_MISMATCH`` if the stored reply belongs to another request.
        """
        ...

    async def record(self, turn: int, request: CompletionRequest, reply: Reply) -> Reply:
        """Store a reply; return the one to use, which is the earlier one if another process stored it first."""
        ...

    async def tool_result(self, turn: int, call: ToolCall, index: int, sample: int) -> ToolOutcome | None:
        """Return the result of a turn's tool call; None if there is none yet."""
        ...

    async def record_tool_result(
        self, turn: int, call: ToolCall, index: int, sample: int, outcome: ToolOutcome
    ) -> ToolOutcome:
        """Store a tool's result; return the one to use."""
        ...


class StoreJournal:
    """A journal in the artifact store.

    :param session: ``sessions/{session}``.
    :param key: the task's key in the session.
    :param now: the present time, UTC.
    """

    def __init__(
        self, store: ArtifactStore, *, session: str, key: str, redactor: Redactor, now: Callable[[], datetime]
    ) -> None:
        self._store = store
        self._prefix = f"{session}/llm/{key}"
        self._redactor = redactor
        self._now = now

    def entry(self, turn: int, request: CompletionRequest) -> str:
        return f"{self._key(turn, request.sample)} {request.sha256()}"

    async def reply(self, turn: int, request: CompletionRequest) -> Reply | None:
        key = self._key(turn, request.sample)
        entry = await self._read(key)
        return None if entry is None else _reply(entry, request, key)

    async def record(self, turn: int, request: CompletionRequest, reply: Reply) -> Reply:
        reply = _redact(reply, self._redactor)
        key = self._key(turn, request.sample)
        entry = {
            "version": _VERSION,
            "kind": "reply",
            "request_sha256": request.sha256(),
            "model": request.model,
            "messages": [_message(message) for message in request.messages],
            "reply": {
                "text": reply.text,
                "tool_calls": [_call(call) for call in reply.tool_calls],
                "finish_reason": reply.finish_reason,
                **({"opaque": reply.opaque} if reply.opaque else {}),
            },
            "usage": {
                "input_tokens": reply.usage.input_tokens,
                "output_tokens": reply.usage.output_tokens,
                "dollars": reply.usage.dollars,
            },
            "time": self._now().isoformat(),
        }
        if await self._write(key, entry):
            return reply
        earlier = await self._read(key)
        if earlier is None:
            raise Internal(f"the journal entry {key} disappeared", reason="JOURNAL_CORRUPT")
        # The earlier reply is used; the cost of this one counts.
        return replace(_reply(earlier, request, key), usage=reply.usage)

    async def tool_result(self, turn: int, call: ToolCall, index: int, sample: int) -> ToolOutcome | None:
        key = self._key(turn, sample, index)
        entry = await self._read(key)
        return None if entry is None else _outcome(entry, call, key)

    async def record_tool_result(
        self, turn: int, call: ToolCall, index: int, sample: int, outcome: ToolOutcome
    ) -> ToolOutcome:
        outcome = replace(outcome, content=self._redactor.redact(outcome.content))
        key = self._key(turn, sample, index)
        entry = {
            "version": _VERSION,
            "kind": "tool_result",
            "call": _call(call),
            "content": outcome.content,
            "is_error": outcome.is_error,
            "time": self._now().isoformat(),
        }
        if await self._write(key, entry):
            return outcome
        return await self.tool_result(turn, call, index, sample) or outcome

    def _key(self, turn: int, sample: int, index: int | None = None) -> str:
        tail = "" if index is None else f"-tool-{index}"
        return f"{self._prefix}/{turn}-{sample}{tail}.json"

    async def _write(self, key: str, entry: Mapping[str, Any]) -> bool:
        # Each string is redacted before it is encoded: an escape next to a secret would hide its beginning.
        text = json.dumps(_clean(entry, self._redactor), indent=1, ensure_ascii=False)
        return await asyncio.to_thread(self._store.put, key, text.encode(), if_absent=True)

    async def _read(self, key: str) -> dict[str, Any] | None:
        try:
            data = await asyncio.to_thread(self._store.get, key)
        except NotFound:
            return None
        try:
            entry = json.loads(data)
        except ValueError:
            raise _corrupt(key, "it is not valid JSON") from None
        if not isinstance(entry, dict) or entry.get("version") != _VERSION:
            raise _corrupt(key, f"it is not of version {_VERSION}")
        return entry


class NoJournal:
    """The journal of tasks outside of a session: it stores nothing."""

    def entry(self, turn: int, request: CompletionRequest) -> str:
        """Return no name."""
        return ""

    async def reply(self, turn: int, request: CompletionRequest) -> Reply | None:
        """Return None."""
        return None

    async def record(self, turn: int, request: CompletionRequest, reply: Reply) -> Reply:
        """Return the reply."""
        return reply

    async def tool_result(self, turn: int, call: ToolCall, index: int, sample: int) -> ToolOutcome | None:
        """Return None."""
        return None

    async def record_tool_result(
        self, turn: int, call: ToolCall, index: int, sample: int, outcome: ToolOutcome
    ) -> ToolOutcome:
        """Return the outcome."""
        return outcome


def _redact(reply: Reply, redactor: Redactor) -> Reply:
    # What is opaque is signed: a change would make the provider refuse it.
    calls = tuple(replace(call, arguments=redactor.redact(call.arguments)) for call in reply.tool_calls)
    return replace(reply, text=redactor.redact(reply.text), tool_calls=calls)


def _clean(value: Any, redactor: Redactor) -> Any:
    if isinstance(value, str):
        return redactor.redact(value)
    if isinstance(value, dict):
        return {name: entry if name == "opaque" else _clean(entry, redactor) for name, entry in value.items()}
    return [_clean(entry, redactor) for entry in value] if isinstance(value, list) else value


def _message(message: Any) -> dict[str, Any]:
    plain = {"role": message.role, "content": message.content}
    if message.tool_calls:
        plain["tool_calls"] = [_call(call) for call in message.tool_calls]
    if message.tool_call_id:
        plain["tool_call_id"] = message.tool_call_id
    if message.attachments:
        # The files are in the store already.
        plain["attachments"] = [
            {"key": each.key, "mime": each.mime, "sha256": each.sha256, "bytes": len(each.data)}
            for each in message.attachments
        ]
    return plain


def _call(call: ToolCall) -> dict[str, str]:
    opaque = {"opaque": call.opaque} if call.opaque else {}
    return {"id": call.id, "name": call.name, "arguments": call.arguments, **opaque}


def _reply(entry: Mapping[str, Any], request: CompletionRequest, key: str) -> Reply:
    reply = read_reply(entry, key)
    if entry.get("request_sha256") != request.sha256():
        raise _mismatch(key)
    return reply


def read_reply(entry: Mapping[str, Any], key: str) -> Reply:
    """Return the reply of a journal's entry, without a check of its request.

    :raises Internal: ``JOURNAL_CORRUPT``.
    """
    try:
        reply, usage = entry["reply"], entry["usage"]
        calls = tuple(ToolCall(c["id"], c["name"], c["arguments"], c.get("opaque", "")) for c in reply["tool_calls"])
        spent = Usage(usage["input_tokens"], usage["output_tokens"], usage["dollars"])
        return Reply(reply["text"], calls, spent, reply["finish_reason"], reply.get("opaque", ""))
    except (KeyError, TypeError) as error:
        raise _corrupt(key, f"{error!r} is missing or of the wrong kind") from None


def _outcome(entry: Mapping[str, Any], call: ToolCall, key: str) -> ToolOutcome:
    try:
        matches = entry["call"] == _call(call)
        outcome = ToolOutcome(str(entry["content"]), bool(entry["is_error"]))
    except KeyError as error:
        raise _corrupt(key, f"{error} is missing") from None
    if not matches:
        raise _mismatch(key)
    return outcome


def _mismatch(key: str) -> FailedPrecondition:
    return FailedPrecondition(
        f"key: the journal entry {key} belongs to another request: the key was used with other inputs, or the prompts have "
        "changed since. Use another key, or delete the entry to request a new reply",
        reason="JOURNAL_MISMATCH",
        metadata={"key": key},
    )


def _corrupt(key: str, why: str) -> Internal:
    return Internal(f"the journal entry {key} cannot be read: {why}", reason="JOURNAL_CORRUPT", metadata={"key": key})
