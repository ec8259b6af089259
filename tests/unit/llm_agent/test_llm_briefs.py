"""What authors are given of their session: the environment's options in effect, the training, the threshold, the budget."""

from __future__ import annotations

import pytest
from dressage.api.internal.v1 import agent_service_pb2 as pb
from dressage.api.v1 import session_pb2 as v1
from dressage.envs.cards import load_card
from dressage.envs.describe import describe
from dressage.envs.options import EnvOptions
from dressage_llm_agent.roles.base import ReplyProblem
from dressage_llm_agent.roles.registry import role_of

OPTIONS = v1.EnvironmentOptions(max_episode_steps=250, terminate_when_unhealthy=False)
BUDGET = v1.Budget(env_steps=4_000_000, dollars=1.5)
BUDGET.wall_time.FromSeconds(1800)
FACTS = pb.SessionFacts(
    environment_options=OPTIONS,
    steps_per_member=600_000,
    seeds=3,
    pass_threshold=0.8,
    iteration=2,
    max_iterations=5,
    budget=BUDGET,
)
BRIEF = pb.Brief(intent="lie down, then roll over", environment="Hopper-v5", facts=FACTS)
BARE = pb.Brief(intent="lie down, then roll over", environment="Hopper-v5")
PAST = v1.Iteration(name="sessions/s/iterations/1", number=1, reward=v1.RewardProposal(source="# r"))


def tasks(brief):
    return {
        "reward_author": pb.RewardAuthorTask(brief=brief),
        "judge_author": pb.JudgeAuthorTask(brief=brief, pass_threshold=0.8),
        "repair": pb.RewardAuthorTask(brief=brief, repair=pb.CodeRepair(source="x", round=1)),
        "code_reviewer": pb.CodeReviewerTask(brief=brief, subject="judge", source="x", round=1),
        "reviser": pb.ReviserTask(
            brief=brief,
            history=[PAST],
            tune_hyperparameters=True,
            lowest_steps=300_000,
            highest_steps=2_400_000,
        ),
    }


def prompt(task):
    return "\n".join(message.content for message in role_of(task).messages(task, load_card(task.brief.environment)))


@pytest.mark.parametrize("role", list(tasks(BRIEF)))
def test_each_author_is_told_what_is_true_of_the_session(role):
    text = prompt(tasks(BRIEF)[role])
    assert "at most 250 steps (2 s)" in text and "at most 1000 steps" not in text
    assert "Termination: switched off" in text
    assert "600,000 environment steps" in text and "3 seeds" in text
    assert "0.8 of 1 or more passes" in text
    assert "iteration 2 of at most 5; 3 can follow" in text
    for limit in ("4,000,000 environment steps", "30 minutes", "$1.50"):
        assert limit in text
    assert "\n\n\n\n" not in text


@pytest.mark.parametrize("role", list(tasks(BARE)))
def test_without_facts_the_stock_environment_is_described(role):
    text = prompt(tasks(BARE)[role])
    assert "at most 1000 steps (8 s)" in text and "Termination: switched off" not in text and "This session" not in text
    assert "\n\n\n\n" not in text


@pytest.mark.parametrize("most", [0, 600_000, 2_400_000])
def test_authors_read_that_judgments_decide_the_length(most):
    facts = pb.SessionFacts(steps_per_member=600_000, most_steps_per_member=most, seeds=3)
    text = prompt(pb.RewardAuthorTask(brief=pb.Brief(intent="hop", environment="Hopper-v5", facts=facts)))
    assert ("up to 2,400,000 while it improves), with 3 seeds" in text) == (most > 600_000)
    assert ("trains for 600,000 environment steps, with 3 seeds" in text) == (most <= 600_000)


@pytest.mark.parametrize("role", ["reward_author", "judge_author", "code_reviewer"])
def test_prompts_for_any_algorithm_name_none(role):
    assert "PPO" not in prompt(tasks(BRIEF)[role])


def test_the_example_of_a_judge_keeps_the_rules_of_judges():
    text = prompt(tasks(BRIEF)["judge_author"])
    assert "Do not\n  score the length of the episode" in text and '"lasting"' not in text


def test_authors_read_rules_for_sequences_stages_and_endings():
    reward, judge = prompt(tasks(BRIEF)["reward_author"]), prompt(tasks(BRIEF)["judge_author"])
    for word in ("Sequences", "Staging", "Horizon", "Ending"):
        assert word in reward
    for word in ("gates come in order", "Gates multiply", "best attempt", "trajectory.terminated"):
        assert word in judge
    reviewed = pb.CodeReviewerTask(brief=BRIEF, subject="judge", source="x", round=1)
    assert "gates come in order" in prompt(reviewed) and "gates come in order" not in reward


def test_the_reviser_may_change_steps_and_network_sizes():
    task = tasks(BRIEF)["reviser"]
    text = prompt(task)
    assert "- steps_per_member, 300000 to 2400000, now 600000" in text and "- hidden_sizes, a list of 1 to 3" in text
    reply = (
        "## Diagnosis\nd\n## Lesson\nSOFT: l\n## Based on\n1\n## Planned change\np\n## Hyperparameters\nlonger\n"
        '```json\n{"steps_per_member": 1200000, "hidden_sizes": [128, 128], "observation_clip": 5, "reward_clip": 20.5}\n```\n'
        "```python\ndef reward(state, action, next_state, memory, np):\n    return {}\n```\n"
    )
    revision = role_of(task).parse(reply, task)
    assert revision.steps_per_member == 1_200_000 and revision.hyperparameter_reasoning == "longer"
    assert revision.hyperparameters == v1.Hyperparameters(hidden_sizes=[128, 128], observation_clip=5, reward_clip=20.5)
    assert "steps_per_member" not in prompt(pb.ReviserTask(brief=BRIEF, history=[PAST]))


REWARD = "```python\ndef reward(state, action, next_state, memory, np):\n    return {}\n```\n"


def floor(**options):
    facts = pb.SessionFacts(environment_options=v1.EnvironmentOptions(**options), iteration=1, max_iterations=5)
    return pb.RewardAuthorTask(brief=pb.Brief(intent="do push-ups", environment="Humanoid-v5", facts=facts))


def test_an_author_may_ask_for_what_nobody_set():
    task = floor()
    assert "set\nmax_episode_steps and terminate_when_unhealthy, in effect" in prompt(task)
    reply = f'## Environment\nIt is on the ground.\n```json\n{{"terminate_when_unhealthy": false}}\n```\n{REWARD}'
    proposal = role_of(task).parse(reply, task)
    assert proposal.environment_options == v1.EnvironmentOptions(terminate_when_unhealthy=False)
    assert proposal.environment_reasoning == "It is on the ground."
    assert not role_of(task).parse(REWARD, task).HasField("environment_options")
    fixed = floor(terminate_when_unhealthy=True)
    assert "set\nmax_episode_steps, in effect" in prompt(fixed) and "push-ups, getting up" not in prompt(fixed)
    repair = pb.RewardAuthorTask(brief=task.brief, repair=pb.CodeRepair(source="x", round=1))
    assert "## Environment" not in prompt(repair) and "## Environment" not in prompt(tasks(BARE)["reward_author"])


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ('{"terminate_when_unhealthy": true}', "cannot be asked for"),
        ('{"gravity": 1}', "'gravity' cannot be asked for"),
        ('{"max_episode_steps": 0}', "an integer from 1"),
        ('{"max_episode_steps": 100000}', "at most 10000 can be asked for"),
        ("[1]", "one JSON object"),
    ],
)
def test_what_cannot_be_asked_for_is_sent_back(values, problem):
    task = floor(terminate_when_unhealthy=False)
    with pytest.raises(ReplyProblem, match=problem):
        role_of(task).parse(f"## Environment\nwhy\n```json\n{values}\n```\n{REWARD}", task)


def test_a_description_states_the_noise_of_the_first_state():
    assert "noise on the first state: 0.5" in describe(load_card("Ant-v5"), EnvOptions(reset_noise_scale=0.5))
