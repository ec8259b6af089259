"""The recorded behaviours hold what they claim: code that passes the check of a session, and judges that fail null controls.

What a recording of code policies reaches is tested by its replay, in tests/e2e.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.v1 import session_pb2 as pb
from dressage.contracts.evidence import examine_judge, examine_reward
from dressage.contracts.policy_lint import lint_feedback, lint_policy
from dressage.envs.cards import load_card
from dressage_judge.controls import control_trajectories
from dressage_llm_agent.journal import read_reply
from dressage_llm_agent.roles.registry import role_of
from google.protobuf.json_format import Parse

EXAMPLES = Path(__file__).parents[3] / "examples"
ROOT = EXAMPLES / "behaviours"
LONG = EXAMPLES / "behaviours_long"
FOLDERS = sorted(path.parent for root in (ROOT, LONG) for path in root.glob("*/session.json"))
CODE = [folder for folder in FOLDERS if "code" in json.loads((folder / "session.json").read_text())]
REWARD = [folder for folder in FOLDERS if folder not in CODE]


def spec_of(folder):
    return Parse((folder / "session.json").read_text(), pb.SessionSpec())


def result_of(folder, key, task):
    path = folder / "llm" / key / "0-0.json"
    text = path.with_suffix(".md")
    reply = text.read_text() if text.exists() else read_reply(json.loads(path.read_text()), str(path)).text
    return role_of(task).parse(reply, task)


def test_there_are_enough_and_the_backflip_is_among_them():
    assert len(REWARD) >= 5 and ROOT / "backflip" in REWARD


@pytest.mark.parametrize("folder", REWARD, ids=lambda folder: folder.name)
def test_a_recording_is_whole_and_sound(folder):
    spec = spec_of(folder)
    environment = spec.environment.removeprefix("environments/")
    facts = agent_pb.SessionFacts(environment_options=spec.environment_options)
    brief = agent_pb.Brief(intent=spec.intent, environment=environment, facts=facts)
    card, trajectories = load_card(brief.environment), control_trajectories(brief.environment)
    shipped = [episode for kind, several in trajectories.items() if kind != "time_reversed" for episode in several]
    rewards = [result_of(folder, "iterations/1/reward_author", agent_pb.RewardAuthorTask(brief=brief)).source]
    for number in range(2, spec.max_iterations + 1):
        past = pb.Iteration(number=number - 1, reward=pb.RewardProposal(source=rewards[-1]))
        task = agent_pb.ReviserTask(brief=brief, history=[past])
        revision = result_of(folder, f"iterations/{number}/reviser", task)
        assert revision.source not in rewards and revision.based_on == number - 1
        rewards.append(revision.source)
    for source in rewards:
        report = examine_reward(source, card, shipped, budget={"vectorised": 5000.0})
        assert report.ok, report.failures
    threshold = spec.pass_threshold or 0.7
    judge = result_of(folder, "judge_author", agent_pb.JudgeAuthorTask(brief=brief, pass_threshold=threshold))
    report = examine_judge(judge.source, card, trajectories, nulls=judge.null_controls, threshold=threshold)
    assert report.ok and judge.null_controls, report.failures


@pytest.mark.parametrize("folder", CODE, ids=lambda folder: folder.name)
def test_recorded_code_is_whole_and_follows_the_rules(folder):
    spec = spec_of(folder)
    environment = spec.environment.removeprefix("environments/")
    card, brief = load_card(environment), agent_pb.Brief(intent=spec.intent, environment=environment)
    assert "code" in card.methods and card.target is not None
    if spec.code.feedback:
        task = agent_pb.FeedbackAuthorTask(brief=brief)
        text = (folder / "llm" / "feedback_author" / "0-0.md").read_text()
        assert lint_feedback(role_of(task).parse(text, task).source) == []
    for number in range(1, spec.max_iterations + 1):
        assert number == 1 or (folder / f"llm/iterations/{number}/reflector/0-0.md").read_text()
        for candidate in range(1, spec.code.candidates + 1):
            task = agent_pb.PolicyAuthorTask(brief=brief, round=number, candidate=candidate)
            text = (folder / f"llm/iterations/{number}/policy_author/{candidate}/0-0.md").read_text()
            assert lint_policy(role_of(task).parse(text, task).source) == []
