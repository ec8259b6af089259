"""The settings of the method: defaults, contradictions, and what an iteration uses. Pure."""

from __future__ import annotations

import difflib
import math

from dressage.api.v1 import session_pb2 as v1
from dressage.envs.cards import load_card
from dressage.errors import InvalidArgument
from dressage.programs.families import CORRECTED, FAMILIES, PUBLISHED, ProgramTask, has_programs, program_task
from dressage.programs.search.settings import Schedule
from dressage.programs.syntax import KAREL

from dressage_orchestrator.lifecycle.method import Estimate
from dressage_orchestrator.models import TEMPLATE

NAME = "program"
SCHEDULED, HILL_CLIMB, CEBS, RANDOM = "scheduled_hill_climb", "hill_climb", "cebs", "random"
LATENT = ("latent_cem", "latent_cebs")
"""Searches in the latent space of Karel programs."""
SEARCHES = (SCHEDULED, HILL_CLIMB, CEBS, *LATENT, RANDOM)
"""Searches by the trainer."""
REVISIONS = ("regeneration", "regeneration_with_reward", "agent_trace", "program_trace")
"""Rounds of a model's programs, without a search."""
TRACED = ("agent_trace", "program_trace")
BUDGET = 1_000_000
PROGRAMS = 32
STATES = 32
ROUNDS = 5
_NEIGHBOURS = 250
_TOKENS_PER_CALL = (1_200, 300)
_PROGRAMS_PER_SECOND = 50_000
"""Of a core, low for the tasks with short episodes."""
_IN_PYTHON_PER_SECOND = 50
"""For a registered language whose environment is stepped in Python: a rough value, as environments differ."""


def fill(spec: v1.SessionSpec) -> None:
    """Fill in what is not set."""
    settings = spec.program
    settings.profile = settings.profile or CORRECTED
    settings.search = settings.search or SCHEDULED
    if not settings.HasField("target"):
        settings.target = 1.0
    if not settings.HasField("budget"):
        settings.budget = BUDGET
    if not settings.HasField("seed_programs"):
        # Without a model, only the tasks of this package have recorded programs.
        has_programs = spec.model not in ("", TEMPLATE) or environment_of(spec).partition("/")[0] in FAMILIES
        settings.seed_programs = PROGRAMS if has_programs and settings.search != RANDOM else 0
    settings.replies = settings.replies or replies_for(settings.seed_programs)
    settings.prompt = settings.prompt or "pythonic"
    settings.neighbours = settings.neighbours or _NEIGHBOURS
    settings.search_states = settings.search_states or STATES
    if not settings.report_states:
        settings.report_states = settings.search_states if settings.profile == PUBLISHED else STATES
    _fill_schedule(settings.schedule)
    if not spec.max_iterations:
        spec.max_iterations = ROUNDS if settings.search in REVISIONS else 1


def _fill_schedule(schedule: v1.NeighbourSchedule) -> None:
    defaults = Schedule()
    for field in schedule.DESCRIPTOR.fields:
        if not getattr(schedule, field.name):
            setattr(schedule, field.name, getattr(defaults, field.name))


def replies_for(programs: int) -> int:
    """Return how many replies are requested for so many programs: some contain none."""
    return -(-3 * programs // 2)


def environment_of(spec: v1.SessionSpec) -> str:
    """Return the id of the environment."""
    return spec.environment.removeprefix("environments/")


def task_of(spec: v1.SessionSpec) -> ProgramTask:
    """Return the task of a filled spec."""
    return program_task(environment_of(spec), spec.program.profile)


def threshold_of(spec: v1.SessionSpec) -> float:
    """Return the score that reaches the target of a filled spec."""
    return task_of(spec).threshold(spec.program.target)


def estimate(spec: v1.SessionSpec) -> Estimate:
    """Return the estimate of an iteration. Environment steps are not counted: an engine gives up episodes."""
    calls, (prompt, reply) = spec.program.replies, _TOKENS_PER_CALL
    return Estimate(model_calls=calls, input_tokens=calls * prompt, output_tokens=calls * reply)


def seconds(spec: v1.SessionSpec, *, cores: int) -> float:
    """Return the seconds that the whole budget of an iteration may take."""
    if spec.program.search in REVISIONS:
        return 0.0
    if task_of(spec).family.note:  # in Python, by one thread
        return float(spec.program.budget / _IN_PYTHON_PER_SECOND)
    return float(spec.program.budget / (_PROGRAMS_PER_SECOND * max(1, cores)))


# Contradictions.


def validate(spec: v1.SessionSpec) -> None:
    """Reject a filled spec that contradicts itself or its environment.

    :raises InvalidArgument: naming the field and the remedy.
    """
    settings = spec.program
    _check_environment(spec)
    if settings.search not in (*SEARCHES, *REVISIONS):
        searches = (*SEARCHES, *REVISIONS)
        near = difflib.get_close_matches(settings.search, searches, n=3, cutoff=0.4)
        hint = f" (near matches: {', '.join(near)})" if near else ""
        raise _refuse("search", settings.search, f"one of {', '.join(searches)}{hint}")
    if settings.search in LATENT and task_of(spec).language.name != KAREL.name:
        expected = f"{SCHEDULED}, {HILL_CLIMB}, {CEBS} or {RANDOM}, because only Karel programs have a latent space"
        raise _refuse("search", settings.search, expected)
    if not math.isfinite(settings.target):
        raise _refuse("target", settings.target, "a finite mean return")
    _check_programs(spec)
    _check_states(settings)
    try:
        Schedule(**{field.name: value for field, value in settings.schedule.ListFields()})
    except InvalidArgument as error:
        raise error.rename(lambda field: f"spec.program.{field}") from None
    if spec.budget.env_steps:
        expected = "none: a search over programs counts programs. Use the setting budget"
        raise InvalidArgument(field="spec.budget.env_steps", value=spec.budget.env_steps, expected=expected)


def _refuse(field: str, value: object, expected: str) -> InvalidArgument:
    return InvalidArgument(field=f"spec.program.{field}", value=value, expected=expected)


def _check_environment(spec: v1.SessionSpec) -> None:
    card = load_card(environment_of(spec))
    if NAME not in card.methods or not has_programs(card.id):
        raise InvalidArgument(
            field="spec.environment",
            problem="not supported by the method program",
            value=card.id,
            expected="a task of programs, such as karel/DoorKey; `dressage envs list` shows them",
            remedy=f"Use {' or '.join(f'`--method {method}`' for method in card.methods)} with {card.id}.",
        )
    if spec.judge_source:
        expected = "no judge, because the method program scores programs by their mean return"
        raise InvalidArgument(field="spec.judge_source", value=spec.judge_source, expected=expected)


def _check_programs(spec: v1.SessionSpec) -> None:
    settings = spec.program
    if settings.search == RANDOM and settings.seed_programs:
        expected = f"0, because the search random has no programs to start from, or the search {SCHEDULED}"
        raise _refuse("seed_programs", settings.seed_programs, expected)
    if settings.replies < settings.seed_programs:
        raise _refuse("replies", settings.replies, f"at least {settings.seed_programs}, one for each of seed_programs")
    if settings.search not in REVISIONS:
        if settings.seed_programs > settings.budget:
            expected = f"at most {settings.budget}, the budget: each program counts as evaluated"
            raise _refuse("seed_programs", settings.seed_programs, expected)
        return
    if spec.model in ("", TEMPLATE):
        expected = (
            f"a search without a model ({', '.join(SEARCHES)}), because no language model is configured. Set the key of a "
            "provider, or choose a model"
        )
        raise _refuse("search", settings.search, expected)
    if not settings.seed_programs:
        raise _refuse("seed_programs", 0, f"at least 1, the programs of each round of {settings.search}")


def _check_states(settings: v1.ProgramSpec) -> None:
    if settings.profile == PUBLISHED and settings.report_states != settings.search_states:
        expected = (
            f"{settings.search_states}, as search_states, because {PUBLISHED} reports on the states of the search"
        )
        raise _refuse("report_states", settings.report_states, expected)
