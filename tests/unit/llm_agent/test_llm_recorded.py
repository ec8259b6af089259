"""Recorded authors: replies come from the recording; missing ones have the reasons that callers handle."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest
from dressage.api.internal.v1 import agent_service_pb2 as pb
from dressage.api.v1 import session_pb2 as v1
from dressage.artifacts.directory import DirectoryStore
from dressage.errors import DressageError, FailedPrecondition, InvalidArgument
from dressage_llm_agent.costs import Ledger
from dressage_llm_agent.settings import Settings
from dressage_llm_agent.wiring import make_agent

BEHAVIOURS = Path(__file__).parents[3] / "examples" / "behaviours"
MODEL = "recorded/low_crawl"
BRIEF = pb.Brief(intent="crawl forward with the belly close to the floor", environment="HalfCheetah-v5")
PAST = v1.Iteration(number=1, judgment=v1.Judgment(score=0.1))
REWARD = pb.Task(key="iterations/1/reward_author", reward_author=pb.RewardAuthorTask(brief=BRIEF))
JUDGE = pb.Task(key="judge_author", judge_author=pb.JudgeAuthorTask(brief=BRIEF, pass_threshold=0.7))
FIXER = pb.Task(key="iterations/1/policy_fixer/1/1", fixer=pb.FixerTask(brief=BRIEF, subject="policy"))


def reviser(key):
    return pb.Task(key=key, reviser=pb.ReviserTask(brief=BRIEF, history=[PAST]))


class UnusedProvider:
    """A provider that must not get a request."""

    async def complete(self, request):
        raise AssertionError(f"{request.model} got a request")

    async def describe(self, model):
        raise AssertionError(f"{model} was described")


async def no_progress(text):
    del text


@pytest.fixture
def recordings(tmp_path):
    shutil.copytree(BEHAVIOURS, tmp_path / "behaviours")
    return tmp_path / "behaviours"


@pytest.fixture
def answer(tmp_path, recordings):
    """Performs a task with the recordings; by a new agent each time, as after a crash."""

    def ask(task, model=MODEL, ledger=None):
        store = DirectoryStore(tmp_path / "store")
        agent = make_agent(Settings(recordings=str(recordings)), store=store, provider=UnusedProvider())
        whole = pb.Task(session="sessions/again", model=model, remaining_budget=v1.Budget(dollars=0.0))
        whole.MergeFrom(task)
        return asyncio.run(agent.answer(whole, caller=None, progress=no_progress, ledger=ledger))

    return ask


def test_replies_come_from_the_recording_and_cost_nothing(answer):
    ledger = Ledger()
    reward, judge = answer(REWARD, ledger=ledger), answer(JUDGE, ledger=ledger)
    revision = answer(reviser("iterations/2/reviser"), ledger=ledger)
    assert "def reward(" in reward.source and "def judge(" in judge.source
    assert "time_reversed" in judge.null_controls
    assert revision.source != reward.source and revision.lesson
    assert (ledger.requests, ledger.dollars) == (0, 0.0)


def test_a_session_is_complete_without_its_recording(answer, recordings, tmp_path):
    first = answer(REWARD)
    entry = tmp_path / "store/sessions/again/llm/iterations/1/reward_author/0-0.json"
    written = json.loads(entry.read_text())
    assert written["model"] == MODEL and len(written["request_sha256"]) == 64 and written["messages"]
    shutil.rmtree(recordings / "low_crawl" / "llm" / "iterations")
    assert answer(REWARD) == first


def test_a_sessions_own_journal_is_a_recording(answer, recordings, tmp_path):
    first = answer(REWARD)
    shutil.copytree(tmp_path / "store/sessions/again", recordings / "mine")
    shutil.rmtree(tmp_path / "store")
    assert answer(REWARD, "recorded/mine") == first


def test_the_tasks_of_a_resumed_session_are_answered(answer):
    assert answer(reviser("iterations/2/reviser-e1")).planned_change


@pytest.mark.parametrize(
    ("task", "reason"),
    [
        (reviser("iterations/9/reviser"), "TEMPLATE_NO_REVISION"),
        (FIXER, "TEMPLATE_CANNOT_FIX"),
        (pb.Task(key="iterations/9/reward_author", reward_author=REWARD.reward_author), "TEMPLATE_NO_SUCH_ROLE"),
    ],
)
def test_a_missing_reply_has_the_reason_of_the_template_author(answer, task, reason):
    with pytest.raises(FailedPrecondition) as caught:
        answer(task)
    assert caught.value.reason == reason


@pytest.mark.parametrize("model", ["recorded/nothing", "recorded/../low_crawl", "recorded/", "recorded/a/b"])
def test_a_missing_recording_is_not_configured(answer, recordings, model):
    agent = make_agent(Settings(recordings=str(recordings)), provider=UnusedProvider())
    described = asyncio.run(agent.describe(model))
    assert not described.configured and described.problem and not described.language_model
    with pytest.raises((InvalidArgument, FailedPrecondition)):
        answer(REWARD, model)


def test_a_recording_of_an_earlier_folder_is_found(recordings, tmp_path):
    latest = tmp_path / "latest"
    (latest / "mine" / "llm").mkdir(parents=True)
    settings = Settings(recordings=str(latest), earlier_recordings=(str(recordings),))
    agent = make_agent(settings, provider=UnusedProvider())
    assert asyncio.run(agent.describe(MODEL)).configured and asyncio.run(agent.describe("recorded/mine")).configured
    problem = asyncio.run(agent.describe("recorded/nothing")).problem
    assert f"no folder {latest}/nothing/llm or {recordings}/nothing/llm" in problem


def test_without_a_folder_of_recordings_the_remedy_is_reported():
    described = asyncio.run(make_agent(Settings(), provider=UnusedProvider()).describe(MODEL))
    assert "--recordings" in described.problem


@pytest.mark.parametrize("text", ["{", "[]", '{"kind": "tool_result"}', '{"kind": "reply", "reply": {}}'])
def test_a_corrupt_recording_is_reported(answer, recordings, text):
    (recordings / "low_crawl/llm/iterations/1/reward_author/0-0.json").write_text(text)
    with pytest.raises(DressageError) as caught:
        answer(REWARD)
    assert "CORRUPT" in caught.value.reason


POLICY = (
    "import math\n\n\nclass Policy:\n    def reset(self):\n        pass\n\n    def act(self, obs):\n        return 0\n"
)
FEEDBACK = "class Feedback:\n    def summarize_trajectory(self, observations):\n        return 'short'\n"
FORM = pb.ParameterForm(kind="linear", size=3, range=6, enforced=True)
WRITTEN = {
    "iterations/1/parameter_proposer": "## Explanation\nA start.\n\n```json\n[1, -2.5, 0]\n```\n",
    "iterations/1/critic": "params[0]: 1\nparams[1]: -2\nparams[2]: 0\n",
    "iterations/1/policy_author/1": f"## Explanation\nStands.\n\n```python\n{POLICY}```\n",
    "feedback_author": f"```python\n{FEEDBACK}```\n",
    "iterations/2/reflector": "It stood. It did not move. It should move.\n",
}


def search_task(key):
    trial = pb.ParameterTrial(values=[1, -2.5, 0], mean_return=1.0)
    roles = {
        "iterations/1/parameter_proposer": {"parameter_proposer": pb.ParameterProposerTask(brief=BRIEF, form=FORM)},
        "iterations/1/critic": {"critic": pb.CriticTask(brief=BRIEF, form=FORM, proposal=trial, evidence="it fell")},
        "iterations/1/policy_author/1": {"policy_author": pb.PolicyAuthorTask(brief=BRIEF, round=1, candidate=1)},
        "feedback_author": {"feedback_author": pb.FeedbackAuthorTask(brief=BRIEF)},
        "iterations/2/reflector": {"reflector": pb.ReflectorTask(brief=BRIEF)},
    }
    return pb.Task(key=key, **roles[key])


def test_a_reply_may_be_a_text_file(answer, recordings):
    for key, text in WRITTEN.items():
        path = recordings / "mine" / "llm" / key / "0-0.md"
        path.parent.mkdir(parents=True)
        path.write_text(text)
    results = {key: answer(search_task(key), "recorded/mine") for key in WRITTEN}
    proposed, critic, policy, feedback, reflection = results.values()
    assert list(proposed.values) == [1, -2.5, 0] and proposed.explanation == "A start." and not proposed.evidence_tokens
    assert list(critic.values) == [1, -2, 0] and critic.evidence_tokens > 0
    assert policy.source == POLICY and policy.explanation == "Stands." and feedback.source == FEEDBACK
    assert reflection.text == WRITTEN["iterations/2/reflector"].strip()


@pytest.mark.parametrize("key", list(WRITTEN))
def test_a_recording_without_a_search_role_is_as_no_author(answer, recordings, key):
    (recordings / "mine" / "llm").mkdir(parents=True)
    with pytest.raises(FailedPrecondition) as caught:
        answer(search_task(key), "recorded/mine")
    assert caught.value.reason == "TEMPLATE_NO_SUCH_ROLE" and key in caught.value.message


@pytest.mark.parametrize("key", list(WRITTEN))
def test_the_template_author_names_the_remedy(answer, key):
    with pytest.raises(FailedPrecondition) as caught:
        answer(search_task(key), "template/v1")
    remedy = "search=cma_es" if "parameter" in key or "critic" in key else "--replay"
    assert caught.value.reason == "TEMPLATE_NO_SUCH_ROLE"
    assert remedy in caught.value.message and "choose a language model" in caught.value.message
