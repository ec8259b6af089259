"""Retries, the journal, redaction and budgets, without a network."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from dressage.api.v1 import session_pb2 as v1
from dressage.artifacts.directory import DirectoryStore
from dressage.errors import DressageError, FailedPrecondition, Internal, ResourceExhausted
from dressage_llm_agent.costs import Ledger
from dressage_llm_agent.journal import StoreJournal, ToolOutcome
from dressage_llm_agent.provider.base import (
    RETRYABLE,
    CompletionRequest,
    Message,
    ProviderFault,
    Reply,
    ToolCall,
    Usage,
)
from dressage_llm_agent.provider.redaction import Redactor
from dressage_llm_agent.provider.retrying import RetryingProvider, RetryPolicy
from hypothesis import given
from hypothesis import strategies as st

REQUEST = CompletionRequest("openai/x", (Message("user", "hello"),))
SECRET = "top-secret-value-123"
NOW = datetime(2026, 1, 2, tzinfo=UTC)


class Scripted:
    """Raises or returns the given outcomes, in order."""

    def __init__(self, *outcomes):
        self.outcomes = list(outcomes)
        self.requests = 0

    async def complete(self, request):
        self.requests += 1
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def describe(self, model):
        raise NotImplementedError


FOUR = RetryPolicy(4, 1.0, 60.0)


def ask(provider, policy=FOUR, jitter=1.0):
    waits = []

    async def sleep(seconds):
        waits.append(seconds)

    retrying = RetryingProvider(provider, policy, sleep=sleep, jitter=lambda: jitter)
    return asyncio.run(retrying.complete(REQUEST)), waits


def test_waits_double_and_are_bounded():
    faults = [ProviderFault("server", "x") for _ in range(5)]
    reply, waits = ask(Scripted(*faults, Reply("hi")), RetryPolicy(6, 1.0, 5.0))
    assert reply.text == "hi" and waits == [1.0, 2.0, 4.0, 5.0, 5.0]


def test_the_wait_is_the_one_that_the_provider_requires():
    _, waits = ask(Scripted(ProviderFault("rate_limited", "x", retry_after=17), Reply("hi")))
    assert waits == [17]


def test_jitter_halves_at_most():
    _, waits = ask(Scripted(ProviderFault("timeout", "x"), Reply("hi")), jitter=0.0)
    assert waits == [0.5]


@pytest.mark.parametrize("kind", sorted({"auth", "bad_request", "too_large"} | RETRYABLE))
def test_only_transient_faults_are_retried(kind):
    provider = Scripted(*[ProviderFault(kind, "why") for _ in range(4)])
    with pytest.raises(DressageError, match="openai/x: why") as caught:
        ask(provider)
    assert provider.requests == (4 if kind in RETRYABLE else 1)
    assert caught.value.reason.startswith("LLM_")


def test_an_error_of_the_service_itself_is_not_retried():
    provider = Scripted(ValueError("a bug"))
    with pytest.raises(ValueError, match="a bug"):
        ask(provider)
    assert provider.requests == 1


def make_journal(path, key="iterations/1/fixer/1"):
    return StoreJournal(
        DirectoryStore(path), session="sessions/s", key=key, redactor=Redactor([SECRET]), now=lambda: NOW
    )


REPLY = Reply("text", (ToolCall("call_0", "get_scores", "{}"),), Usage(10, 5, 0.25), "tool_calls")


def test_a_journalled_reply_is_returned_unchanged(tmp_path):
    async def run():
        assert await make_journal(tmp_path).reply(0, REQUEST) is None
        assert await make_journal(tmp_path).record(0, REQUEST, REPLY) == REPLY
        assert await make_journal(tmp_path).reply(0, REQUEST) == REPLY
        # Votes stay votes: another sample of the same turn is another reply.
        assert await make_journal(tmp_path).reply(0, replace(REQUEST, sample=1)) is None
        assert await make_journal(tmp_path).reply(1, REQUEST) is None

    asyncio.run(run())
    entry = json.loads((tmp_path / "sessions/s/llm/iterations/1/fixer/1/0-0.json").read_text())
    assert entry["request_sha256"] == REQUEST.sha256() and entry["time"] == NOW.isoformat()


def test_of_two_writers_the_first_reply_is_used_and_both_costs_count(tmp_path):
    async def run():
        await make_journal(tmp_path).record(0, REQUEST, REPLY)
        later = replace(REPLY, text="other", usage=Usage(1, 1, 0.5))
        return await make_journal(tmp_path).record(0, REQUEST, later)

    used = asyncio.run(run())
    assert used.text == "text" and used.usage == Usage(1, 1, 0.5)


@pytest.mark.parametrize(
    "change", [{"model": "other/y"}, {"messages": (Message("user", "bye"),)}, {"temperature": 0.5}]
)
def test_another_request_under_the_same_key_is_an_error(tmp_path, change):
    async def run():
        await make_journal(tmp_path).record(0, REQUEST, REPLY)
        await make_journal(tmp_path).reply(0, replace(REQUEST, **change))

    with pytest.raises(FailedPrecondition) as caught:
        asyncio.run(run())
    assert caught.value.reason == "JOURNAL_MISMATCH"


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b'{"version": 9}', b'{"version": 1}', b'{"version": 1, "reply": 3}']
)
def test_a_damaged_entry_is_reported_by_its_key(tmp_path, data):
    DirectoryStore(tmp_path).put("sessions/s/llm/iterations/1/fixer/1/0-0.json", data)
    with pytest.raises(Internal, match=r"fixer/1/0-0\.json"):
        asyncio.run(make_journal(tmp_path).reply(0, REQUEST))


def test_tool_results_are_journalled_with_their_call(tmp_path):
    call, other = REPLY.tool_calls[0], ToolCall("call_0", "get_scores", '{"a": 1}')

    async def run():
        journal = make_journal(tmp_path)
        assert await journal.tool_result(0, call, 0, 0) is None
        await journal.record_tool_result(0, call, 0, 0, ToolOutcome(f"0.2 {SECRET}", is_error=True))
        assert await journal.tool_result(0, call, 0, 0) == ToolOutcome("0.2 [redacted]", is_error=True)
        await journal.tool_result(0, other, 0, 0)

    with pytest.raises(FailedPrecondition, match="tool-0"):
        asyncio.run(run())


@given(before=st.text(max_size=20), after=st.text(max_size=20))
def test_a_known_secret_never_survives(before, after):
    assert SECRET not in Redactor([SECRET]).redact(before + SECRET + after)


@pytest.mark.parametrize(
    "secret",
    ["sk-abcdefghijklmnop1234", "gsk_abcdefghijklmnop1234", "AIzaSyA1234567890abcdefghijkl", "Bearer abcdef0123456789"],
)
def test_text_in_the_form_of_a_key_is_redacted(secret):
    assert secret not in Redactor().redact(f"key=\n{secret}\n")


def test_ordinary_words_are_not_redacted():
    text = "run forward at 2 m/s; the task-specific bearer of skills asks for a sk-8 board"
    assert Redactor.from_environment({"SOME_KEY": "run", "PATH": "forward"}).redact(text) == text


def test_costs_add_up_and_an_unknown_price_is_not_zero():
    ledger = Ledger()
    ledger.add(Usage(10, 5, 0.25))
    ledger.add(Usage(1, 1, 0.5))
    assert (ledger.requests, ledger.input_tokens, ledger.output_tokens, ledger.dollars) == (2, 11, 6, 0.75)
    ledger.add(Usage(1, 1, None))
    ledger.add(Usage(1, 1, 0.5))
    assert ledger.dollars is None


@pytest.mark.parametrize(
    ("budget", "kind"),
    [(v1.Budget(tokens=15), "tokens"), (v1.Budget(dollars=0.25), "dollars"), (v1.Budget(dollars=0.0), "dollars")],
)
def test_a_used_up_budget_refuses_requests(budget, kind):
    ledger = Ledger()
    ledger.add(Usage(10, 5, 0.25))
    with pytest.raises(ResourceExhausted) as caught:
        ledger.check(budget)
    assert caught.value.metadata == {"kind": kind}
    ledger.check(v1.Budget())


def test_litellm_is_imported_only_at_its_first_use():
    code = "import sys, dressage_llm_agent.wiring; sys.exit('litellm' in sys.modules or 'openai' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
