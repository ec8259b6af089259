"""Checks in the sandbox, on real trajectories: good code passes, each fault is named, hostile code is a failure."""

import time
from dataclasses import replace

import numpy as np
import pytest
from dressage.contracts import (
    CheckReport,
    JudgeError,
    RewardError,
    check_judge_in_sandbox,
    check_reward_in_sandbox,
    run_judge_in_sandbox,
    score_in_sandbox,
)
from dressage.contracts.check import examine_reward
from dressage.contracts.failures import CheckFailure
from dressage.contracts.judge import validate_result
from dressage.errors import ResourceExhausted
from dressage.sandbox import Limits
from dressage.sandbox.capabilities import capabilities

from tests.unit.contracts.conftest import GOOD, JUDGE, REMEMBERING
from tests.unit.contracts.test_contracts_reward import BARE, CLASS, CLOSURE

needs_sandbox = pytest.mark.skipif(not capabilities().sufficient, reason="no sandbox here")
SPEED = '"speed": next_state.x_velocity'
SMALL = Limits(memory_bytes=200 << 20, wall_seconds=30.0, processes=64)
SOON = Limits(memory_bytes=1 << 30, wall_seconds=4.0, processes=64)


def rules(report):
    return {failure.rule for failure in report.failures}


@pytest.mark.parametrize(
    "source", [GOOD, REMEMBERING, CLASS, CLOSURE, BARE], ids=["plain", "memory", "class", "closure", "bare"]
)
def test_good_rewards_pass(card, trajectories, source):
    report = examine_reward(source, card, trajectories, budget={"vectorised": 1e4, "per_step": 1e4})
    assert report.ok, [str(failure) for failure in report.failures]
    assert report.terms
    assert 0 < report.milliseconds_per_step < 1e4


FAULTS = {
    "batch mean": (SPEED + " - next_state.x_velocity.mean()", "row-independence"),
    "batch maximum": (SPEED + " / np.maximum(1.0, np.max(np.abs(next_state.x_velocity)))", "row-independence"),
    "neighbour": ('"speed": np.roll(next_state.x_velocity, 1)', "row-independence"),
    "row number": (SPEED + " * np.arange(len(next_state.x_velocity))", "row-independence"),
    "wrong shape": ('"speed": next_state.xpos_torso', "shape"),
    "not a number": ('"speed": np.sqrt(next_state.x_velocity)', "finite"),
    "missing term": ('"quick": next_state.x_velocity', "terms"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_found(card, trajectories, name):
    expression, rule = FAULTS[name]
    with np.errstate(all="ignore"):
        report = examine_reward(GOOD.replace(SPEED, expression), card, trajectories)
    assert not report.ok
    assert rule in rules(report)
    assert next(failure for failure in report.failures if failure.rule == rule).line == 6


@pytest.mark.parametrize(
    ("old", "new", "rule", "seen"),
    [
        ("return speed + control,", 'return float("nan"),', "finite", "nan at step 0"),
        ('float(info.get("x_velocity", 0.0))', "1.0 / 0.0", "exception", "ZeroDivisionError: float division by zero"),
    ],
)
def test_a_per_step_reward_that_is_not_finite_is_found(card, trajectories, old, new, rule, seen):
    (failure,) = examine_reward(CLASS.replace(old, new), card, trajectories).failures
    assert failure.rule == rule
    assert seen in failure.seen


def test_hidden_state_is_found(card, trajectories):
    counting = "CALLS = []\n" + GOOD.replace("    return", "    CALLS.append(1.0)\n    return").replace(
        SPEED, SPEED + " + len(CALLS)"
    )
    assert "deterministic" in rules(examine_reward(counting, card, trajectories))


def test_slow_rewards_are_found(card, trajectories):
    slow = GOOD.replace("    return", "    n = sum(i * i for i in range(20000))\n    return")
    report = examine_reward(slow, card, trajectories[:1], budget={"vectorised": 0.1})
    assert rules(report) == {"time_budget"}
    assert "per 1000 rows" in report.failures[0].seen


@needs_sandbox
def test_a_good_reward_passes_in_the_sandbox(card, trajectories, tmp_path):
    report = check_reward_in_sandbox(GOOD, card, trajectories, scratch=tmp_path)
    assert report.ok, report
    assert report.style == "vectorised"
    assert set(report.terms) == {"speed", "effort"}
    assert list(tmp_path.iterdir()) == []


@needs_sandbox
@pytest.mark.parametrize(
    ("statement", "rule", "line"),
    [
        ("while True: pass", "time_budget", 6),
        ("x = [np.ones((8, 1 << 27)) for i in range(3)]", "memory_budget", 6),
        ("x = [list(range(1 << 20)) for i in range(100000)]", "memory_budget", None),
        ("import os", "import", 6),
        ("import socket", "import", 6),
        ("x = 1 +", "syntax", 6),
    ],
)
def test_hostile_rewards_are_failures(card, trajectories, tmp_path, statement, rule, line):
    source = GOOD.replace("    return", f"    {statement}\n    return")
    begin = time.monotonic()
    report = check_reward_in_sandbox(source, card, trajectories[:2], scratch=tmp_path, limits=SOON if line else SMALL)
    assert rule in rules(report), report
    if line is not None:
        assert report.failures[0].line == line, report
    assert time.monotonic() - begin < 40


@needs_sandbox
def test_what_slips_through_the_lint_meets_the_sandbox(card, trajectories, tmp_path, monkeypatch):
    """The lint is no barrier. A reward that got past it still finds no socket and no process to make."""
    import dressage.contracts.host as host

    monkeypatch.setattr(host, "run", _run_without_lint(host.run))
    monkeypatch.syspath_prepend(str(__import__("pathlib").Path(__file__).parent))
    for statement in ("import socket; socket.socket()", "import os; os.fork()", "open('/etc/passwd')"):
        source = GOOD.replace("    return", f"    {statement}\n    return")
        report = check_reward_in_sandbox(source, card, trajectories[:1], scratch=tmp_path)
        assert rules(report) == {"sandbox"}, report
        assert "PermissionError" in report.failures[0].seen


def _run_without_lint(run):
    def call(target, request, **arguments):
        return run("lintless_target:check_reward", request, **arguments)

    return call


@needs_sandbox
def test_scores_are_the_sums_of_the_terms(card, trajectories, tmp_path):
    scores = score_in_sandbox(GOOD, card, trajectories, scratch=tmp_path)
    for score, trajectory in zip(scores, trajectories, strict=True):
        speed = trajectory.x_velocity[1:].astype(np.float64).sum()
        effort = -0.1 * np.square(trajectory.action.astype(np.float64)).sum()
        assert score["terms"] == pytest.approx({"speed": speed, "effort": effort})
        assert score["return"] == pytest.approx(speed + effort)
    assert score_in_sandbox(GOOD, card, [], scratch=tmp_path) == []


@needs_sandbox
def test_scoring_fails_with_the_line(card, trajectories, tmp_path):
    with pytest.raises(RewardError) as caught:
        score_in_sandbox(
            GOOD.replace(SPEED, '"speed": np.log(-1.0 - action[:, 0] ** 2)'), card, trajectories, scratch=tmp_path
        )
    assert (caught.value.rule, caught.value.line) == ("finite", 6)


BREAKING = GOOD.replace(SPEED, '"speed": np.log(1e-4 + next_state.x_position - WALL)')


@needs_sandbox
def test_large_trajectories_are_scored_in_batches(card, trajectories, tmp_path, monkeypatch):
    import dressage.contracts.host as host

    whole, parts, run = score_in_sandbox(REMEMBERING, card, trajectories, scratch=tmp_path), [], host.run

    def record(target, request, **arguments):
        parts.append(len(request["trajectories"]))
        return run(target, request, **arguments)

    monkeypatch.setattr(host, "run", record)
    size = host._bytes_of(trajectories[0])
    monkeypatch.setattr(host, "_BATCH_BYTES", 4 * size)
    assert score_in_sandbox(REMEMBERING, card, trajectories, scratch=tmp_path) == whole
    assert parts == [4, 2]
    lowest = [float(trajectory.x_position[1:].min()) for trajectory in trajectories]
    worst = lowest.index(min(lowest))
    source = BREAKING.replace("WALL", repr(sorted(lowest)[1]))
    with pytest.raises(RewardError) as caught:
        score_in_sandbox(source, card, trajectories, scratch=tmp_path)
    assert (caught.value.rule, caught.value.term, caught.value.row) == ("finite", "speed", worst)
    assert caught.value.seen.startswith("nan at step ") and caught.value.seen.endswith(f"of episode {worst}")


def test_scoring_has_time_and_memory_for_long_episodes(card, trajectories, tmp_path, monkeypatch):
    """A per-step reward may take 250 microseconds a row, a vectorised one 25 ms a call."""
    import dressage.contracts.host as host

    calls = []

    def record(target, request, *, limits, **arguments):
        calls.append((sum(len(t["reward"]) for t in request["trajectories"]), request["trajectories"], limits))
        return {"scores": [{"return": 0.0, "terms": {}} for _ in request["trajectories"]]}

    monkeypatch.setattr(host, "run", record)
    episode = replace(trajectories[0], fields={"observation": np.zeros((10_001, 495), np.float32)})
    episode = replace(episode, reward=np.zeros(10_000, np.float32), action=np.zeros((10_000, 17), np.float32))
    score_in_sandbox(GOOD, card, [episode] * 10, scratch=tmp_path)
    assert sum(steps for steps, _, _ in calls) == 100_000
    for steps, packed, limits in calls:
        size = sum(t["fields"]["observation"].nbytes for t in packed)
        assert size <= 64 << 20
        assert limits.memory_bytes > 6 * size
        assert limits.wall_seconds >= 2 * max(steps * 250e-6, 10_000 * 25e-3)
        assert limits.cpu_seconds >= limits.wall_seconds
    score_in_sandbox(GOOD, card, [replace(trajectories[0])] * 2, scratch=tmp_path)
    assert calls[-1][2].wall_seconds < 60


def test_what_fits_in_no_message_is_not_blamed_on_the_code(card, trajectories, tmp_path):
    huge = {"observation": np.broadcast_to(np.float32(0.0), (1_000_001, 80))}
    with pytest.raises(ResourceExhausted) as caught:
        score_in_sandbox(GOOD, card, [replace(trajectories[0], fields=huge)], scratch=tmp_path)
    assert caught.value.reason == "EPISODE_TOO_LONG"


def test_a_return_that_is_not_finite_is_a_failure(card, trajectories, tmp_path, monkeypatch):
    import dressage.contracts.host as host

    monkeypatch.setattr(host, "run", lambda *_, **__: {"scores": [{"return": float("inf"), "terms": {}}]})
    with pytest.raises(RewardError, match="finite"):
        score_in_sandbox(GOOD, card, trajectories[:1], scratch=tmp_path)


@needs_sandbox
def test_judges_in_the_sandbox(card, groups, trajectories, tmp_path):
    report = check_judge_in_sandbox(JUDGE, card, groups, scratch=tmp_path, nulls=["random", "motionless"])
    assert report.ok, report
    assert {label: len(values) for label, values in report.scores.items()} == {k: len(v) for k, v in groups.items()}
    results = run_judge_in_sandbox(JUDGE, trajectories, scratch=tmp_path)
    for result, trajectory in zip(results, trajectories, strict=True):
        mean = trajectory.x_velocity.astype(np.float64).mean()
        assert result.evidence["mean speed, m/s"] == pytest.approx(mean)
        assert result.score == result.criteria["speed"] == pytest.approx(np.clip(mean / 4, 0, 1))


@needs_sandbox
@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ('"score": score', '"score": 0.9', "null-control"),
        ('"score": score', '"score": 1.5', "range"),
        ('"score": score', '"score": float("nan")', "finite"),
        ('"criteria": {"speed": score}', '"criteria": {}', "criteria"),
        (', "evidence": {"mean speed, m/s": speed}', "", "return-type"),
        ("np.mean(trajectory.x_velocity)", "np.mean(trajectory.x_velocity) / len(3)", "exception"),
        ("trajectory.x_velocity", "trajectory.x_speed", "unknown-field"),
    ],
)
def test_bad_judges_are_failures(card, groups, tmp_path, old, new, rule):
    report = check_judge_in_sandbox(JUDGE.replace(old, new), card, groups, scratch=tmp_path, nulls=["random"])
    assert not report.ok
    assert rule in rules(report), report


@needs_sandbox
def test_a_judge_that_fails_later_raises(trajectories, tmp_path):
    with pytest.raises(JudgeError) as caught:
        run_judge_in_sandbox(JUDGE.replace("/ 4.0", "/ 0"), trajectories[:1], scratch=tmp_path)
    assert (caught.value.rule, caught.value.line) == ("exception", 4)


@pytest.mark.parametrize(
    "value",
    [
        None,
        1.0,
        {},
        {"score": "high", "criteria": {"a": 1}, "evidence": {}},
        {"score": 1, "criteria": [1], "evidence": {}},
    ],
)
def test_results_are_validated(value):
    with pytest.raises(JudgeError):
        validate_result(value)


def test_reports_survive_the_pipe_and_malformed_ones_are_refused():
    report = CheckReport(
        False, [CheckFailure("shape", 3, "wrong.", "(3,)")], {"a": "m"}, "x", 1.5, "vectorised", {"r": [0.1]}
    )
    assert CheckReport.from_dict(report.to_dict()) == report
    forged = {**report.to_dict(), "ok": True}
    assert not CheckReport.from_dict(forged).ok
    long = {**report.to_dict(), "latex": "x" * 10_000}
    assert len(CheckReport.from_dict(long).latex) == 1000
    for broken in ({}, {**report.to_dict(), "terms": 3}, {**report.to_dict(), "failures": [{"rule": 1}]}):
        with pytest.raises(ValueError, match="invalid report"):
            CheckReport.from_dict(broken)
