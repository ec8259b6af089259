"""Code and JSON that prompts give as examples: what they show passes the check of a session, and can be parsed."""

from __future__ import annotations

import json
import re
import textwrap

import numpy as np
import pytest
from dressage.api.internal.v1 import agent_service_pb2 as pb
from dressage.contracts.evidence import examine_judge, examine_reward
from dressage.contracts.policy_check import examine_feedback, examine_policy
from dressage.contracts.spaces import Spaces
from dressage.envs.cards import load_card
from dressage.envs.trajectory import load_check_trajectories
from dressage_llm_agent.roles.registry import role_of
from dressage_llm_agent.roles.reviser.hyperparameters import tunable_values

MOVING = ["HalfCheetah-v5", "Hopper-v5", "CartPole-v1"]
EVERY = [*MOVING, "Reacher-v5"]


def system(environment: str, task) -> str:
    task.brief.CopyFrom(pb.Brief(intent="run forward", environment=environment))
    return role_of(task).messages(task, load_card(environment))[0].content


def example(text: str, begin: str) -> str:
    """Return the indented module of a prompt that has the given beginning."""
    blocks = re.findall(r"(?:^(?: {4}.*)?\n)+", text, re.MULTILINE)
    (block,) = [block for block in map(textwrap.dedent, blocks) if begin in block]
    return block


def shipped(environment: str):
    return [episode for group in load_check_trajectories(environment).values() for episode in group]


@pytest.mark.parametrize("environment", MOVING)
def test_the_reward_of_the_prompts_passes_the_check(environment):
    source = example(system(environment, pb.RewardAuthorTask()), "def reward(")
    card, episodes = load_card(environment), shipped(environment)
    if card.num_actions:  # the contract says what is different
        source = source.replace("np.square(action).sum(-1)", "np.square(action - 0.5)")
    report = examine_reward(source, card, episodes, budget={"vectorised": 5000.0})
    assert report.ok, report.failures
    if "z_position" in card.field_names:
        line = re.search(r"`(memory\.best_height = .*)`", system(environment, pb.RewardAuthorTask()))
        body = source.replace("    return", f"    {line[1]}\n    return")
        report = examine_reward(body, card, episodes, budget={"vectorised": 5000.0})
        assert report.ok, report.failures


@pytest.mark.parametrize("environment", EVERY)
def test_the_judge_of_the_prompts_passes_the_check(environment):
    task = pb.JudgeAuthorTask(pass_threshold=0.7)
    source = example(system(environment, task), "def judge(")
    report = examine_judge(
        source, load_card(environment), load_check_trajectories(environment), nulls=(), threshold=0.7
    )
    assert report.ok, report.failures


@pytest.mark.parametrize("environment", ["CartPole-v1", "HalfCheetah-v5", "FrozenLake-v1"])
def test_policy_and_feedback_of_the_prompts_pass_the_check(environment):
    card = load_card(environment)
    spaces, episodes = Spaces.of(card), [np.asarray(e.observation) for e in shipped(environment)]
    policy = example(system(environment, pb.PolicyAuthorTask(round=1)), "class Policy")
    report = examine_policy(policy, spaces, episodes, act_seconds=5.0)
    assert report.ok, report.failures
    feedback = example(system(environment, pb.FeedbackAuthorTask()), "class Feedback")
    report = examine_feedback(feedback, spaces, episodes)
    assert report.ok, report.failures


JSON_ROLES = [
    pb.CodeReviewerTask(subject="judge", source="x", round=1),
    pb.ElicitorTask(),
    pb.VideoCriteriaTask(),
]


@pytest.mark.parametrize("task", JSON_ROLES, ids=lambda task: type(task).__name__)
def test_the_json_of_the_prompts_can_be_parsed(task):
    (block,) = re.findall(r"```json\n(.*?)\n```", system("Hopper-v5", task), re.DOTALL)
    assert isinstance(json.loads(block), dict)


@pytest.mark.parametrize(("environment", "steps"), [("HalfCheetah-v5", 50), ("Hopper-v5", 100)])
def test_authors_read_the_horizon_of_the_preset(environment, steps):
    assert f"about {steps} steps ahead" in system(environment, pb.RewardAuthorTask())


def test_the_reviser_reads_ranges_and_values_of_the_preset():
    task = pb.ReviserTask(tune_hyperparameters=True)
    text = system("HalfCheetah-v5", task)
    assert "- learning_rate, 1e-06 to 0.003, preset 0.0007\n" in text
    assert "- observation_clip, 1 to 100, preset 10: " in text and "- reward_clip, 1 to 100, preset 10: " in text
    sac = pb.ReviserTask(tune_hyperparameters=True, algorithm="sac")
    assert "learning (SAC)" in system("HalfCheetah-v5", sac)
    assert not any("clip" in line for line in tunable_values(sac))
