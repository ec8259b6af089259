"""The template author's revisions, step by step until it knows nothing better."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dressage.contracts.source import lint_reward
from dressage.envs.cards import load_card
from dressage.errors import FailedPrecondition
from dressage.training import sac
from dressage_llm_agent.tasks import Brief, FixerTask, PastIteration, ReviserTask
from dressage_llm_agent.template.author import answer, write_reward
from dressage_llm_agent.template.parser import parse
from dressage_llm_agent.template.reviser import read_weights, revise
from dressage_llm_agent.template.reward_plan import plan_reward
from paraphrases import CHEETAH, HOPPER, KNOWN, PENDULUM

INTENTS = [(CHEETAH, "run forward fast"), (HOPPER, "hop forward smoothly"), (PENDULUM, "balance the pole")]


def task(environment, intent, *history, **changes):
    return ReviserTask(Brief(intent, environment), tuple(history), **changes)


def weights_of(environment, intent, source):
    return read_weights(source, plan_reward(parse(intent, environment), load_card(environment)))


def first(environment, intent, **scores):
    source = write_reward(Brief(intent, environment)).source
    return PastIteration(1, source, score=0.4, scores=scores)


@pytest.mark.parametrize(("environment", "intent"), INTENTS)
def test_weights_are_read_back_from_the_source(environment, intent):
    plan = plan_reward(parse(intent, environment), load_card(environment))
    source = write_reward(Brief(intent, environment)).source
    assert weights_of(environment, intent, source) == {term.name: pytest.approx(term.weight) for term in plan.terms}


def test_a_bad_posture_weighs_more():
    revision = revise(task(CHEETAH, "run forward fast", first(CHEETAH, "run forward fast", posture=0.1, speed=0.5)))
    weights = weights_of(CHEETAH, "run forward fast", revision.source)
    assert weights["posture"] == pytest.approx(2.0) and weights["speed"] == pytest.approx(1.0)
    assert revision.based_on == 1 and "posture" in revision.diagnosis and revision.lesson and revision.planned_change


def test_too_slow_weighs_speed_more():
    revision = revise(task(CHEETAH, "run forward fast", first(CHEETAH, "run forward fast", posture=1, speed=0.5)))
    assert weights_of(CHEETAH, "run forward fast", revision.source)["speed"] == pytest.approx(2.0)


def test_it_starts_from_the_best_iteration_and_never_repeats_a_change():
    one = first(CHEETAH, "run forward fast", speed=0.5)
    two = replace(one, number=2, source=revise(task(CHEETAH, "run forward fast", one)).source, score=0.1)
    revision = revise(task(CHEETAH, "run forward fast", one, two))
    assert revision.based_on == 1 and revision.source not in (one.source, two.source)


@pytest.mark.parametrize(("environment", "intent"), INTENTS)
@pytest.mark.parametrize(("tune", "algorithm"), [(False, "ppo"), (True, "ppo"), (True, "sac")])
def test_it_ends_by_saying_that_it_knows_nothing_better(environment, intent, tune, algorithm):
    history = [first(environment, intent, speed=0.2, posture=0.5, endurance=0.3, upright=0.4, smooth=0.5)]
    seen = {history[0].source}
    tuned, ended = 0, None
    for number in range(2, 60):
        try:
            revision = revise(task(environment, intent, *history, tune_hyperparameters=tune, algorithm=algorithm))
        except FailedPrecondition as error:
            ended = error
            break
        tuned += bool(revision.hyperparameters)
        assert revision.source not in seen or revision.hyperparameters
        assert tune or not revision.hyperparameters
        assert algorithm == "ppo" or set(revision.hyperparameters) <= set(sac.HYPERPARAMETERS) - {"entropy_coef"}
        seen.add(revision.source)
        past = replace(history[0], number=number, source=revision.source, score=0.1)
        history.append(replace(past, hyperparameters=revision.hyperparameters))
    assert ended is not None and ended.reason == "TEMPLATE_NO_REVISION"
    assert len(history) > 2 and bool(tuned) == tune


def test_a_reward_of_somebody_else_is_left_alone():
    foreign = PastIteration(
        1, "def reward(state, action, next_state, memory, np):\n    return {}\n", 0.2, {"speed": 0.1}
    )
    with pytest.raises(FailedPrecondition) as caught:
        revise(task(CHEETAH, "run forward fast", foreign))
    assert caught.value.reason == "TEMPLATE_NO_REVISION"


def test_it_says_that_notes_are_not_heeded():
    one = first(CHEETAH, "run forward fast", speed=0.5)
    assert "not heeded" in revise(task(CHEETAH, "run forward fast", one, notes=("more elegance",))).diagnosis
    balancing = first(PENDULUM, "balance the pole", upright=0.5)
    diagnosis = revise(task(PENDULUM, "balance the pole", balancing, notes=("lower",))).diagnosis
    assert "not heeded: low does not go" in diagnosis


@pytest.mark.parametrize(
    ("environment", "intent", "note", "term"),
    [
        (CHEETAH, "run forward fast", "smoother, please", "smooth"),
        (CHEETAH, "run forward", "Lower!", "low"),
        (CHEETAH, "run forward fast", "faster", "speed"),
        (CHEETAH, "walk forward", "a bit slower", "speed"),
        (HOPPER, "hop forward smoothly", "even smoother", "smooth"),
        (HOPPER, "hop forward", "use less energy", "effort"),
        (PENDULUM, "balance the pole", "keep to the centre of the rail", "place"),
    ],
)
def test_a_note_on_a_quality_is_heeded_and_stays_heeded(environment, intent, note, term):
    one = first(environment, intent, speed=0.5)
    heeding = revise(task(environment, intent, one, notes=(note,)))
    assert "is heeded" in heeding.diagnosis and term in heeding.planned_change
    assert lint_reward(heeding.source, load_card(environment)) == []
    assert effect(heeding.source, term) != effect(one.source, term)
    two = replace(one, number=2, source=heeding.source, score=0.9, scores={"speed": 0.5, "upright": 0.5})
    later = revise(task(environment, intent, one, two))
    assert later.based_on == 2 and first_line(later.source) == first_line(heeding.source)


def first_line(source):
    return source.partition("\n")[0]


def effect(source, term):
    """The line of a reward that computes a term; None where it has none."""
    return next((line for line in source.splitlines() if line.strip().startswith(f"{term} = ")), None)


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: f"{known.environment}: {known.text}")
def test_a_rewards_first_line_is_understood_as_it_was_meant(known):
    intent = parse(known.text, known.environment)
    said = first_line(write_reward(Brief(known.text, known.environment)).source).strip('"')
    assert parse(said.removesuffix(f", in {known.environment}."), known.environment) == intent


def test_it_cannot_fix():
    with pytest.raises(FailedPrecondition) as caught:
        answer(FixerTask(Brief("run", CHEETAH), "reward", "def", ()))
    assert caught.value.reason == "TEMPLATE_CANNOT_FIX"
