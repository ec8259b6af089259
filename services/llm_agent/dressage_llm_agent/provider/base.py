"""The protocol of a model provider, and the values that go through it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
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


@dataclass(frozen=True)
class Message:
    """One message of a conversation."""

    role: MessageRole
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""


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
        """Hash of the request in a canonical form, for the journal."""
        canonical = json.dumps(asdict(self), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
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
    """What is known of a model; prices are per million tokens, None where unknown."""

    model: str
    language_model: bool
    configured: bool
    input_dollars_per_million: float | None = None
    output_dollars_per_million: float | None = None
    problem: str = ""


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
