"""A model's thinking in a conversation with tools: what its provider requires back, in the form of the client library.

Anthropic requires the signed thinking blocks of a reply with tool calls in the next request, Gemini the thought signatures of
its parts, OpenAI's Responses API its reasoning items, and DeepSeek and Moonshot the text of the reasoning. Without them a
provider refuses the request, or the model has lost its reasoning. litellm returns them as fields of the message and of its tool
calls and accepts the same fields (Gemini's signature of a call is also a part of the call's id). Here they become one opaque
text, which is journalled with the reply.
"""

from __future__ import annotations

import json
from typing import Any

_BLOCKS = ("thinking_blocks", "reasoning_items")
_REASONING = "reasoning_content"
# Providers that require the text itself; others refuse the field or ignore it.
_REQUIRE_TEXT = frozenset({"deepseek", "moonshot", "zai", "minimax"})
_OWN = "provider_specific_fields"
_MESSAGE_SIGNATURES, _CALL_SIGNATURE = "thought_signatures", "thought_signature"


def of_message(message: Any, provider: str) -> str:
    """Return what the provider requires back with a reply; empty if nothing."""
    blocks = {name: value for name in _BLOCKS if (value := _plain(getattr(message, name, None)))}
    if provider in _REQUIRE_TEXT and (text := getattr(message, _REASONING, None)):
        blocks[_REASONING] = text
    own = _plain(getattr(message, _OWN, None))
    if isinstance(own, dict) and own.get(_MESSAGE_SIGNATURES):
        blocks[_OWN] = {_MESSAGE_SIGNATURES: own[_MESSAGE_SIGNATURES]}
    return _text(blocks)


def of_call(call: Any) -> str:
    """Return what the provider requires back with a tool call; empty if nothing."""
    for holder in (call, getattr(call, "function", None)):
        own = _plain(getattr(holder, _OWN, None))
        if isinstance(own, dict) and own.get(_CALL_SIGNATURE):
            return _text({_OWN: {_CALL_SIGNATURE: own[_CALL_SIGNATURE]}})
    return ""


def fields(opaque: str) -> dict[str, Any]:
    """Return the fields of a message or of a tool call that an opaque text holds."""
    value: dict[str, Any] = json.loads(opaque) if opaque else {}
    return value


def _plain(value: Any) -> Any:
    """Return a value of the client library as JSON values."""
    if hasattr(value, "model_dump"):
        return _plain(value.model_dump(exclude_none=True))
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items() if entry is not None}
    return [_plain(entry) for entry in value] if isinstance(value, list | tuple) else value


def _text(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True) if value else ""
