"""The decision to end a training early: a function of the judged checkpoints, the same whenever it is made."""

from __future__ import annotations

import pytest
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import InvalidArgument
from dressage_orchestrator.lifecycle.checkpoint_judging import EarlyEnd
from dressage_orchestrator.methods.reward import spec
from dressage_orchestrator.methods.reward.course import Course, required_score
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.specs import reward_session

MARKS = 8
STEPS = 1000
scores = st.lists(st.sampled_from([0.0, 0.69, 0.75, 0.8, 0.95, None]), min_size=MARKS - 1, max_size=MARKS - 1)


def member(seed: int, judged: list[float | None]) -> v1.Member:
    """A member whose checkpoint at each mark has this score; None: not judged."""
    one = v1.Member(name=f"sessions/s/iterations/1/assignments/train/members/a-s{seed}", target_env_steps=STEPS)
    for mark, score in enumerate(judged, start=1):
        evaluation = one.evaluations.add(env_step=STEPS * mark // MARKS + 3)
        rollout = evaluation.rollouts.add()
        if score is not None:
            rollout.judgment.score = score
            rollout.judgment.verdicts.add(kind=v1.JUDGE_KIND_CODE, score=score)
    return one


def decided(members: list[v1.Member], threshold: float) -> EarlyEnd | None:
    course = Course(threshold=threshold, steps=STEPS, evaluations=MARKS, most=STEPS)
    return course.decide(members).end


def stop(*seeds: list[float | None], threshold: float = 0.7) -> int | None:
    """The mark of the delivered checkpoint."""
    end = decided([member(n, s) for n, s in enumerate(seeds)], threshold)
    if end is None:
        return None
    assert end.decision.score >= end.decision.required_score and set(end.final_steps) == {
        f"a-s{n}" for n in range(len(seeds))
    }
    (step,) = set(end.final_steps.values())
    return round((step - 3) * MARKS / STEPS)


def test_all_seeds_pass_with_a_margin_at_two_successive_checkpoints() -> None:
    low, high = [0.1, 0.9, 0.95, 0.9], [0.9, 0.9, 0.85, 0.9]
    assert stop(high, high) == 2 and stop(low, high) == 3
    assert stop([0.9, 0.75, 0.9, 0.75], high) is None  # it passes without the margin, or only every other time
    assert stop([0.9], high) is None and stop() is None
    assert stop([0.95, 0.95], threshold=0.9) == 2 and stop([0.94, 0.99], threshold=0.9) is None
    assert required_score(1.0) == 1.0
    failed = member(1, high)
    failed.failure.reason = "REWARD_NOT_FINITE"
    assert decided([member(0, high), failed], 0.7) is None


@given(first=scores, second=scores, known=st.integers(0, MARKS - 1))
def test_a_late_decision_is_that_of_a_prompt_one(
    first: list[float | None], second: list[float | None], known: int
) -> None:
    prompt = stop(first[:known], second[:known])
    assert prompt is None or prompt == stop(first, second)


def test_it_applies_to_one_judged_config() -> None:
    base = {"intent": "run", "environment": "environments/HalfCheetah-v5", "seeds": 2, "steps_per_member": 1000}
    usual = reward_session(**base)
    assert spec.may_stop_early(usual, 1) and not spec.may_stop_early(usual, 2)
    only_video = {"video_judging": v1.VIDEO_JUDGING_ONLY}
    for more in ({"early_stop": False}, {"train_only": True}, {"judge_last_checkpoint_only": True}, only_video):
        assert not spec.may_stop_early(reward_session(**base, **more), 1)


@pytest.mark.parametrize(
    "more",
    [{"train_only": True, "reward_source": "x"}, {"config_variants": True}, {"judge_last_checkpoint_only": True}],
)
def test_it_is_refused_where_it_cannot_be(more: dict[str, object]) -> None:
    base = {"intent": "run", "environment": "environments/HalfCheetah-v5"}
    settings: list[dict[str, object]] = [{"early_stop": True}, {"checkpoint": v1.CHECKPOINT_CHOICE_BEST}]
    # Of several configs each has a best checkpoint, and a training without a judge has one by its returns.
    for setting in settings[: 2 if "judge_last_checkpoint_only" in more else 1]:
        full = reward_session(**base, **more, **setting)
        spec.fill(full)
        assert full.reward.evaluations == 4
        with pytest.raises(InvalidArgument, match=next(iter(setting))):
            spec.validate(full)


def test_a_training_that_may_end_early_has_more_evaluations() -> None:
    full = reward_session(intent="run", environment="environments/HalfCheetah-v5")
    spec.fill(full)
    assert full.reward.evaluations == 8
