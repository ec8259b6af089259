"""Measured sessions: what a plan expects of an intent of their class."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from dressage.api.v1.session_service_pb2 import EstimateSessionResponse
from dressage.cli.plan import plan_text
from dressage.envs.cards import list_cards
from dressage.training.measured import MeasuredSession, closest, measured_session, parse_sessions, sessions
from dressage.training.preset import load_preset
from dressage_orchestrator.methods.reward import spec
from dressage_orchestrator.methods.reward.method import RewardMethod

from tests.fakes.specs import reward_session

TOOL = Path(__file__).resolve().parents[3] / "tools" / "measured_sessions.py"
DOUBLE = "InvertedDoublePendulum-v5"


@pytest.mark.parametrize("entry", sessions(), ids=lambda entry: f"{entry.environment} {entry.intent}")
def test_a_measured_session_is_that_of_its_own_intent(entry):
    assert entry.environment in {card.id for card in list_cards()} and entry.source
    assert measured_session(entry.environment, entry.intent) in (entry, None)
    assert set(entry.words) <= set(entry.intent.lower().split())
    assert not entry.passed or 0 < entry.steps <= spec.MOST_FACTOR * load_preset(entry.environment).steps_per_member
    assert entry.seeds >= 1 and 0 <= entry.passed <= entry.sessions and bool(entry.core_seconds) == bool(entry.passed)


def estimate(intent="balance both poles", **more):
    full = reward_session(intent=intent, environment=f"environments/{DOUBLE}", **more)
    spec.fill(full)
    method = RewardMethod()
    part = method.estimate(full, episode_steps=1000)

    def seconds(of, rate=None, cores=2):
        return method.seconds(full, of, cores=cores, rate=rate)

    return part, seconds


def test_the_plan_expects_what_was_measured_and_states_the_largest():
    part, seconds = estimate()
    entry = measured_session(DOUBLE, "balance both poles")
    passed = f"{entry.passed} of {entry.sessions} sessions"
    assert part.measured == f"'balance both poles' passed after {entry.steps:,} steps of each of 3 seeds in {passed}"
    assert seconds(part) == pytest.approx(entry.core_seconds / 2)  # three seeds on two cores
    assert part.longest().env_steps == 4 * part.env_steps == 3 * 400_000
    assert seconds(part.longest()) > 2 * seconds(part)
    assert seconds(part, rate=1000.0) == pytest.approx(3 * entry.steps / 1000 + 10)  # this machine's speed


@pytest.mark.parametrize(
    "more",
    [
        {"intent": "spin"},
        {"early_stop": False},
        {"reward_source": "x"},
        {"max_steps_per_member": 1000},
        {"backend": "sb3"},
    ],
)
def test_sessions_that_train_otherwise_are_not_compared_with_it(more):
    part, seconds = estimate(**more)
    assert not part.measured and seconds(part) > 0


def result(cell, intent="walk forward", *, state="succeeded", seconds=100.0, env_steps=900_000):
    """A line of `results.jsonl`, with what the tool reads."""
    return {
        "cell": cell,
        "environment_id": "Walker2d-v5",
        "intent": intent,
        "state": state,
        "seconds": seconds,
        "env_steps": env_steps,
        "settings": {"method": "reward", "seeds": 3},
        "machine": {"cores": 2},
    }


def test_results_of_the_intents_become_what_plans_expect(tmp_path):
    rows = [
        result("a", seconds=100.0),
        result("b", state="failed", seconds=5.0),
        result("b", seconds=300.0, env_steps=2_100_000),  # of two lines of a cell the last one counts
        result("c", state="exhausted", seconds=900.0),
        result("d", "run forward fast"),
        result("e", "run forward fast", state="exhausted"),
        result("f", "run forward fast", state="exhausted"),
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows) + '{"cell": "cut o'
    tmp_path.joinpath("results.jsonl").write_text(text, "utf-8")
    subprocess.run([sys.executable, str(TOOL), str(tmp_path), "--out", str(tmp_path)], check=True, timeout=60)
    walk, run = parse_sessions((tmp_path / "Walker2d-v5.toml").read_text("utf-8"), "Walker2d-v5")
    assert (walk.words, walk.sessions, walk.passed, walk.seeds) == (("walk", "forward"), 3, 2, 3)
    assert (walk.steps, walk.core_seconds) == (500_000, 400.0)
    assert walk.text() == "'walk forward' passed after 500,000 steps of each of 3 seeds in 2 of 3 sessions"
    assert closest((walk, run), "Walker2d-v5", "walk slowly forward") == walk
    assert (run.sessions, run.passed) == (3, 1) and closest((walk, run), "Walker2d-v5", run.intent) is None
    assert closest((walk, run), "Ant-v5", "walk forward") is None


def test_the_sessions_of_the_experiment_count_before_others():
    entry = MeasuredSession("Ant-v5", ("walk",), "walk", 1, 10, 1.0, "by hand")
    later = replace(entry, source="the experiment")
    assert closest((later, entry), "Ant-v5", "walk") is later
    longer = replace(entry, words=("walk", "forward"))
    assert closest((later, longer), "Ant-v5", "walk forward") is longer


def test_a_plan_states_that_most_measured_sessions_did_not_pass(monkeypatch):
    entry = MeasuredSession("Ant-v5", ("climb",), "climb", 3, 0, 0.0, "the experiment", sessions=2, passed=0)
    monkeypatch.setattr("dressage.training.measured.sessions", lambda: (entry,))
    full = reward_session(intent="climb", environment="environments/Ant-v5")
    spec.fill(full)
    expected = "most measured sessions of this kind did not pass: 'climb' passed in none of 2 sessions (the experiment)"
    assert RewardMethod().note(full) == expected
    assert replace(entry, sessions=1).text() == "'climb' did not pass in one session"
    monkeypatch.setattr("dressage.training.measured.sessions", lambda: (replace(entry, passed=1),))
    assert not RewardMethod().note(full)


def test_a_plan_states_that_an_intent_was_not_measured():
    full = reward_session(intent="spin", environment="environments/Ant-v5")
    spec.fill(full)
    shown = EstimateSessionResponse(spec=full, env_steps_per_iteration=1000, most_env_steps_per_iteration=4000)
    assert "no measured time for this intent" in plan_text(shown).plain
    shown.measured = "'walk forward' passed"
    assert "expected from measured sessions: 'walk forward' passed" in plan_text(shown).plain
