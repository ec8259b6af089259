"""Thinking across the turns of a tool call, reasoning efforts, and endpoints of single roles, through litellm."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest
from dressage.artifacts.directory import DirectoryStore
from dressage_llm_agent.journal import StoreJournal
from dressage_llm_agent.provider.base import CompletionRequest, Message, ProviderFault, ToolCall, ToolSpec
from dressage_llm_agent.provider.litellm_provider import LitellmProvider, load_litellm
from dressage_llm_agent.provider.redaction import Redactor
from dressage_llm_agent.provider.thinking import thinking_arguments

from tests.fakes.json_server import JsonServer
from tests.fakes.openai_server import Answer, Call, ScriptedServer
from tests.unit.llm_agent.test_llm_provider import NOW

TOOL = ToolSpec("look", "looks", {"type": "object", "properties": {}, "required": []})
# Long enough for the pattern of secrets, which must not match it.
SIGNATURE = "sk-" + "EqQBCgIYAhIkMWI3" * 4

ANTHROPIC = {
    "id": "m1",
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-4-5",
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {"input_tokens": 10, "output_tokens": 5},
    "content": [
        {"type": "thinking", "thinking": "I have to look.", "signature": SIGNATURE},
        {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}},
    ],
}
ANTHROPIC_END = {**ANTHROPIC, "stop_reason": "end_turn", "content": [{"type": "text", "text": "done"}]}
CALL_PART = {"functionCall": {"name": "look", "args": {}}, "thoughtSignature": SIGNATURE}
GEMINI = {
    "candidates": [{"content": {"role": "model", "parts": [CALL_PART]}, "finishReason": "STOP", "index": 0}],
    "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15},
}
GEMINI_END = {
    **GEMINI,
    "candidates": [{"content": {"role": "model", "parts": [{"text": "done"}]}, "finishReason": "STOP", "index": 0}],
}


def provider(url, **more):
    return LitellmProvider(api_base=url, api_key="k", deadline=30.0, redactor=Redactor([]), **more)


def converse(url, model, tmp_path, **more):
    """Two turns with a tool call between them; the first reply is read back from a journal, as after a crash."""

    async def run():
        journal = StoreJournal(
            DirectoryStore(tmp_path), session="sessions/s", key="k", redactor=Redactor([]), now=lambda: NOW
        )
        request = CompletionRequest(model, (Message("user", "look"),), tools=(TOOL,), thinking="high")
        first = await provider(url, **more).complete(request)
        assert await journal.record(0, request, first) == first
        journalled = await journal.reply(0, request)
        assert journalled == first
        messages = (
            *request.messages,
            Message("assistant", first.text, first.tool_calls, opaque=first.opaque),
            Message("tool", "a wall", tool_call_id=first.tool_calls[0].id),
        )
        return first, await provider(url, **more).complete(replace(request, messages=messages))

    return asyncio.run(run())


def test_anthropic_gets_its_signed_thinking_back_with_the_tool_result(tmp_path):
    with JsonServer([ANTHROPIC, ANTHROPIC_END]) as server:
        first, last = converse(server.url, "anthropic/claude-sonnet-4-5", tmp_path)
    assert last.text == "done" and "I have to look." not in first.text
    sent = server.requests[1][2]["messages"]
    thinking, call = sent[1]["content"]
    assert thinking == {"type": "thinking", "thinking": "I have to look.", "signature": SIGNATURE}
    assert call["type"] == "tool_use" and call["id"] == "toolu_1"


def test_gemini_gets_the_signature_of_its_call_back(tmp_path):
    with JsonServer([GEMINI, GEMINI_END]) as server:
        _, last = converse(server.url, "gemini/gemini-3-pro-preview", tmp_path)
    assert last.text == "done"
    parts = [part for content in server.requests[1][2]["contents"] for part in content["parts"]]
    (call,) = [part for part in parts if "function_call" in part or "functionCall" in part]
    assert call["thoughtSignature"] == SIGNATURE


def test_openai_gets_no_field_that_it_does_not_know(tmp_path):
    with ScriptedServer([Answer(calls=(Call("look"),)), Answer("done")]) as server:
        first, last = converse(server.url, "openai/gpt-4.1", tmp_path)
    assert last.text == "done" and first.opaque == ""
    sent = server.requests[1].body["messages"][1]
    assert set(sent) <= {"role", "content", "tool_calls"}
    assert set(sent["tool_calls"][0]) == {"id", "type", "function"}


def test_an_empty_opaque_text_does_not_change_the_hash_of_a_request():
    bare = CompletionRequest("m", (Message("assistant", "", (ToolCall("1", "look", "{}"),)),))
    assert "opaque" not in json.dumps(bare.sha256()) and bare.sha256() == replace(bare, api_base="http://x").sha256()
    signed = CompletionRequest("m", (Message("assistant", "", (ToolCall("1", "look", "{}", "{}"),)),))
    assert signed.sha256() != bare.sha256()


@pytest.mark.parametrize(
    ("model", "effort", "sent"),
    [
        ("openai/gpt-5.2", "xhigh", "xhigh"),
        ("openai/gpt-5.2", "max", "xhigh"),
        ("openai/gpt-5.2", "minimal", "low"),
        ("openai/o3", "max", "high"),
        ("anthropic/claude-opus-4-6", "max", "max"),
        ("anthropic/claude-sonnet-4-5", "max", "max"),
        ("gemini/gemini-2.5-pro", "xhigh", "high"),
        ("hosted_vllm/some-model", "max", "high"),
    ],
)
def test_an_effort_is_the_highest_that_the_model_offers(model, effort, sent):
    assert thinking_arguments(load_litellm(), model, effort) == {"reasoning_effort": sent}


def test_only_allowed_endpoints_are_used_and_each_gets_its_own_key():
    request = CompletionRequest("openai/gpt-4.1", (Message("user", "hello"),))
    with ScriptedServer([Answer("general")], key="k") as one, ScriptedServer([Answer("single")], key="other") as two:
        allowed = provider(one.url, api_bases={two.url: "other"})
        assert asyncio.run(allowed.complete(request)).text == "general"
        assert asyncio.run(allowed.complete(replace(request, api_base=two.url))).text == "single"
        with pytest.raises(ProviderFault, match="is not allowed on this server") as refused:
            asyncio.run(allowed.complete(replace(request, api_base="http://elsewhere")))
        assert refused.value.kind == "bad_request"
        described = asyncio.run(allowed.describe("openai/gpt-4.1", "http://elsewhere"))
        assert not described.configured and "is not allowed" in described.problem


@pytest.mark.parametrize("name", ["oobabooga/{url}", "huggingface/{url}", "oobabooga/http:/responses//{host}"])
def test_a_model_name_that_holds_an_address_reaches_no_server(name):
    with ScriptedServer([Answer("reached")]) as server:
        host = server.url.removeprefix("http://")
        model = name.format(url=server.url.removesuffix("/v1"), host=host)
        plain = LitellmProvider(deadline=30.0, redactor=Redactor([]))
        with pytest.raises(ProviderFault, match="expected provider/model") as refused:
            asyncio.run(plain.complete(CompletionRequest(model, (Message("user", "hello"),))))
        assert refused.value.kind == "bad_request" and not server.requests
        described = asyncio.run(plain.describe(model))
        assert not described.configured and "expected provider/model" in described.problem


@pytest.mark.parametrize("model", ["github_copilot/gpt-4", "chatgpt/gpt-5"])
def test_providers_that_need_a_login_by_hand_are_refused(model):
    described = asyncio.run(LitellmProvider(deadline=30.0, redactor=Redactor([])).describe(model))
    assert not described.configured and "login" in described.problem
