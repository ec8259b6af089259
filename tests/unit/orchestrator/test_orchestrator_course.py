"""How long a training lasts: a function of the judged checkpoints, with a stated error rate, the same whenever it is asked."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from dressage.api.v1 import session_pb2 as v1
from dressage_orchestrator.lifecycle.checkpoint_judging import Decision
from dressage_orchestrator.methods.reward import spec
from dressage_orchestrator.methods.reward.course import CHANCE, Course, _concordance, chance_of, rises
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tests.fakes.specs import reward_session

STEPS, MARKS, MOST = 8000, 8, 32_000
COURSE = Course(threshold=0.7, steps=STEPS, evaluations=MARKS, most=MOST)
Curve = Sequence[tuple[float, float]]
curves = st.lists(st.tuples(st.sampled_from([0.0, 0.2, 0.5, 0.75, 0.95]), st.floats(-100, 100)), max_size=31)


def member(seed: int, curve: Curve) -> v1.Member:
    """A member whose checkpoint at each mark has this score and this return."""
    one = v1.Member(name=f"sessions/s/iterations/1/assignments/train/members/a-s{seed}")
    for mark, (score, gain) in enumerate(curve, start=1):
        evaluation = one.evaluations.add(env_step=STEPS * mark // MARKS + 3, proposed_returns=[gain])
        judgment = evaluation.rollouts.add().judgment
        judgment.score = score
        judgment.verdicts.add(kind=v1.JUDGE_KIND_CODE, score=score)
    return one


def decide(*seeds: Curve, course: Course = COURSE) -> Decision:
    return course.decide([member(number, curve) for number, curve in enumerate(seeds)])


def mark_of(decision: Decision) -> int:
    assert decision.end is not None
    (step,) = set(decision.end.final_steps.values())
    return COURSE.number(step)


def steady(marks: int, *, score: float = 0.1, gain: float = 10.0) -> list[tuple[float, float]]:
    return [(score, gain * mark) for mark in range(1, marks + 1)]


@pytest.mark.parametrize("lengths", [(4,), (5,), (3, 3), (4, 3)])
def test_the_chance_is_the_share_of_orders_that_rise_as_clearly(lengths: tuple[int, ...]) -> None:
    orders = [list(itertools.permutations(range(length))) for length in lengths]
    every = [list(chosen) for chosen in itertools.product(*orders)]
    sums = [sum(_concordance(seed) for seed in seeds) for seeds in every]
    for seeds, seen in list(zip(every, sums, strict=True))[:: max(1, len(every) // 30)]:
        assert chance_of(seeds) == pytest.approx(sum(total >= seen for total in sums) / len(sums))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(-1000, 1000), min_size=3, max_size=6, unique=True))
def test_for_one_seed_the_chance_is_that_of_scipy(values: list[int]) -> None:
    ours = chance_of([values])
    theirs = stats.kendalltau(range(len(values)), values, alternative="greater", method="exact").pvalue
    assert ours == pytest.approx(float(theirs))


@pytest.mark.parametrize("seeds", [1, 3])
def test_level_values_rarely_rise(seeds: int) -> None:
    random = np.random.default_rng(0)
    tries = 4000
    count = sum(rises(random.normal(size=(seeds, 12)).tolist())[0] for _ in range(tries))
    assert count / tries <= CHANCE + 3 * np.sqrt(CHANCE / tries)


def test_a_rise_that_is_small_beside_the_whole_is_none() -> None:
    grown = [0.0, 60.0, 90.0, 96.0, 98.0, 99.0, 99.5, 99.7, 99.8]
    assert rises([grown[:4], grown[:4], grown[:4]])[0]
    whole = rises([grown, grown, grown])
    assert not whole[0] and whole[1] <= CHANCE
    assert not rises([[1.0] * 8, [1.0] * 8])[0]


def test_it_continues_while_returns_or_scores_rise() -> None:
    seven = steady(7)
    ahead = decide(seven, seven).extension
    assert ahead is not None and ahead.env_steps == 9000 and ahead.decided_at == 7003
    assert ahead.rise.return_rises and not ahead.rise.score_rises
    assert decide(steady(8), steady(8)).extension.env_steps == 10_000  # type: ignore[union-attr]
    level = [(0.1, 5.0)] * 8
    assert decide(level[:7], level[:7]) == Decision()
    end = decide(level, level).end
    assert end is not None and end.decision.reason == v1.STOP_REASON_LEVEL and mark_of(decide(level, level)) == 8
    # It ends only after two checkpoints in a row without a rise; with patience 1 at the first.
    flat = [*steady(12), *[(0.1, 60.0)] * 8]
    lasts = mark_of(decide(flat, flat))
    impatient = Course(threshold=0.7, steps=STEPS, evaluations=MARKS, most=MOST, patience=1)
    assert 12 < lasts < 20 and mark_of(decide(flat, flat, course=impatient)) == lasts - 1


def test_from_the_expected_steps_on_it_ends_where_the_mean_passes() -> None:
    curve = [*steady(8), (0.8, 90.0), (0.9, 100.0)]
    end = decide(curve, curve).end
    assert end is not None and end.decision.reason == v1.STOP_REASON_PASSES
    assert (mark_of(decide(curve, curve)), end.decision.score) == (9, pytest.approx(0.8))
    # Just above the threshold it ends at the second checkpoint in succession that passes.
    narrow = [*steady(8), (0.72, 90.0), (0.6, 100.0), (0.72, 110.0), (0.71, 120.0), (0.9, 130.0)]
    for known in (9, 10, 11):
        assert decide(narrow[:known], narrow[:known]).end is None
    end = decide(narrow, narrow).end
    assert end is not None and end.decision.reason == v1.STOP_REASON_PASSES
    assert (mark_of(decide(narrow, narrow)), end.decision.score) == (12, pytest.approx(0.71))
    # What passes shortly before is not gone beyond until the next checkpoint is known.
    passing = [*steady(6), (0.72, 70.0)]
    assert decide(passing, passing) == Decision()


def test_a_failed_seed_is_left_out_and_the_bound_is_the_last_grant() -> None:
    failed = member(1, steady(3))
    failed.failure.reason = "REWARD_NOT_FINITE"
    decision = COURSE.decide([member(0, steady(9)), failed])
    assert decision.extension is not None and decision.extension.env_steps == 11_000
    assert decide(steady(31)).extension.env_steps == MOST  # type: ignore[union-attr]
    fixed = Course(threshold=0.7, steps=STEPS, evaluations=MARKS, most=STEPS)
    assert decide(steady(7), course=fixed) == Decision()


@settings(max_examples=200, deadline=None)
@given(first=curves, second=curves, known=st.integers(0, 31))
def test_a_late_decision_is_that_of_a_prompt_one(first: Curve, second: Curve, known: int) -> None:
    prompt, late = decide(first[:known], second[:known]), decide(first, second)
    if prompt.end is not None:
        assert late.end == prompt.end
    elif prompt.extension is not None and late.end is None:
        assert late.extension is not None and late.extension.env_steps >= prompt.extension.env_steps
    granted = prompt.extension.env_steps if prompt.extension is not None else STEPS
    if prompt.end is None:  # a later end is a checkpoint that the learner was allowed to reach, or the next decision's
        judged = min(len(first[:known]), len(second[:known]))
        assert STEPS <= granted <= MOST and granted <= max(STEPS, STEPS * (judged + 2) // MARKS)


@settings(max_examples=100, deadline=None)
@given(first=curves, second=curves)
def test_it_always_decides_where_the_learner_waits(first: Curve, second: Curve) -> None:
    """Played forward from checkpoint to checkpoint it ends, or reaches the bound: no learner waits for ever."""
    seeds = [[*curve, *[(0.0, 0.0)] * 31] for curve in (first, second)]
    judged, granted = 0, STEPS
    while granted < MOST:
        while STEPS * (judged + 1) // MARKS <= granted:
            judged += 1
        decision = decide(*(seed[:judged] for seed in seeds))
        if decision.end is not None:
            assert all(step <= granted + 3 for step in decision.end.final_steps.values())
            return
        assert decision.extension is not None and decision.extension.env_steps > granted
        granted = decision.extension.env_steps


def test_lengths_of_a_spec() -> None:
    base = {"intent": "run", "environment": "environments/HalfCheetah-v5"}

    def filled(**more: object) -> tuple[int, int]:
        full = reward_session(**base, **more)
        spec.fill(full)
        return full.reward.steps_per_member, full.reward.max_steps_per_member

    assert filled() == (500_000, 2_000_000)
    assert filled(max_steps_per_member=300_000) == (300_000, 300_000)
    assert filled(max_steps_per_member=900_000) == (500_000, 900_000)
    assert filled(steps_per_member=900_000) == (900_000, 900_000)
    assert filled(steps_per_member=100_000, max_steps_per_member=900_000) == (100_000, 900_000)
    for fixed in ({"early_stop": False}, {"config_variants": True}, {"train_only": True}):
        assert filled(**fixed) == (500_000, 500_000)
        assert filled(max_steps_per_member=900_000, **fixed) == (900_000, 900_000)


@pytest.mark.parametrize(("steps", "most"), [(500_000, 2_000_000), (8_000, 8_000)])
def test_marks_closer_than_an_update_leave_the_length_fixed(steps: int, most: int) -> None:
    full = reward_session(
        intent="run", environment="environments/HalfCheetah-v5", steps_per_member=steps, max_steps_per_member=2_000_000
    )
    spec.fill(full)
    iteration = v1.Iteration(reward=v1.RewardProposal(configs=full.reward.configs))
    assert spec.most_steps(full, iteration, affordable=0) == most
    assert spec.most_steps(full, iteration, affordable=steps + 10) == min(most, steps + 10)
