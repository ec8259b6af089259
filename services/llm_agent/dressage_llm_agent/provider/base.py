"""The protocol of a model provider, and the values that go through it."""

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
    """A tool that a model asks for; ``arguments`` is the text it wrote, which may be no JSON."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class ToolSpec:
    """A tool that a model may ask for; ``parameters`` is a JSON schema of an object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


AttachmentKind = Literal["image", "video", "video_url"]


@dataclass(frozen=True)
class Attachment:
    """A picture or a clip that goes with a message.

    :param kind: ``video`` is sent as a file, ``video_url`` as vLLM takes it.
    :param key: where it lies in the artifact store.
    :param sha256: hash of ``data``; both are empty until it is loaded.
    """

    kind: AttachmentKind
    key: str
    mime: str
    sha256: str = ""
    data: bytes = field(default=b"", repr=False, compare=False)


@dataclass(frozen=True)
class Message:
    """One message of a conversation."""

    role: MessageRole
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    attachments: tuple[Attachment, ...] = ()


@dataclass(frozen=True)
class CompletionRequest:
    """What is asked of a model.

    :param model: as litellm names it.
    :param tools_allowed: False: the model is shown the tools, for the history's sake, but must answer in text.
    :param thinking: effort (``low``, ``medium``, ``high``), ``off``, or empty for the model's default.
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

    def sha256(self) -> str:
        """Hash of the request in a canonical form, for the journal; of attachments their hashes count."""
        bare = replace(self, messages=tuple(replace(message, attachments=()) for message in self.messages))
        plain = asdict(bare)
        for message, written in zip(self.messages, plain["messages"], strict=True):
            # Left out where there are none: texts keep the hash that they had before there were pictures.
            del written["attachments"]
            if message.attachments:
                written["attachments"] = [[each.kind, each.mime, each.sha256] for each in message.attachments]
        canonical = json.dumps(plain, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()


@dataclass(frozen=True)
class Usage:
    """What a reply cost; ``dollars`` is None where the model's price is unknown."""

    input_tokens: int = 0
    output_tokens: int = 0
    dollars: float | None = None


@dataclass(frozen=True)
class Reply:
    """What a model answered.

    :param finish_reason: ``stop``, ``length`` (cut off at the token limit), ``tool_calls``, ….
    """

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = field(default_factory=Usage)
    finish_reason: str = "stop"


@dataclass(frozen=True)
class ModelDescription:
    """What is known of a model; prices are per million tokens, None where unknown.

    :param supports_images: it takes pictures.
    :param supports_video: it takes video as a file.
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
    """A request that brought no usable reply.

    :param message: one plain sentence without secrets.
    :param retry_after: seconds that the provider asks to wait, if it does.
    """

    def __init__(self, kind: FaultKind, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.retry_after = retry_after


class Provider(Protocol):
    """Somebody who answers completion requests."""

    async def complete(self, request: CompletionRequest) -> Reply:
        """The reply to one request, sent once.

        :raises ProviderFault: for whatever goes wrong.
        """
        ...

    async def describe(self, model: str) -> ModelDescription:
        """What is known of a model, without a request to it."""
        ...
