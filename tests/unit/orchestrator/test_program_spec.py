"""Settings of the method `program`: defaults, and what is refused with a remedy."""

from __future__ import annotations

from typing import Any

import pytest
from dressage.api.v1 import session_pb2 as v1
from dressage.envs.cards import PROGRAM_ENVIRONMENT_IDS
from dressage.errors import InvalidArgument
from dressage.serving.validation import MessageValidator
from dressage_orchestrator.lifecycle.method import Method
from dressage_orchestrator.methods.code import METHOD as CODE
from dressage_orchestrator.methods.parameters import METHOD as PARAMETERS
from dressage_orchestrator.methods.program import METHOD
from dressage_orchestrator.methods.program.seeding import parse_text
from dressage_orchestrator.methods.program.spec import REVISIONS, SEARCHES, seconds, task_of, threshold_of
from dressage_orchestrator.methods.reward import METHOD as REWARD
from dressage_orchestrator.service import with_defaults


def filled(
    environment: str = "karel/DoorKey", *, more: dict[str, Any] | None = None, **settings: Any
) -> v1.SessionSpec:
    spec = v1.SessionSpec(intent="x", environment=f"environments/{environment}", **(more or {}))
    spec.program.CopyFrom(v1.ProgramSpec(**settings))
    MessageValidator()(spec)
    full = with_defaults(spec, METHOD, default_model="template/v1", default_pool="local")
    METHOD.validate(full)
    return full


@pytest.mark.parametrize("environment", PROGRAM_ENVIRONMENT_IDS)
def test_defaults_are_those_of_the_published_search(environment: str) -> None:
    full = filled(environment)
    settings = full.program
    assert (settings.search, settings.profile, settings.budget) == ("scheduled_hill_climb", "corrected", 1_000_000)
    assert (settings.seed_programs, settings.replies, settings.target) == (32, 48, 1.0)
    assert (settings.schedule.start, settings.schedule.end, settings.schedule.shape) == (32, 2048, "sin")
    assert full.max_iterations == 1 and METHOD.goal(full) == "a mean return of 1"
    task = task_of(full)
    assert not {*task.search_states(32)} & {*task.report_states(32)}
    assert threshold_of(full) == 1 - 1e-9 and seconds(full, cores=2) == 10


def test_the_published_profile_reports_on_the_states_of_its_search() -> None:
    full = filled(profile="llmgs-v1", search_states=16)
    task = task_of(full)
    assert full.program.report_states == 16 and threshold_of(full) == 1.0
    assert task.search_states(16) == task.report_states(16)


def test_revisions_are_rounds_of_a_model() -> None:
    for search in REVISIONS:
        full = filled(search=search, more={"model": "openai/x"})
        assert full.max_iterations == 5 and METHOD.estimate(full, episode_steps=1).model_calls == 48
        with pytest.raises(InvalidArgument, match="no language model is configured"):
            filled(search=search)


def test_a_random_search_has_no_programs_to_start_from() -> None:
    assert filled(search="random").program.seed_programs == 0
    with pytest.raises(InvalidArgument, match="seed_programs"):
        filled(search="random", seed_programs=3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"budget": 0}, "budget"),
        ({"search": "hill_clime"}, r"spec.program.search: .*hill_climb"),
        ({"profile": "paper"}, "profile"),
        ({"search": "latent_cem", "environment": "minigrid/LavaGap"}, "only Karel programs"),
        ({"budget": 10}, r"seed_programs.*at most 10"),
        ({"target": float("nan")}, "target"),
        ({"replies": 3}, "replies"),
        ({"schedule": {"programs": 1}}, "schedule.programs"),
        ({"profile": "llmgs-v1", "report_states": 5}, "report_states"),
        ({"search": "regeneration", "seed_programs": 0, "more": {"model": "openai/x"}}, "seed_programs"),
        ({"more": {"budget": {"env_steps": 10**6}}}, "the setting budget"),
        ({"more": {"judge_source": "x"}}, "judge_source"),
        ({"environment": "Hopper-v5"}, "Use `--method reward` or"),
        ({"environment": "karel/a/b"}, "environment"),
    ],
)
def test_settings_that_contradict_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        filled(**settings)


@pytest.mark.parametrize("method", [REWARD, PARAMETERS, CODE])
def test_other_methods_refuse_tasks_of_programs(method: Method) -> None:
    spec = v1.SessionSpec(intent="x", environment="environments/karel/DoorKey", model="openai/x")
    getattr(spec, method.name).SetInParent()
    with pytest.raises(InvalidArgument, match=r"spec\.environment"):
        method.validate(with_defaults(spec, method, default_model="template/v1", default_pool="local"))


def test_a_persons_programs_are_parsed_line_by_line() -> None:
    task = task_of(filled())
    assert parse_text(task, "# mine\n\n DEF run m(  move m)\n", field="p") == ("DEF run m( move m)",)
    for text, message in (("DEF run m( move m)\nmove()", "line 2"), ("# nothing", "at least one")):
        with pytest.raises(InvalidArgument, match=message):
            parse_text(task, text, field="p")


def test_all_searches_have_defaults() -> None:
    assert {filled(search=search).program.search for search in SEARCHES} == {*SEARCHES}
