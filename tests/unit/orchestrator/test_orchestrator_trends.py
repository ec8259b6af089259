"""Revisions see how metrics developed, and may choose a training length within a range."""

from __future__ import annotations

import json

import pytest
from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.v1 import session_pb2 as v1
from dressage_orchestrator.methods.reward import revising, tools
from dressage_orchestrator.methods.reward.history import PARTS, History, parse_metrics, trend_of
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.specs import reward_session


def rows(values, **more):
    return "".join(json.dumps({"update": n, "step": 10 * n, "entropy": v, **more}) + "\n" for n, v in enumerate(values))


def test_a_trend_has_the_means_of_equal_parts_without_counters():
    data = rows(range(10), term_share=0.5, steps_per_second=9.0) + '{"entropy": 1'
    assert trend_of(parse_metrics(data.encode())) == {
        "entropy": [0.5, 2.5, 4.5, 6.5, 8.5],
        "term_share": [0.5] * PARTS,
    }


@given(st.lists(st.floats(-1e6, 1e6) | st.none() | st.just(float("nan")), max_size=40))
def test_each_part_is_within_the_range_of_the_values(values):
    course = trend_of(parse_metrics(rows(values).encode()))
    finite = [value for value in values if value is not None and value == value]
    assert ("entropy" in course) == bool(finite)
    for value in course.get("entropy", []):
        assert min(finite) - 1e-6 <= value <= max(finite) + 1e-6


def history(trend):
    members = [
        v1.Member(name=f"m{seed}", config="default", seed=seed, metrics={"entropy": 4.0 + seed}) for seed in (0, 1)
    ]
    iteration = v1.Iteration(name="sessions/s/iterations/1", number=1, reward={"configs": [{"id": "default"}]})
    return History([iteration], {1: members}, trend=trend)


def test_dynamics_show_the_course_and_not_the_last_value():
    shown = history(lambda member: {"entropy": [8.0, 6.0 - member.seed]})
    text = tools.dynamics(shown, 1)
    assert "entropy 8 → 5.5" in text and "last metrics" not in text
    answer = json.loads(tools.history_tools(shown)["get_dynamics"]({"number": 1}))
    assert answer["configs"]["default"]["members"][1]["metrics"] == {"entropy": [8.0, 5.0]}


def test_last_values_stand_where_no_metrics_are_stored():
    text = tools.dynamics(history(lambda _: {}), 1)
    assert "last metrics by seed: entropy 4; entropy 5" in text


@pytest.mark.parametrize(
    ("remaining", "members", "expected"), [(0, 6, (500, 4000)), (12_000, 6, (500, 2000)), (600, 6, (100, 100))]
)
def test_the_range_of_steps_follows_the_spec_and_the_budget(remaining, members, expected):
    assert revising.step_range(reward_session(steps_per_member=1000), members=members, remaining=remaining) == expected


@pytest.mark.parametrize(("suggested", "used"), [(0, 1000), (2000, 2000), (10**9, 4000), (1, 500)])
def test_steps_outside_of_the_range_are_clamped_and_stated(suggested, used):
    task = agent_pb.ReviserTask(lowest_steps=500, highest_steps=4000)
    steps, changed = revising.clamp_steps(suggested, task, 1000)
    assert steps == used and bool(changed) == (suggested not in (0, used))
    assert revising.clamp_steps(2000, agent_pb.ReviserTask(), 1000) == (1000, [])


def test_network_sizes_are_clamped():
    allowed, changed = revising.clamp(v1.Hyperparameters(hidden_sizes=[4096, 8, 64, 64]))
    assert list(allowed.hidden_sizes) == [512, 16, 64]
    assert "hidden_sizes 4096 → 512, hidden_sizes 8 → 16, hidden_sizes 64 → left out" in revising.adjustment_message(
        changed
    )
