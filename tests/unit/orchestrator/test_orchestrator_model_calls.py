"""The estimate of model calls: its bounds, and what it counts."""

from __future__ import annotations

import pytest
from dressage.api.v1 import session_pb2 as v1
from dressage_orchestrator.methods.reward.estimates import model_calls
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.specs import filled_session, reward_session

MODEL = "openai/gpt-4.1"


def calls(**fields):
    return {entry.role: entry for entry in model_calls(filled_session(reward_session(model=MODEL, **fields)))}


@given(
    seeds=st.integers(1, 20),
    iterations=st.integers(1, 50),
    reward=st.sampled_from(["", "# r"]),
    judge=st.sampled_from(["", "# j"]),
    video=st.sampled_from([value for value in v1.VideoJudging.values() if value]),
)
def test_expected_calls_are_within_the_bounds(seeds, iterations, reward, judge, video):
    counted = calls(
        seeds=seeds, max_iterations=iterations, reward_source=reward, judge_source=judge, video_judging=video
    )
    for entry in counted.values():
        assert 0 <= entry.least <= entry.expected <= entry.most
    assert ("video_judge" in counted) == (video != v1.VIDEO_JUDGING_NONE)
    assert ("reviser" in counted) == (iterations > 1)
    assert ("judge_author" in counted) == (not judge and video != v1.VIDEO_JUDGING_ONLY)


def test_votes_repairs_tool_rounds_and_syntheses_count():
    counted = calls(seeds=3, max_iterations=5)
    assert counted["video_judge"].expected >= 3 * 3  # three votes on each seed's median rollout
    assert counted["reviser"].most == 18 and counted["reviser"].expected > 1
    assert counted["reward_author"].expected > 1 / 5 and counted["synthesiser"].expected > 0


def test_thinking_costs_tokens_and_training_alone_calls_no_model():
    spec = filled_session(reward_session(model=MODEL))
    spec.roles["judge"].thinking = "high"
    tokens = {entry.role: entry.output_tokens for entry in model_calls(spec)}
    assert tokens["judge_author"] == pytest.approx(3 * tokens["reward_author"])
    assert calls(train_only=True, reward_source="# r") == {}
