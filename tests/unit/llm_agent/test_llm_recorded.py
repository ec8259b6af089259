"""Recorded authors: replies come from the recording, once; what is not recorded is refused in a way that callers know."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest
from dressage.artifacts.directory import DirectoryStore
from dressage.errors import DressageError, FailedPrecondition, InvalidArgument
from dressage_llm_agent.costs import Allowance
from dressage_llm_agent.settings import Settings
from dressage_llm_agent.tasks import Brief, FixerTask, JudgeAuthorTask, PastIteration, ReviserTask, RewardAuthorTask
from dressage_llm_agent.wiring import make_agent

BEHAVIOURS = Path(__file__).parents[3] / "examples" / "behaviours"
MODEL = "recorded/low_crawl"
BRIEF = Brief("crawl forward with the belly close to the floor", "HalfCheetah-v5")
PAST = PastIteration(1, "", 0.1)


class NobodyProvider:
    """A provider that must not be asked."""

    async def complete(self, request):
        raise AssertionError(f"{request.model} was asked")

    async def describe(self, model):
        raise AssertionError(f"{model} was asked about")


async def no_progress(text):
    del text


@pytest.fixture
def recordings(tmp_path):
    shutil.copytree(BEHAVIOURS, tmp_path / "behaviours")
    return tmp_path / "behaviours"


@pytest.fixture
def answer(tmp_path, recordings):
    """Asks an agent that has the recordings; a new agent each time, as after a crash."""

    def ask(task, key, model=MODEL):
        store = DirectoryStore(tmp_path / "store")
        agent = make_agent(Settings(recordings=str(recordings)), store=store, provider=NobodyProvider())
        call = agent.answer(
            task,
            session="sessions/again",
            key=key,
            model=model,
            allowance=Allowance(dollars=0.0),
            caller=None,
            progress=no_progress,
        )
        return asyncio.run(call)

    return ask


def test_replies_come_from_the_recording_and_cost_nothing(answer):
    reward = answer(RewardAuthorTask(BRIEF), "iterations/1/reward_author")
    judge = answer(JudgeAuthorTask(BRIEF, 0.7), "judge_author")
    revision = answer(ReviserTask(BRIEF, (PAST,)), "iterations/2/reviser")
    assert "def reward(" in reward.result.source and "def judge(" in judge.result.source
    assert "time_reversed" in judge.result.null_controls
    assert revision.result.source != reward.result.source and revision.result.lesson
    for outcome in (reward, judge, revision):
        assert (outcome.ledger.requests, outcome.ledger.dollars) == (0, 0.0)


def test_a_session_is_whole_without_its_recording(answer, recordings, tmp_path):
    first = answer(RewardAuthorTask(BRIEF), "iterations/1/reward_author")
    entry = tmp_path / "store/sessions/again/llm/iterations/1/reward_author/0-0.json"
    written = json.loads(entry.read_text())
    assert written["model"] == MODEL and len(written["request_sha256"]) == 64 and written["messages"]
    shutil.rmtree(recordings / "low_crawl" / "llm" / "iterations")
    assert answer(RewardAuthorTask(BRIEF), "iterations/1/reward_author").result == first.result


def test_a_sessions_own_journal_is_a_recording(answer, recordings, tmp_path):
    first = answer(RewardAuthorTask(BRIEF), "iterations/1/reward_author")
    shutil.copytree(tmp_path / "store/sessions/again", recordings / "mine")
    shutil.rmtree(tmp_path / "store")
    assert answer(RewardAuthorTask(BRIEF), "iterations/1/reward_author", "recorded/mine").result == first.result


def test_the_tasks_of_a_resumed_session_are_answered(answer):
    outcome = answer(ReviserTask(BRIEF, (PAST,)), "iterations/2/reviser-e1")
    assert outcome.result.planned_change


@pytest.mark.parametrize(
    ("task", "key", "reason"),
    [
        (ReviserTask(BRIEF, (PAST,)), "iterations/9/reviser", "TEMPLATE_NO_REVISION"),
        (FixerTask(BRIEF, "reward", "", ()), "iterations/1/fixer/1", "TEMPLATE_CANNOT_FIX"),
        (RewardAuthorTask(BRIEF), "iterations/1/code_reviewer", "TEMPLATE_NO_SUCH_ROLE"),
    ],
)
def test_what_is_not_recorded_is_refused_as_callers_know_it(answer, task, key, reason):
    with pytest.raises(FailedPrecondition) as caught:
        answer(task, key)
    assert caught.value.reason == reason


@pytest.mark.parametrize("model", ["recorded/nothing", "recorded/../low_crawl", "recorded/", "recorded/a/b"])
def test_a_recording_that_is_not_there_is_not_configured(answer, recordings, model):
    agent = make_agent(Settings(recordings=str(recordings)), provider=NobodyProvider())
    described = asyncio.run(agent.describe(model))
    assert not described.configured and described.problem and not described.language_model
    with pytest.raises((InvalidArgument, FailedPrecondition)):
        answer(RewardAuthorTask(BRIEF), "iterations/1/reward_author", model)


def test_without_a_folder_of_recordings_the_remedy_is_named():
    described = asyncio.run(make_agent(Settings(), provider=NobodyProvider()).describe(MODEL))
    assert "--recordings" in described.problem


@pytest.mark.parametrize("text", ["{", "[]", '{"kind": "tool_result"}', '{"kind": "reply", "reply": {}}'])
def test_a_corrupt_recording_is_said_to_be(answer, recordings, text):
    (recordings / "low_crawl/llm/iterations/1/reward_author/0-0.json").write_text(text)
    with pytest.raises(DressageError) as caught:
        answer(RewardAuthorTask(BRIEF), "iterations/1/reward_author")
    assert "CORRUPT" in caught.value.reason
