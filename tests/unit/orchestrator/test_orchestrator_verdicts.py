"""Budgets and the way from rollouts to a verdict on a config."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from dressage.api.v1 import session_pb2 as v1
from dressage.serving.costs import add_cost
from dressage_orchestrator.lifecycle import aggregate, budget
from dressage_orchestrator.methods.reward import judgment
from google.protobuf.duration_pb2 import Duration
from hypothesis import given
from hypothesis import strategies as st


def member(config: str, seed: int, scores: list[float], *, failed: bool = False) -> v1.Member:
    member = v1.Member(config=config, seed=seed)
    evaluation = member.evaluations.add(env_step=1)
    for score in scores:
        evaluation.rollouts.add().judgment.CopyFrom(v1.Judgment(score=score, diagnosis=f"scored {score}"))
    if failed:
        member.failure.message = "diverged"
    member.judgment.CopyFrom(aggregate.member_judgment(member, threshold=0.7))
    return member


def test_a_lucky_seed_does_not_pass_a_config_and_a_broken_one_counts() -> None:
    members = [member("a", 0, [1.0, 1.0]), member("a", 1, [0.2]), member("b", 0, [0.5, 0.7]), member("b", 1, [0.7])]
    configs = judgment.by_config(members, threshold=0.7)
    assert configs["a"].score == pytest.approx(0.6) and not configs["a"].passed
    assert configs["b"].score == pytest.approx(0.65) and judgment.best_config(configs) == "b"
    assert configs["a"].diagnosis == "Mean of 2 scores; the lowest: scored 0.2"
    assert list(configs["a"].samples) == [1.0, pytest.approx(0.2)]
    broken = judgment.by_config([member("a", 0, [1.0]), member("a", 1, [1.0], failed=True)], threshold=0.7)["a"]
    assert broken.score == pytest.approx(0.5) and not broken.passed
    assert judgment.by_config([member("a", 0, [])], threshold=0.7)["a"].score == 0


def judged(code: float, merged: float | None = None) -> v1.Judgment:
    judgment = v1.Judgment(
        score=code if merged is None else merged, diagnosis="seen" if merged is not None else "measured"
    )
    judgment.verdicts.add(kind=v1.JUDGE_KIND_CODE, score=code)
    if merged is not None:
        judgment.verdicts.add(kind=v1.JUDGE_KIND_VIDEO, score=0.0)
    return judgment


def test_a_correction_by_video_applies_to_rollouts_without_video() -> None:
    member = v1.Member(config="a")
    evaluation = member.evaluations.add(env_step=1)
    for entry in (judged(1.0), judged(1.0, 0.6), judged(0.9)):
        evaluation.rollouts.add().judgment.CopyFrom(entry)
    verdict = aggregate.member_judgment(member, threshold=0.7)
    assert verdict.score == pytest.approx((0.6 + 0.6 + 0.5) / 3) and not verdict.passed
    assert list(verdict.samples) == pytest.approx([0.6, 0.6, 0.5])
    assert [rollout.judgment.score for rollout in evaluation.rollouts] == [1.0, 0.6, 0.9]  # what was judged stays


@given(st.lists(st.floats(0, 1), min_size=1, max_size=4), st.floats(0, 1), st.floats(0, 1))
def test_the_video_correction_keeps_scores_in_range_and_in_order(
    codes: list[float], code: float, merged: float
) -> None:
    before = [judged(value) for value in codes]
    after = aggregate.with_video_correction([*before, judged(code, merged)])
    assert after[-1].score == merged and all(0 <= entry.score <= 1 for entry in after)
    kept = [entry.score for entry in after[:-1]]
    assert [kept[place] for place in np.argsort(codes, kind="stable")] == sorted(kept)
    assert [entry.score for entry in aggregate.with_video_correction(before)] == codes


def test_among_equal_scores_the_diagnosis_of_the_video_is_used() -> None:
    assert aggregate.pool([judged(0.6), judged(1.0, 0.6)], threshold=0.7).diagnosis.endswith("the lowest: seen")
    assert aggregate.pool([judged(0.5), judged(1.0, 0.6)], threshold=0.7).diagnosis.endswith("the lowest: measured")


NOW = datetime(2026, 1, 1, tzinfo=UTC)


def session(**limits: object) -> v1.Session:
    session = v1.Session(env_steps=100, cost=v1.Cost(requests=2, input_tokens=60, output_tokens=40, dollars=0.5))
    session.spec.budget.CopyFrom(v1.Budget(**limits))
    session.start_time.FromDatetime(NOW - timedelta(seconds=60))
    return session


@pytest.mark.parametrize(
    ("limits", "steps", "kind"),
    [
        ({}, 10**9, None),
        ({"env_steps": 100}, 0, None),
        ({"env_steps": 100}, 1, "env_steps"),
        ({"tokens": 101}, 0, None),
        ({"tokens": 100}, 0, "tokens"),
        ({"dollars": 0.51}, 0, None),
        ({"dollars": 0.5}, 0, "dollars"),
        ({"wall_time": Duration(seconds=61)}, 0, None),
        ({"wall_time": Duration(seconds=60)}, 0, "wall_time"),
    ],
)
def test_budgets_end_at_their_bound(limits: dict[str, object], steps: int, kind: str | None) -> None:
    used = budget.used_up(session(**limits), now=NOW, next_env_steps=steps)
    reason = None if kind is None else v1.ExhaustionReason.Value(f"EXHAUSTION_REASON_{kind.upper()}")
    assert (used and used.reason) == reason


def test_what_remains_for_models() -> None:
    left = budget.remaining(session(tokens=150, dollars=2.0))
    assert left.tokens == 50 and left.dollars == pytest.approx(1.5)
    assert not budget.remaining(session()).HasField("dollars")


def test_dollars_are_unknown_once_a_part_is() -> None:
    total = v1.Cost()
    add_cost(total, v1.Cost(requests=1, dollars=0.1))
    add_cost(total, v1.Cost())  # from a journal: nothing was paid
    assert total.dollars == pytest.approx(0.1)
    add_cost(total, v1.Cost(requests=1))
    assert not total.HasField("dollars") and total.requests == 2
    add_cost(total, v1.Cost(requests=1, dollars=0.1))
    assert not total.HasField("dollars")
