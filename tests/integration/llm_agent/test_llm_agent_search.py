"""The roles for parameters and code over gRPC, with a provider that fails, answers badly, and answers well."""

from __future__ import annotations

import asyncio
import json

import pytest
from dressage.api.internal.v1 import agent_service_pb2 as pb
from openai_server import Answer, ScriptedServer
from search_authors import SearchAuthors
from test_llm_agent_service import MODEL, SESSION, journal, service

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(180)]

BRIEF = pb.Brief(intent="balance the pole", environment="CartPole-v1")
FORM = pb.ParameterForm(kind="linear", size=10, range=6, enforced=True, bias=True)
EVIDENCE = "20 episodes, mean 31.5; step 12: angle 0.21 rad, action 0 -> terminated\n" * 40
GOOD = "## Explanation\nA guess.\n\n```json\n[1, 2, 3, 4, 5, 6, -1, -2, -3, -4.5]\n```\n"
PATIENT = {"request_seconds": 60.0, "attempts": 6}
VALUES = [1, 2, 3, 4, 5, 6, -1, -2, -3, -4.5]


def proposer(key="iterations/1/parameter_proposer", **changes):
    task = pb.Task(session=SESSION, key=key, model=MODEL)
    task.parameter_proposer.CopyFrom(pb.ParameterProposerTask(brief=BRIEF, form=FORM, iteration=1, **changes))
    return task


def critic(key="iterations/1/critic", **changes):
    task = pb.Task(session=SESSION, key=key, model=MODEL)
    proposal = pb.ParameterTrial(values=VALUES, mean_return=31.5, episodes=20)
    task.critic.CopyFrom(
        pb.CriticTask(brief=BRIEF, form=FORM, proposal=proposal, evidence=EVIDENCE, focus="diagnosis", **changes)
    )
    return task


def code(role, key, **fields):
    task = pb.Task(session=SESSION, key=key, model=MODEL)
    inner = getattr(task, role)
    inner.MergeFrom(type(inner)(brief=BRIEF, **fields))
    return task


@pytest.mark.parametrize(
    "faults",
    [
        [Answer(status=429, retry_after=0.05), Answer(status=500), Answer(fault="truncate")],
        [Answer("x", fault="cut"), Answer(status=503), Answer(status=429)],
        [Answer("no idea"), Answer(status=500)],
        [Answer(status=429), Answer(GOOD.replace("-4.5", "7.25"))],
    ],
)
async def test_a_call_is_repeated_until_its_reply_is_good(tmp_path, faults):
    with ScriptedServer([*faults, Answer(GOOD)]) as server:
        async with service(tmp_path, server.url, **PATIENT) as client:
            talk = await client.converse(proposer())
            again = await client.converse(proposer())
        server.assert_exhausted()
        repairs = [request.text("user") for request in server.requests if "cannot be used" in request.text("user")]
    assert list(talk.result.parameters.values) == VALUES and talk.result.parameters.explanation == "A guess."
    assert again.result.parameters == talk.result.parameters and again.result.cost.requests == 0
    # Failed requests cost nothing and leave no turn; a bad reply costs its tokens, and its repair turn is journalled.
    turns = 2 if repairs else 1
    assert talk.result.cost.requests == turns == again.result.journal_hits
    assert journal(tmp_path)[-1].endswith(f"iterations/1/parameter_proposer/{turns - 1}-0.json")
    if any("7.25" in fault.text for fault in faults):
        assert "params[9] is 7.25; it must be between -6 and 6" in repairs[-1]


async def test_two_bad_replies_end_the_task_with_all_problems(tmp_path):
    bad = "params[0]: 9\nparams[1]: x\nparams[1]: 2"
    with ScriptedServer([Answer(bad), Answer(bad)]) as server:
        async with service(tmp_path, server.url, **PATIENT) as client:
            error = await client.fails(proposer())
        server.assert_exhausted()
    assert error.reason == "LLM_REPLY_UNUSABLE"
    for problem in ("params[0] is 9", "params[1] is given 2 times (x, 2)", "params[2], params[3]", "are missing"):
        assert problem in error.message


async def test_the_tokens_of_the_evidence_are_counted_offline(tmp_path):
    with ScriptedServer([Answer(GOOD, repeat=True)]) as server:
        async with service(tmp_path, server.url, **PATIENT) as client:
            shown = (await client.converse(critic())).result.parameters.evidence_tokens
            again = (await client.converse(critic())).result.parameters.evidence_tokens
            none = (await client.converse(proposer())).result.parameters.evidence_tokens
            llama = critic(key="iterations/2/critic")
            llama.model = "hosted_vllm/llama-3"  # litellm would download its tokenizer
            other = (await client.converse(llama)).result.parameters.evidence_tokens
    assert 0.15 * len(EVIDENCE) < shown < 0.6 * len(EVIDENCE)
    assert shown == again == other and none == 0


async def test_candidates_of_one_round_are_different_replies(tmp_path):
    authors = SearchAuthors(seed=2)
    with ScriptedServer(authors.answers()) as server:
        async with service(tmp_path, server.url, **PATIENT) as client:
            tasks = [
                code("policy_author", f"iterations/1/policy_author/{n}", horizon=500, round=1, candidate=n)
                for n in range(1, 6)
            ]
            talks = await asyncio.gather(*(client.converse(task) for task in tasks))
            sources = {talk.result.policy.source for talk in talks}
            again = await client.converse(tasks[2])
    assert len(sources) == 5 and again.result.policy == talks[2].result.policy and again.result.journal_hits == 1
    assert authors.counts["policy_author"] == 5


async def test_a_bad_policy_is_repaired_and_the_other_roles_answer(tmp_path):
    authors = SearchAuthors(bad_code_every=1)
    with ScriptedServer([Answer(status=500), *authors.answers()]) as server:
        async with service(tmp_path, server.url, **PATIENT) as client:
            policy = await client.converse(code("policy_author", "a/1", horizon=500, round=1, candidate=1))
            feedback = await client.converse(code("feedback_author", "feedback_author", horizon=500))
            reflection = await client.converse(code("reflector", "iterations/2/reflector"))
            fixed = await client.converse(code("fixer", "fix", subject="policy", source="class Policy: pass"))
    assert policy.result.cost.requests == 2 and "class Policy" in policy.result.policy.source
    assert any("asking again" in line for line in policy.progress)
    assert "class Feedback" in feedback.result.feedback.source and reflection.result.reflection.text
    assert "class Policy" in fixed.result.fixed.source


async def test_a_reflection_is_short_prose(tmp_path):
    script = [Answer("```python\nx = 1\n```"), Answer("so it is. " * 500, when="plain text"), Answer("x" * 5000)]
    with ScriptedServer(script) as server:
        async with service(tmp_path, server.url, **PATIENT) as client:
            error = await client.fails(code("reflector", "iterations/2/reflector"))
    assert error.reason == "LLM_REPLY_UNUSABLE" and "three or four sentences" in error.message


async def test_thinking_and_token_limits_hold_for_the_new_roles(tmp_path):
    with ScriptedServer([Answer(GOOD), Answer(GOOD)]) as server:
        async with service(tmp_path, server.url, thinking={"critic": "low"}, max_output_tokens=2048) as client:
            await client.converse(proposer())
            await client.converse(critic())
        sent = [(request.body.get("reasoning_effort"), request.body.get("max_tokens")) for request in server.requests]
    assert sent == [(None, 2048), ("low", 2048)]


async def test_a_whole_scripted_search_counts_duplicates_and_repairs(tmp_path):
    authors = SearchAuthors(seed=5, duplicate_every=4, bad_every=5)
    history: list[pb.ParameterTrial] = []
    requests = 0
    with ScriptedServer(authors.answers()) as server:
        async with service(tmp_path, server.url, **PATIENT) as client:
            for number in range(1, 13):
                talk = await client.converse(proposer(f"iterations/{number}/parameter_proposer", history=history))
                values = talk.result.parameters.values
                assert len(values) == 10 and all(abs(value) <= 6 for value in values)
                requests += talk.result.cost.requests
                score = -sum(value * value for value in values)
                history.append(pb.ParameterTrial(values=values, mean_return=score, episodes=20, iteration=number))
    vectors = [tuple(entry.values) for entry in history]
    assert len(vectors) - len(set(vectors)) == authors.duplicates == 3
    assert requests == 12 + authors.bad and authors.bad == 2
    assert json.loads((tmp_path / journal(tmp_path)[0]).read_text())["kind"] == "reply"
