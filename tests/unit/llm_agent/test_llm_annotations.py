"""Roles of tasks, lessons and notes of a revision, and how reasoning is switched off."""

from __future__ import annotations

import logging

import pytest
from dressage.api.internal.v1 import agent_service_pb2 as pb
from dressage.api.v1 import session_pb2
from dressage.envs.cards import load_card
from dressage.errors import InvalidArgument
from dressage_llm_agent.provider.base import ProviderFault
from dressage_llm_agent.provider.litellm_provider import load_litellm
from dressage_llm_agent.provider.thinking import thinking_arguments
from dressage_llm_agent.roles.registry import role_of, role_task, task_result
from dressage_llm_agent.roles.reviser.annotations import (
    parse_addressed_notes,
    parse_lesson,
    parse_lesson_updates,
    parse_start,
)

KNOWN = [
    pb.KnownLesson(number=1, tier="SOFT", text="speed pays"),
    pb.KnownLesson(number=4, tier="HARD", text="never stand"),
]


@pytest.mark.parametrize(
    ("text", "lesson"),
    [
        ("HARD: never pay for standing", ("HARD", "never pay for standing")),
        ("**strong** - pay for speed", ("STRONG", "pay for speed")),
        ("Softly does it", ("SOFT", "Softly does it")),
    ],
)
def test_a_lesson_has_a_tier(text, lesson):
    assert parse_lesson(text) == lesson


def test_lessons_change_their_tiers_with_a_reason():
    problems: list[str] = []
    text = "- 4: RETIRED: it stood in the best iteration\n1. strong: seen twice\nnone else"
    assert parse_lesson_updates(text, KNOWN, problems) == [
        pb.LessonUpdate(number=4, tier="RETIRED", reason="it stood in the best iteration"),
        pb.LessonUpdate(number=1, tier="STRONG", reason="seen twice"),
    ]
    assert not problems
    parse_lesson_updates("2: HARD: x\n1: SOLID: x\n1: HARD", KNOWN, problems)
    assert "lesson 2, which there is not" in problems[0] and "tier of HARD" in problems[1] and "say why" in problems[2]


def test_a_revision_says_what_its_training_starts_from():
    task = pb.ReviserTask(history=[session_pb2.Iteration(number=n) for n in (1, 2)], may_continue_from=[2])
    problems: list[str] = []
    assert parse_start("**Parent**: it runs already", 0, task, problems) == (True, "it runs already")
    assert parse_start("fresh: it stands still", 1, task, problems) == (False, "it stands still")
    assert parse_start("", 0, task, problems) == (False, "")
    assert parse_start("parent: not offered", 0, pb.ReviserTask(), problems) == (False, "")
    assert not problems
    for text, based_on in (("parent: yes", 1), ("parent:", 2), ("maybe", 2)):
        parse_start(text, based_on, task, problems)
    assert (
        "iteration 1 has no policies" in problems[0]
        and "say why" in problems[1]
        and "'parent' or 'fresh'" in problems[2]
    )


def test_the_choice_of_a_start_is_offered_with_its_evidence():
    role = role_of(pb.ReviserTask())
    brief = pb.Brief(intent="run", environment="HalfCheetah-v5")
    judged = session_pb2.Iteration(number=1, judgment=session_pb2.Judgment(score=0.53))
    for offered in ([1], []):
        task = pb.ReviserTask(brief=brief, history=[judged], may_continue_from=offered)
        system, user = (str(message.content) for message in role.messages(task, load_card("HalfCheetah-v5")))
        assert ("## Start" in system) == bool(offered)
        assert ("those of iteration 1, judged 0.530." in user) == bool(offered)


def test_notes_are_quoted_with_how_they_are_addressed():
    problems: list[str] = []
    notes = ["bend the\nknees", "keep running"]
    addressed = parse_addressed_notes("1. a term for the knees\n2) no change: it does", notes, problems)
    assert addressed == ["“bend the knees”: a term for the knees", "“keep running”: no change: it does"]
    assert not problems
    assert parse_addressed_notes("A new term.", ["knees"], problems) == ["“knees”: A new term."]
    assert parse_addressed_notes("1. yes", ["a", "b"], problems) == [] and "number 2 is missing" in problems[0]
    assert parse_addressed_notes("", [], []) == []


@pytest.mark.parametrize(
    ("model", "sent"),
    [
        ("openai/gpt-5.1", {"reasoning_effort": "none"}),
        ("gemini/gemini-2.5-flash", {"reasoning_effort": "none"}),
        ("anthropic/claude-sonnet-4-5", {}),
        ("hosted_vllm/qwen3", {"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}}),
        ("openai/my-own-server", {"reasoning_effort": "none"}),
    ],
)
def test_off_is_sent_in_the_providers_words(model, sent):
    assert thinking_arguments(load_litellm(), model, "off") == sent


@pytest.mark.parametrize("model", ["openai/o3", "openai/gpt-5", "gemini/gemini-2.5-pro", "gemini/gemini-3-pro-preview"])
def test_a_model_that_cannot_stop_thinking_is_refused(model):
    with pytest.raises(ProviderFault, match="cannot stop thinking"):
        thinking_arguments(load_litellm(), model, "off")
    assert thinking_arguments(load_litellm(), model, "low") == {"reasoning_effort": "low"}
    assert thinking_arguments(load_litellm(), model, "") == {}


ROLES = pb.Task.DESCRIPTOR.oneofs_by_name["role"].fields


@pytest.mark.parametrize("field", ROLES, ids=lambda field: field.name)
def test_every_task_has_a_role(field):
    task = getattr(pb, field.message_type.name)()
    assert role_of(task).name == field.name


@pytest.mark.parametrize("field", pb.TaskResult.DESCRIPTOR.oneofs_by_name["result"].fields, ids=lambda f: f.name)
def test_every_result_has_its_field(field):
    result = getattr(pb, field.message_type.name)()
    assert task_result(result).WhichOneof("result") == field.name


def test_a_task_without_a_role_is_refused():
    with pytest.raises(InvalidArgument, match="elicitor, reward_author"):
        role_task(pb.Task(key="k"))


def test_the_client_library_is_configured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of a logger's level empties the caches of all loggers, which would make each request slower."""
    before, changed = load_litellm(), list[object]()
    monkeypatch.setattr(logging.Logger, "setLevel", lambda logger, level: changed.append(logger))
    assert load_litellm() is before and not changed
