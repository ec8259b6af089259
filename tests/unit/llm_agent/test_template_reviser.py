"""The template author's revisions, one after another until none is left."""

from __future__ import annotations

import pytest
from dressage.api.internal.v1 import agent_service_pb2 as pb
from dressage.api.v1 import session_pb2 as v1
from dressage.contracts.source import lint_reward
from dressage.envs.cards import load_card
from dressage.errors import FailedPrecondition
from dressage.training import sac
from dressage_llm_agent.template.author import answer, write_reward
from dressage_llm_agent.template.parser import parse
from dressage_llm_agent.template.reviser import read_weights, revise
from dressage_llm_agent.template.reward_plan import plan_reward
from paraphrases import ANT, CHEETAH, GO1, HOPPER, ISAAC_CARTPOLE, KNOWN, PENDULUM

INTENTS = [(CHEETAH, "run forward fast"), (HOPPER, "hop forward smoothly"), (PENDULUM, "balance the pole")]


def brief(environment, intent):
    return pb.Brief(intent=intent, environment=environment)


def task(environment, intent, *history, **changes):
    return pb.ReviserTask(brief=brief(environment, intent), history=history, **changes)


def iteration(number, source, score, scores, hyperparameters=None):
    criteria = [v1.CriterionScore(name=name, score=value) for name, value in scores.items()]
    configs = [v1.Config(id="best", hyperparameters=hyperparameters)]
    return v1.Iteration(
        number=number,
        reward=v1.RewardProposal(source=source, configs=configs, best_config="best"),
        judgment=v1.Judgment(score=score, criteria=criteria),
    )


def weights_of(environment, intent, source):
    return read_weights(source, plan_reward(parse(intent, environment), load_card(environment)))


def first(environment, intent, **scores):
    return iteration(1, write_reward(brief(environment, intent)).source, 0.4, scores)


def scores_of(past):
    return {criterion.name: criterion.score for criterion in past.judgment.criteria}


@pytest.mark.parametrize(("environment", "intent"), INTENTS)
def test_weights_are_read_back_from_the_source(environment, intent):
    plan = plan_reward(parse(intent, environment), load_card(environment))
    source = write_reward(brief(environment, intent)).source
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
    second = revise(task(CHEETAH, "run forward fast", one)).source
    two = iteration(2, second, 0.1, scores_of(one))
    revision = revise(task(CHEETAH, "run forward fast", one, two))
    assert revision.based_on == 1 and revision.source not in (one.reward.source, second)


@pytest.mark.parametrize(("environment", "intent"), INTENTS)
@pytest.mark.parametrize(("tune", "algorithm"), [(False, "ppo"), (True, "ppo"), (True, "sac")])
def test_it_ends_with_an_error_once_every_change_was_tried(environment, intent, tune, algorithm):
    history = [first(environment, intent, speed=0.2, posture=0.5, endurance=0.3, upright=0.4, smooth=0.5)]
    seen = {history[0].reward.source}
    tuned, ended = 0, None
    for number in range(2, 60):
        try:
            revision = revise(task(environment, intent, *history, tune_hyperparameters=tune, algorithm=algorithm))
        except FailedPrecondition as error:
            ended = error
            break
        changed = {field.name for field, _ in revision.hyperparameters.ListFields()}
        tuned += bool(changed)
        assert revision.source not in seen or changed
        assert tune or not changed
        assert algorithm == "ppo" or changed <= set(sac.HYPERPARAMETERS) - {"entropy_coef"}
        seen.add(revision.source)
        history.append(iteration(number, revision.source, 0.1, scores_of(history[0]), revision.hyperparameters))
    assert ended is not None and ended.reason == "TEMPLATE_NO_REVISION"
    assert len(history) > 2 and bool(tuned) == tune


def test_a_reward_that_it_did_not_write_is_not_revised():
    foreign = iteration(1, "def reward(state, action, next_state, memory, np):\n    return {}\n", 0.2, {"speed": 0.1})
    with pytest.raises(FailedPrecondition) as caught:
        revise(task(CHEETAH, "run forward fast", foreign))
    assert caught.value.reason == "TEMPLATE_NO_REVISION"


def test_it_reports_notes_that_it_does_not_address():
    one = first(CHEETAH, "run forward fast", speed=0.5)
    assert "not addressed" in revise(task(CHEETAH, "run forward fast", one, notes=["more elegance"])).diagnosis
    balancing = first(PENDULUM, "balance the pole", upright=0.5)
    diagnosis = revise(task(PENDULUM, "balance the pole", balancing, notes=["lower"])).diagnosis
    assert "not addressed: low does not go" in diagnosis


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
        (ANT, "walk forward", "without turning", "unturned"),
        (GO1, "walk forward", "without turning", "heading"),
        (GO1, "walk forward", "more upright", "upright"),
        (ISAAC_CARTPOLE, "keep the pole upright", "in the middle of the rail", "place"),
    ],
)
def test_a_note_on_a_quality_is_addressed_in_later_revisions_too(environment, intent, note, term):
    one = first(environment, intent, speed=0.5)
    steered = revise(task(environment, intent, one, notes=[note]))
    assert "is addressed" in steered.diagnosis and term in steered.planned_change
    assert lint_reward(steered.source, load_card(environment)) == []
    assert effect(steered.source, term) != effect(one.reward.source, term)
    two = iteration(2, steered.source, 0.9, {"speed": 0.5, "upright": 0.5})
    later = revise(task(environment, intent, one, two))
    assert later.based_on == 2 and first_line(later.source) == first_line(steered.source)


def first_line(source):
    return source.partition("\n")[0]


def effect(source, term):
    """The line of a reward that computes a term; None where it has none."""
    return next((line for line in source.splitlines() if line.strip().startswith(f"{term} = ")), None)


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: f"{known.environment}: {known.text}")
def test_the_first_line_of_a_reward_is_parsed_to_its_intent(known):
    intent = parse(known.text, known.environment)
    words = first_line(write_reward(brief(known.environment, known.text)).source).strip('"')
    assert parse(words.removesuffix(f", in {known.environment}."), known.environment) == intent


def test_it_cannot_fix():
    repair, intended = pb.CodeRepair(source="def", round=1), brief(CHEETAH, "run")
    tasks = (pb.RewardAuthorTask(brief=intended, repair=repair), pb.JudgeAuthorTask(brief=intended, repair=repair))
    for task in (*tasks, pb.FixerTask(brief=intended, subject="policy", source="def")):
        with pytest.raises(FailedPrecondition) as caught:
            answer(task)
        assert caught.value.reason == "TEMPLATE_CANNOT_FIX"


def trained(past, *, reason=None, env_steps=400, parent=""):
    """An iteration with the course of its training, of 100 expected steps and at most 400."""
    past.name = f"sessions/s/iterations/{past.number}"
    course = past.reward.course
    course.expected_steps, course.env_steps, course.max_steps = 100, env_steps, 400
    if reason is not None:
        course.early_stop.reason, course.early_stop.score = reason, 0.73
    if parent:
        past.reward.warm_start.iteration = f"sessions/s/iterations/{parent}"
    return past


@pytest.mark.parametrize(
    ("course", "why"),
    [
        ({"reason": v1.STOP_REASON_PASSES, "env_steps": 200}, "ended at checkpoints that passed, with 0.73"),
        ({"reason": v1.STOP_REASON_PASSES_EARLY, "env_steps": 50}, "ended at checkpoints that passed, with 0.73"),
        ({}, "reached the limit of 400 steps while it improved"),
    ],
)
def test_a_training_that_still_improved_continues_with_its_reward(course, why):
    one = trained(first(CHEETAH, "run forward fast", speed=0.5), **course)
    revision = revise(task(CHEETAH, "run forward fast", one, may_continue_from=[1]))
    assert revision.from_parent and revision.source == one.reward.source and revision.based_on == 1
    assert why in revision.start_reasoning and why in revision.diagnosis
    fresh = revise(task(CHEETAH, "run forward fast", one))  # the session's settings do not permit it
    assert not fresh.from_parent and fresh.source != one.reward.source


@pytest.mark.parametrize(
    "course",
    [{"reason": v1.STOP_REASON_LEVEL}, {"reason": v1.STOP_REASON_BUDGET}, {"env_steps": 100}],
)
def test_a_training_that_no_longer_improved_does_not_continue(course):
    one = trained(first(CHEETAH, "run forward fast", speed=0.5), **course)
    assert not revise(task(CHEETAH, "run forward fast", one, may_continue_from=[1])).from_parent


@pytest.mark.parametrize(("judged_by", "continues"), [("code", True), ("code and video", False)])
def test_passing_checkpoints_count_where_code_alone_judged(judged_by, continues):
    one = trained(first(CHEETAH, "run forward fast", speed=0.5), reason=v1.STOP_REASON_PASSES)
    one.judgment.judged_by = judged_by
    assert revise(task(CHEETAH, "run forward fast", one, may_continue_from=[1])).from_parent == continues


@pytest.mark.parametrize(("score", "based_on", "continues"), [(0.3, 1, False), (0.6, 2, True)])
def test_it_continues_again_only_from_a_better_iteration(score, based_on, continues):
    one = trained(first(CHEETAH, "run forward fast", speed=0.5), reason=v1.STOP_REASON_PASSES)
    two = trained(iteration(2, one.reward.source, score, {"speed": score}), reason=v1.STOP_REASON_PASSES, parent="1")
    revision = revise(task(CHEETAH, "run forward fast", one, two, may_continue_from=[1, 2]))
    assert (revision.based_on, revision.from_parent) == (based_on, continues)
