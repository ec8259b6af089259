"""Parsers of replies, and the problems that they report."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from dressage.api.internal.v1 import agent_service_pb2 as pb
from dressage.api.v1 import session_pb2 as v1
from dressage.envs.cards import load_card
from dressage_llm_agent.conversation import read_arguments
from dressage_llm_agent.roles.base import ReplyProblem
from dressage_llm_agent.roles.registry import role_of
from dressage_llm_agent.roles.replies import blocks, python_source, sections
from dressage_llm_agent.roles.reviser import TOOLS
from hypothesis import given
from hypothesis import strategies as st

BRIEF = pb.Brief(intent="run forward", environment="HalfCheetah-v5")
CODE = "def reward(state, action, next_state, memory, np):\n    return {}\n"
HISTORY = [
    v1.Iteration(number=1, reward=v1.RewardProposal(source=CODE), judgment=v1.Judgment(score=0.3)),
]
ELICITOR = pb.ElicitorTask(brief=BRIEF)
REWARD_AUTHOR = pb.RewardAuthorTask(brief=BRIEF)
JUDGE_AUTHOR = pb.JudgeAuthorTask(brief=BRIEF, pass_threshold=0.7)
FIXER = pb.FixerTask(brief=BRIEF, subject="policy", source=CODE)
REVISER = pb.ReviserTask(brief=BRIEF, history=HISTORY, tune_hyperparameters=True)
TASKS = [ELICITOR, REWARD_AUTHOR, JUDGE_AUTHOR, FIXER, REVISER]


def block(code=CODE, language="python"):
    return f"```{language}\n{code.rstrip()}\n```\n"


def problems(text, task):
    with pytest.raises(ReplyProblem) as caught:
        role_of(task).parse(text, task)
    return "; ".join(caught.value.problems)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("just words", "no Python code block"),
        ("```python\n" + CODE, "not closed"),
        (block() + block(), "2 Python code blocks"),
        (block("def reward(:\n    pass\n"), "line 1 of the code is no Python"),
        (block("x = 1\n"), "does not define reward()"),
        (block("\0"), "code"),
    ],
)
def test_problems_of_the_code_are_reported(text, problem):
    assert problem in problems(text, REWARD_AUTHOR)


@pytest.mark.parametrize("language", ["python", "py", "Python", ""])
def test_prose_around_the_code_does_not_matter(language):
    text = f"Sure!\n\n## Reasoning\nBecause.\n\n{block(language=language)}\nGood luck."
    result = role_of(REWARD_AUTHOR).parse(text, REWARD_AUTHOR)
    assert result.source == CODE and result.reasoning.startswith("Because.")


def test_all_problems_of_a_judge_are_reported_together():
    text = problems("nothing", JUDGE_AUTHOR)
    assert "no Python code block" in text and "'## Null controls' is missing" in text


@pytest.mark.parametrize(
    ("line", "controls"),
    [
        ("random, motionless", ["random", "motionless"]),
        ("time-reversed and untrained", ["untrained", "time_reversed"]),
        ("none", []),
    ],
)
def test_null_controls(line, controls):
    code = "def judge(trajectory, np):\n    return {}\n"
    text = f"## Null controls\n{line}\nSo it is.\n{block(code)}"
    assert role_of(JUDGE_AUTHOR).parse(text, JUDGE_AUTHOR).null_controls == controls
    assert "why each contradicts" in problems(f"## Null controls\n{line}\n{block(code)}", JUDGE_AUTHOR)


def criteria(first=None, **more):
    rest = [{"title": f"c{n}", "description": f"{n} m/s", "category": "gait"} for n in range(5)]
    return json.dumps({"criteria": [first, *rest[1:]] if first else rest} | more)


def revision(json='{"entropy_coef": 0.01}', based_on="1", code=CODE, why="Why.", lesson="l", more=""):
    return (
        f"## Diagnosis\nd\n## Lesson\n{lesson}\n{more}## Based on\n{based_on}\n## Planned change\np\n"
        f"## Hyperparameters\n{why}\n{block(json, 'json')}\n{block(code)}"
    )


def test_a_revision_with_hyperparameters():
    result = role_of(REVISER).parse(revision(), REVISER)
    assert (result.based_on, result.hyperparameters) == (1, v1.Hyperparameters(entropy_coef=0.01))
    untuned = pb.ReviserTask(brief=BRIEF, history=HISTORY)
    assert not role_of(untuned).parse(revision(), untuned).HasField("hyperparameters")  # off means off


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"json": "{"}, "cannot be read"),
        ({"json": '{"lr": 1}'}, "no hyperparameter 'lr'"),
        ({"json": '{"learning_rate": "fast"}'}, "from 1e-06 to 0.003"),
        ({"json": '{"epochs": 2.5}'}, "a whole number"),
        ({"json": '{"discount": true}'}, "a number"),
        ({"based_on": "7"}, "names iteration 7, but there are 1 to 1"),
        ({"based_on": "first"}, "must hold the number"),
        ({"based_on": ""}, "'## Based on' is missing"),
        ({"why": ""}, "must say why"),
    ],
)
def test_problems_of_a_revision_are_reported(changes, problem):
    assert problem in problems(revision(**changes), REVISER)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("no json", "no readable JSON"),
        ("[]", "a list, not an object"),
        ('{"criteria": []}', "5 to 10 objects, not 0 entries"),
        (criteria(first={"description": "1 m"}), "criteria[0] must be an object with a 'title'"),
        (criteria(first={"title": "x", "description": "fast"}), "a threshold in numbers"),
        (criteria(first={"title": "x", "description": "1 m", "category": "looks"}), "one of gait, posture"),
        (
            criteria(first={"title": "x", "description": "1 m", "category": "gait", "default_on": "yes"}),
            "true or false",
        ),
        (criteria(questions=[1]), "list of strings"),
        (criteria(first={"title": "C1", "description": "1 m", "category": "gait"}), "two criteria have the title 'c1'"),
    ],
)
def test_problems_of_criteria_are_reported(text, problem):
    assert problem in problems(text, ELICITOR)


@given(
    text=st.text(st.sampled_from('ab#`\n: {}[]"python json def reward(judge)0.5'), max_size=300),
    task=st.sampled_from(TASKS),
)
def test_no_reply_breaks_a_parser(text, task):
    with suppress(ReplyProblem):
        role_of(task).parse(text, task)


def test_code_within_code_and_headings_within_code():
    text = '## Reasoning\nr\n```python\n"""\n## not a heading\n"""\n' + CODE + "```"
    assert list(sections(text)) == ["reasoning"]
    assert len(blocks(text)) == 1 and python_source(text, function="reward").endswith(CODE)


@pytest.mark.parametrize(
    ("name", "text", "outcome"),
    [
        ("get_scores", "", {}),
        ("get_iteration", '{"number": 2.0}', {"number": 2}),
        ("get_iteration", '{"number": "3"}', {"number": 3}),
        ("compare_iterations", '{"first": 1, "second": 2}', {"first": 1, "second": 2}),
        ("get_iteration", "{", "not valid JSON"),
        ("get_iteration", "[1]", "must be a JSON object"),
        ("get_iteration", "{}", "needs the argument number"),
        ("get_iteration", '{"number": 0}', "at least 1"),
        ("get_iteration", '{"number": 1.5}', "whole number"),
        ("get_iteration", '{"number": NaN}', "whole number"),
        ("get_iteration", '{"number": Infinity}', "whole number"),
        ("get_iteration", '{"number": true}', "whole number"),
        ("get_scores", '{"all": 1}', "no argument 'all'"),
    ],
)
def test_tool_arguments(name, text, outcome):
    spec = next(tool for tool in TOOLS if tool.name == name)
    if isinstance(outcome, dict):
        assert read_arguments(text, spec) == outcome
    else:
        with pytest.raises(ValueError, match=outcome):
            read_arguments(text, spec)


def test_sac_has_only_its_own_hyperparameters():
    task = pb.ReviserTask(brief=BRIEF, history=HISTORY, tune_hyperparameters=True, algorithm="sac")
    prompt = "".join(message.content for message in role_of(task).messages(task, load_card(BRIEF.environment)))
    assert "- learning_rate, " in prompt and "clip_range" not in prompt
    changed = json.dumps({"clip_range": 0.3, "learning_rate": 1e-4})
    assert "no hyperparameter 'clip_range'; there are learning_rate, minibatch_size" in problems(
        f"## Hyperparameters\nsmaller steps\n{block(changed, 'json')}", task
    )
