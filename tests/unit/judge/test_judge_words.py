"""Diagnoses begin with the weakest criteria; failed null controls report statistics of the episode."""

from __future__ import annotations

import numpy as np
import pytest
from dressage.api.v1 import session_pb2
from dressage.contracts import JudgeResult
from dressage.envs.cards import load_card
from dressage.errors import FailedPrecondition, InvalidArgument, NotFound
from dressage_judge.controls import CONTROLS, control_trajectories, describe, null_failures, require_controls
from dressage_judge.diagnosis import diagnose, failure_tags
from dressage_judge.messages import judgment
from hypothesis import given
from hypothesis import strategies as st

unit = st.floats(0, 1)
results = st.builds(
    JudgeResult,
    score=unit,
    criteria=st.dictionaries(st.text("abc_ ", min_size=1, max_size=12), unit, min_size=1, max_size=6),
    evidence=st.dictionaries(st.text("abc_", min_size=1, max_size=8), st.floats(-1e6, 1e6), max_size=10),
)


def test_a_low_score_reports_weak_criteria_and_measured_values() -> None:
    result = JudgeResult(
        0.3, {"upright": 0.9, "forward_speed": 0.1}, {"max_pitch_rad": 0.2, "mean_speed_m_s": 0.734512}
    )
    text = diagnose(result, threshold=0.7)
    assert text == (
        "Score 0.30 stays below the threshold 0.70. What is lacking: forward speed (0.10). "
        "Measured: mean speed 0.7345 m/s, max pitch 0.2 rad."
    )
    assert failure_tags(result, threshold=0.7) == ["forward_speed"]


def test_a_unit_of_a_bound_stays_in_the_name() -> None:
    text = diagnose(JudgeResult(0.9, {}, {"share_of_time_below_0.42_m": 1.0, "mean_height_m": 0.36}), threshold=0.7)
    assert text.endswith("Measured: share of time below 0.42 m: 1, mean height 0.36 m.")


def test_a_high_score_reports_the_weakest_criterion_and_no_tags() -> None:
    result = JudgeResult(0.9, {"smooth": 0.8, "fast": 1.0}, {})
    assert diagnose(result, threshold=0.7) == "Score 0.90 reaches the threshold 0.70. Weakest: smooth (0.80)."
    assert failure_tags(result, threshold=0.7) == []


@given(result=results, threshold=unit)
def test_message_and_diagnosis_agree_with_the_score(result: JudgeResult, threshold: float) -> None:
    message = judgment(result, threshold=threshold)
    assert message.passed == (result.score >= threshold)
    assert ("reaches" in message.diagnosis) == message.passed
    assert not (message.passed and message.failure_tags)
    assert {each.name: each.score for each in message.criteria} == result.criteria
    assert message.verdicts[0].kind == session_pb2.JUDGE_KIND_CODE
    assert dict(message.verdicts[0].evidence) == result.evidence
    assert all(tag == tag.lower() and " " not in tag for tag in message.failure_tags)


def test_every_control_has_episodes_and_reversed_ones_run_backwards() -> None:
    controls = control_trajectories("HalfCheetah-v5")
    assert set(controls) == set(CONTROLS)
    assert all(controls.values())
    first, backwards = controls["random"][0], controls["time_reversed"][0]
    assert np.array_equal(backwards.x_position, first.x_position[::-1])
    assert np.array_equal(backwards.x_velocity, -first.x_velocity[::-1])
    with pytest.raises(NotFound):
        control_trajectories("Unicycle-v0")


def test_a_control_at_the_threshold_fails_with_its_statistics() -> None:
    controls = control_trajectories("HalfCheetah-v5")
    card = load_card("HalfCheetah-v5")
    scores = {
        "random": [0.1] * len(controls["random"]),
        "motionless": [0.7, *[0.2] * (len(controls["motionless"]) - 1)],
    }
    [failure] = null_failures(["random", "motionless"], scores, controls, card=card, threshold=0.7)
    assert failure.rule == "null-control"
    assert "'motionless'" in failure.message
    assert "below the pass threshold 0.7" in failure.message
    episode = controls["motionless"][0]
    mean = float(np.mean(episode.x_velocity, dtype=np.float64))
    assert failure.seen.startswith("score 0.700; ")
    assert f"mean x_velocity {mean:.3g} m/s" in failure.seen
    assert f"{episode.num_steps} steps of 0.05 s" in describe(episode, card)


def test_a_control_outside_of_the_request_may_score_high() -> None:
    controls = control_trajectories("HalfCheetah-v5")
    card = load_card("HalfCheetah-v5")
    assert null_failures(["random"], {"random": [0.0], "motionless": [1.0]}, controls, card=card, threshold=0.7) == []


def test_controls_without_episodes_are_refused() -> None:
    with pytest.raises(FailedPrecondition, match="no recorded motionless episodes"):
        require_controls(["motionless"], {"motionless": []}, "HalfCheetah-v5")
    with pytest.raises(InvalidArgument, match=r"null_controls: .*got 'sleepy'.; expected one of random"):
        require_controls(["sleepy"], {"random": []}, "HalfCheetah-v5")
