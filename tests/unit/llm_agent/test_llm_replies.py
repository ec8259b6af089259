"""How replies of language models are read, and what is said about those that cannot be used."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from dressage.envs.cards import load_card
from dressage_llm_agent.conversation import read_arguments
from dressage_llm_agent.roles.base import ReplyProblem
from dressage_llm_agent.roles.registry import role_of
from dressage_llm_agent.roles.replies import blocks, python_source, sections
from dressage_llm_agent.roles.reviser.tools import TOOLS
from dressage_llm_agent.tasks import (
    Brief,
    ElicitorTask,
    FixerTask,
    JudgeAuthorTask,
    PastIteration,
    ReviserTask,
    RewardAuthorTask,
)
from hypothesis import given
from hypothesis import strategies as st

BRIEF = Brief("run forward", "HalfCheetah-v5")
CODE = "def reward(state, action, next_state, memory, np):\n    return {}\n"
TASKS = [
    ElicitorTask(BRIEF),
    RewardAuthorTask(BRIEF),
    JudgeAuthorTask(BRIEF, 0.7),
    FixerTask(BRIEF, "reward", CODE, ()),
    ReviserTask(BRIEF, (PastIteration(1, CODE, 0.3),), tune_hyperparameters=True),
]


def block(code=CODE, language="python"):
    return f"```{language}\n{code.rstrip()}\n```\n"


def problems(text, task):
    with pytest.raises(ReplyProblem) as caught:
        role_of(task).parse(text, task)
    return "; ".join(caught.value.problems)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("just words", "no Python code block"),
        ("```python\n" + CODE, "not closed"),
        (block() + block(), "2 Python code blocks"),
        (block("def reward(:\n    pass\n"), "line 1 of the code is no Python"),
        (block("x = 1\n"), "does not define reward()"),
        (block("\0"), "code"),
    ],
)
def test_what_is_wrong_with_the_code_is_said(text, said):
    assert said in problems(text, RewardAuthorTask(BRIEF))


@pytest.mark.parametrize("language", ["python", "py", "Python", ""])
def test_prose_around_the_code_does_not_matter(language):
    text = f"Sure!\n\n## Reasoning\nBecause.\n\n{block(language=language)}\nGood luck."
    result = role_of(RewardAuthorTask(BRIEF)).parse(text, RewardAuthorTask(BRIEF))
    assert result.source == CODE and result.reasoning.startswith("Because.")


def test_all_problems_of_a_judge_are_named_at_once():
    said = problems("nothing", JudgeAuthorTask(BRIEF, 0.7))
    assert "no Python code block" in said and "'## Null controls' is missing" in said


@pytest.mark.parametrize(
    ("line", "controls"),
    [
        ("random, motionless", ("random", "motionless")),
        ("time-reversed and untrained", ("untrained", "time_reversed")),
        ("none", ()),
    ],
)
def test_null_controls(line, controls):
    task = JudgeAuthorTask(BRIEF, 0.7)
    code = "def judge(trajectory, np):\n    return {}\n"
    assert role_of(task).parse(f"## Null controls\n{line}\nSo it is.\n{block(code)}", task).null_controls == controls
    assert "why each contradicts" in problems(f"## Null controls\n{line}\n{block(code)}", task)


def wanted(first=None, **more):
    rest = [{"title": f"c{n}", "description": f"{n} m/s", "category": "gait"} for n in range(5)]
    return json.dumps({"criteria": [first, *rest[1:]] if first else rest} | more)


def revision(json='{"entropy_coef": 0.01}', based_on="1", code=CODE, why="Why.", lesson="l", more=""):
    return (
        f"## Diagnosis\nd\n## Lesson\n{lesson}\n{more}## Based on\n{based_on}\n## Planned change\np\n"
        f"## Hyperparameters\n{why}\n{block(json, 'json')}\n{block(code)}"
    )


def test_a_revision_with_hyperparameters():
    result = role_of(TASKS[4]).parse(revision(), TASKS[4])
    assert (result.based_on, dict(result.hyperparameters)) == (1, {"entropy_coef": 0.01})
    untuned = ReviserTask(BRIEF, TASKS[4].history)
    assert not role_of(untuned).parse(revision(), untuned).hyperparameters  # off means off


@pytest.mark.parametrize(
    ("changes", "said"),
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
def test_what_is_wrong_with_a_revision_is_said(changes, said):
    assert said in problems(revision(**changes), TASKS[4])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("no json", "no readable JSON"),
        ("[]", "a list, not an object"),
        ('{"criteria": []}', "5 to 10 objects, not 0 entries"),
        (wanted(first={"description": "1 m"}), "criteria[0] must be an object with a 'title'"),
        (wanted(first={"title": "x", "description": "fast"}), "a threshold in numbers"),
        (wanted(first={"title": "x", "description": "1 m", "category": "looks"}), "one of gait, posture"),
        (wanted(first={"title": "x", "description": "1 m", "category": "gait", "default_on": "yes"}), "true or false"),
        (wanted(questions=[1]), "list of strings"),
        (wanted(first={"title": "C1", "description": "1 m", "category": "gait"}), "two criteria have the title 'c1'"),
    ],
)
def test_what_is_wrong_with_criteria_is_said(text, said):
    assert said in problems(text, ElicitorTask(BRIEF))


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
        ("get_iteration", "{", "no JSON"),
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


def test_of_sac_only_its_own_hyperparameters_are_offered_and_taken():
    task = ReviserTask(BRIEF, (PastIteration(1, CODE, 0.3),), tune_hyperparameters=True, algorithm="sac")
    asked = "".join(message.content for message in role_of(task).messages(task, load_card(BRIEF.environment)))
    assert "learning_rate (" in asked and "clip_range" not in asked
    changed = json.dumps({"clip_range": 0.3, "learning_rate": 1e-4})
    assert "no hyperparameter 'clip_range'; there are learning_rate, minibatch_size" in problems(
        f"## Hyperparameters\nsmaller steps\n{block(changed, 'json')}", task
    )
