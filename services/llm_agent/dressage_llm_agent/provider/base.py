"""The protocol of a model provider, with its requests and replies."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Protocol

MessageRole = Literal["system", "user", "assistant", "tool"]
FaultKind = Literal["rate_limited", "server", "timeout", "connection", "malformed", "too_large", "auth", "bad_request"]
RETRYABLE: frozenset[FaultKind] = frozenset({"rate_limited", "server", "timeout", "connection", "malformed"})


@dataclass(frozen=True)
class ToolCall:
    """A call of a tool by a model; ``arguments`` is the model's text, which may not be valid JSON.

    :param opaque: the provider's own fields, JSON, which it requires with the call in the next request; empty: none.
    """

    id: str
    name: str
    arguments: str
    opaque: str = ""


@dataclass(frozen=True)
class ToolSpec:
    """A tool that a model may call; ``parameters`` is a JSON schema of an object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


EFFORTS = ("minimal", "low", "medium", "high", "xhigh", "max")
"""Reasoning efforts, ascending."""

AttachmentKind = Literal["image", "video", "video_url"]


@dataclass(frozen=True)
class Attachment:
    """An image or a clip of a message.

    :param kind: ``video`` is sent as a file, ``video_url`` in the form of vLLM.
    :param key: its key in the artifact store.
    :param fps: frames per second at which a clip must be sampled; 0 for an image.
    :param sha256: hash of ``data``; both are empty before it is loaded.
    """

    kind: AttachmentKind
    key: str
    mime: str
    fps: float = 0.0
    sha256: str = ""
    data: bytes = field(default=b"", repr=False, compare=False)


@dataclass(frozen=True)
class Message:
    """One message of a conversation.

    :param opaque: see `Reply.opaque`.
    """

    role: MessageRole
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    attachments: tuple[Attachment, ...] = ()
    opaque: str = ""


@dataclass(frozen=True)
class CompletionRequest:
    """A request to a model.

    :param model: the litellm name.
    :param tools_allowed: False: the request lists the tools, which the history refers to, but the model must answer in text.
    :param thinking: reasoning effort (``minimal`` to ``max``, see `EFFORTS`), ``off``, or empty for the model's default.
    :param api_base: API endpoint; empty for the provider's setting. It is no part of the hash.
    :param sample: number of this reply among several to the same request (votes), from 0.
    """

    model: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    tools_allowed: bool = True
    max_output_tokens: int | None = None
    temperature: float | None = None
    thinking: str = ""
    sample: int = 0
    api_base: str = ""

    def sha256(self) -> str:
        """Return the hash of the request in a canonical form, for the journal; attachments contribute their hashes."""
        bare = replace(self, messages=tuple(replace(message, attachments=()) for message in self.messages))
        plain = asdict(bare)
        del plain["api_base"]
        for message, written in zip(self.messages, plain["messages"], strict=True):
            # Fields that are rarely set are left out where they are empty, so that they change no other hash.
            for part in (written, *written["tool_calls"]):
                if not part["opaque"]:
                    del part["opaque"]
            del written["attachments"]
            if message.attachments:
                written["attachments"] = [
                    [each.kind, each.mime, each.sha256, *([each.fps] if each.fps else [])]
                    for each in message.attachments
                ]
        canonical = json.dumps(plain, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()


@dataclass(frozen=True)
class Usage:
    """The usage of a reply; ``dollars`` is None if the model's price is unknown."""

    input_tokens: int = 0
    output_tokens: int = 0
    dollars: float | None = None


@dataclass(frozen=True)
class Reply:
    """A model's reply.

    :param finish_reason: ``stop``, ``length`` (cut off at the token limit), ``tool_calls``, ….
    :param opaque: the model's thinking with its signatures, JSON, in the form of the client library. Providers require it back
        in the turns after a tool call, and nothing else reads it.
    """

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = field(default_factory=Usage)
    finish_reason: str = "stop"
    opaque: str = ""


@dataclass(frozen=True)
class ModelDescription:
    """The description of a model; prices are per million tokens, None if unknown.

    :param supports_images: it is a vision model.
    :param supports_video: it accepts video as a file.
    """

    model: str
    language_model: bool
    configured: bool
    input_dollars_per_million: float | None = None
    output_dollars_per_million: float | None = None
    problem: str = ""
    supports_images: bool = False
    supports_video: bool = False


class ProviderFault(Exception):
    """A request without a usable reply.

    :param message: one sentence without secrets.
    :param retry_after: seconds to wait according to the provider; None if it names none.
    """

    def __init__(self, kind: FaultKind, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.retry_after = retry_after


class Provider(Protocol):
    """A service that answers completion requests."""

    async def complete(self, request: CompletionRequest) -> Reply:
        """Send one request once and return the reply.

        :raises ProviderFault: for any failure.
        """
        ...

    async def describe(self, model: str, api_base: str = "") -> ModelDescription:
        """Describe a model, without a request to it.

        :param api_base: API endpoint; empty for the provider's setting.
        """
        ...
