"""Checks in the sandbox, on real trajectories: good code passes, each fault is named, hostile code is a failure."""

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from dressage.contracts import (
    JudgeError,
    RewardError,
    check_judge_in_sandbox,
    check_reward_in_sandbox,
    host,
    lint_reward,
    run_judge_in_sandbox,
    score_in_sandbox,
)
from dressage.contracts.check import assess_judge, assess_reward
from dressage.contracts.evidence import examine_judge, examine_reward, judge_evidence
from dressage.contracts.judge import validate_result
from dressage.errors import Internal, ResourceExhausted
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
    _without_lint(monkeypatch)
    for statement in ("import socket; socket.socket()", "import os; os.fork()", "open('/etc/passwd')"):
        source = GOOD.replace("    return", f"    {statement}\n    return")
        report = check_reward_in_sandbox(source, card, trajectories[:1], scratch=tmp_path)
        assert rules(report) == {"sandbox"}, report
        assert "PermissionError" in report.failures[0].seen


def _without_lint(monkeypatch):
    from dressage.contracts import check, host

    run = host.run
    monkeypatch.setattr(
        host, "run", lambda _, *arguments, **named: run("lintless_target:check_reward", *arguments, **named)
    )
    monkeypatch.setattr(check, "lint_reward", lambda source, card: [])
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


FORGING = (
    GOOD.replace(
        "    return",
        """    pipe = __import__("sys").modules["dressage.sandbox.pipe"]
    for thing in __import__("gc").get_objects():
        if isinstance(thing, pipe.Channel):
            thing.send(REPLY)
            __import__("time").sleep(60)
    return""",
    )
    + """

def _bind():
    def __import__():
        return 0
    return __import__
"""
)
REPORT = {
    "ok": True, "failures": [], "terms": {"gold": "much"}, "latex": "x", "milliseconds_per_step": 0.0, "style": "vectorised",
    "scores": {}, "act_microseconds": 0.0, "traceable": None, "obstacles": [],
}  # fmt: skip
VALUES = {"latex": "x", "terms": {"gold": "much"}, "milliseconds": 0.0, "runs": {"first": [1.0], "whole": [1.0]}}


@needs_sandbox
def test_a_name_that_hides_a_builtin_is_refused_on_the_trusted_side(card, trajectories, tmp_path):
    report = check_reward_in_sandbox(
        FORGING.replace("REPLY", repr({"report": REPORT})), card, trajectories, scratch=tmp_path
    )
    assert rules(report) == {"dunder"}, report


@needs_sandbox
@pytest.mark.parametrize(
    "reply", [{"report": REPORT}, {"report": REPORT, **VALUES}, VALUES], ids=["old", "both", "values"]
)
def test_a_process_cannot_send_a_verdict(card, trajectories, tmp_path, monkeypatch, reply):
    """Code past the lint sends a report that it wrote itself: the report is made of values, which are checked."""
    _without_lint(monkeypatch)
    source = FORGING.replace("REPLY", repr(reply))
    report = check_reward_in_sandbox(source, card, trajectories[:1], scratch=tmp_path)
    assert not report.ok and rules(report) == {"sandbox"}, report
    assert "gold" not in report.terms


def _evidence(card, trajectories, source=GOOD, **changes):
    from dressage.contracts.evidence import reward_evidence

    return {**reward_evidence(source, card, trajectories), **changes}


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("first", lambda runs: {**runs, "first": runs["first"] + 1.0}),
        ("alone", lambda runs: {**runs, "alone": runs["alone"] + 1.0}),
        ("permuted", lambda runs: {**runs, "permuted": runs["first"]}),
        ("reset", lambda runs: {**runs, "reset": [runs["reset"][0] + 1.0, runs["reset"][1]]}),
        ("fresh", lambda runs: {**runs, "fresh": runs["fresh"] * 2.0}),
    ],
)
def test_values_that_differ_are_failures(card, trajectories, name, change):
    evidence = _evidence(card, trajectories)
    assert assess_reward(GOOD, card, trajectories, lambda: (evidence, 1e4)).ok
    evidence["runs"] = change(evidence["runs"])
    assert not assess_reward(GOOD, card, trajectories, lambda: (evidence, 1e4)).ok


@pytest.mark.parametrize("name", ["first", "whole", "again", "alone", "permuted", "reset", "fresh"])
@pytest.mark.parametrize(
    "value",
    [
        None,
        1.0,
        [],
        [1.0],
        np.zeros(3),
        np.zeros((0, 2, 37)),
        np.full((12, 2, 37), np.nan),
        np.zeros((12, 2, 37), np.int8),
    ],
    ids=["none", "number", "empty", "list", "vector", "no steps", "not finite", "integers"],
)
def test_values_of_another_form_are_failures(card, trajectories, name, value):
    evidence = _evidence(card, trajectories)
    evidence["runs"][name] = value
    report = host._report(lambda: assess_reward(GOOD, card, trajectories, lambda: (evidence, 1e4)), GOOD)
    assert rules(report) == {"sandbox"}, report


def test_a_time_is_at_most_the_wait(card, trajectories):
    for claim in (-1.0, float("nan"), 1e9, "fast", None):
        evidence = _evidence(card, trajectories, milliseconds=claim)
        assert (
            assess_reward(GOOD, card, trajectories, lambda evidence=evidence: (evidence, 20.0)).milliseconds_per_step
            == 20.0
        )


STATES = {
    "list": ("CALLS = []", "CALLS.append(1.0)", "len(CALLS)"),
    "list in a cycle of references": ("CALLS = []\nCALLS.append(CALLS)", "CALLS.append(CALLS)", "len(CALLS)"),
    "dict": ("CALLS = {}", "CALLS.update({len(CALLS): 1})", "len(CALLS)"),
    "set in a tuple": ("CALLS = (set(), 0)", "CALLS[0].add(len(CALLS[0]))", "len(CALLS[0])"),
    "default": ("def calls(x, seen=[]):\n    seen.append(x)\n    return len(seen)", "count = calls(1)", "count"),
    "generator": ("CALLS = (i for i in range(1 << 30))", "count = [i for _, i in zip(range(1), CALLS)][0]", "count"),
    "iterator": ("CALLS = zip(range(1 << 30))", "count = [i[0] for _, i in zip(range(1), CALLS)][0]", "count"),
}


@pytest.mark.parametrize("period", [1, 2, 3, 4, 6, 12, 37])
@pytest.mark.parametrize("state", STATES)
def test_state_in_a_cycle_is_found(card, trajectories, state, period):
    """State that repeats after a number of calls, also one that divides the calls of each run."""
    declare, change, count = STATES[state]
    varying = f"({count}) % {period} * 1.0" if period > 1 else f"({count}) * 1.0"
    source = (
        declare + "\n" + GOOD.replace("    return", f"    {change}\n    return").replace(SPEED, f"{SPEED} + {varying}")
    )
    assert "deterministic" in rules(examine_reward(source, card, trajectories)), source


@pytest.mark.parametrize("store", ["reward.calls", "math.calls", "np.calls", "reward.inner.calls"])
def test_attributes_that_outlive_a_call_are_refused(card, store):
    source = GOOD.replace("    return", f"    {store} = 1.0\n    return")
    assert "state" in {violation.rule for violation in lint_reward(source, card)}


def test_a_judge_that_changes_with_its_calls_is_found(card, groups):
    for value in ("len(CALLS) % 2", "(len(CALLS) - 1) // 2 % 2", "len(CALLS) // 3 % 2"):
        source = "CALLS = []\n" + JUDGE.replace(
            '"score": score,', f'"score": min(1.0, score / 2 + 0.1 * ({value})),'
        ).replace("    score =", "    CALLS.append(1)\n    score =")
        report = examine_judge(source, card, groups)
        assert rules(report) == {"deterministic"}, (value, report)


def test_forged_judgments_are_failures(card, groups):
    evidence = judge_evidence(JUDGE, groups)
    assert assess_judge(JUDGE, card, groups, lambda: (evidence, 1e4)).ok
    label = next(iter(groups))
    good = evidence["results"][label][0]
    for forged in (
        [{**good[0], "score": 2.0}, good[1], good[2]],
        [{**good[0], "score": float("nan")}, good[1], good[2]],
        [{**good[0], "criteria": {"speed": float("inf")}}, good[1], good[2]],
        [good[0], {**good[1], "score": 0.123}, good[2]],
        [good[0], good[1]],
        None,
        {},
    ):
        results = {**evidence["results"], label: [forged, *evidence["results"][label][1:]]}
        reply = {"results": results}
        report = host._report(lambda reply=reply: assess_judge(JUDGE, card, groups, lambda: (reply, 1e4)), JUDGE)
        assert not report.ok, forged
    for reply in ({}, {"results": {}}, {"results": {label: []}}, {"results": None}):
        report = host._report(lambda reply=reply: assess_judge(JUDGE, card, groups, lambda: (reply, 1e4)), JUDGE)
        assert not report.ok, reply


PRINTING = """
def reward_fn(obs, action, next_obs, info):
    print('Traceback (most recent call last):\\n  File "<generated>", line ' + "9" * NUMBER)
    [list(range(1 << 20)) for i in range(100000)]
    return 0.0, {"a": 0.0}
"""


@needs_sandbox
@pytest.mark.parametrize("digits", [5000, 400, 12])
def test_what_the_code_prints_is_no_bug_of_ours(card, trajectories, tmp_path, digits):
    """A forged traceback has a line of thousands of digits, or one that no field of a report holds."""
    source = PRINTING.replace("NUMBER", str(digits))
    report = check_reward_in_sandbox(source, card, trajectories[:1], scratch=tmp_path, limits=SMALL)
    assert rules(report) == {"memory_budget"}, report
    assert report.failures[0].line == 0


@needs_sandbox
def test_a_process_that_ends_itself_is_not_our_failure(card, trajectories, tmp_path, monkeypatch):
    """It prints a traceback without a frame of its own, so that the check looks as if it had failed."""
    _without_lint(monkeypatch)
    end = """    __import__("os").write(2, b"Traceback (most recent call last): \\x1b[31mKeyError")
    __import__("os")._exit(1)
    return"""
    report = check_reward_in_sandbox(GOOD.replace("    return", end), card, trajectories[:1], scratch=tmp_path)
    assert rules(report) == {"sandbox"}, report
    assert "KeyError" in report.failures[0].seen and "\x1b" not in report.failures[0].seen


@needs_sandbox
def test_a_process_that_fails_before_the_code_runs_is_our_failure(card, trajectories, tmp_path, monkeypatch):
    monkeypatch.setattr(host, "pack_trajectory", lambda trajectory: {"broken": 1})
    with pytest.raises(Internal, match="check itself failed"):
        check_reward_in_sandbox(GOOD, card, trajectories[:1], scratch=tmp_path)


def test_many_violations_take_no_longer_than_a_few(card):
    """The trusted side lints: 64 KiB of unknown names among thousands of bound ones."""
    bound = "".join(f"name_{i} = {i}\n" for i in range(1500))
    unknown = "".join(f"    nome_{i}\n" for i in range(3000))
    source = bound + GOOD.replace("    return", unknown + "    return")
    begin = time.thread_time()
    assert len(lint_reward(source, card)) == 50
    assert time.thread_time() - begin < 5.0


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


@pytest.mark.parametrize(
    "terms",
    [
        {"a": float("inf")},
        {"a": float("nan")},
        {"a": float("inf"), "b": float("-inf")},
        {"a": 1e308, "b": 1e308},
    ],
)
def test_a_term_or_return_that_is_not_finite_is_a_failure(card, trajectories, tmp_path, monkeypatch, terms):
    monkeypatch.setattr(host, "run", lambda *_, **__: {"scores": [{"return": 0.0, "terms": terms}]})
    with pytest.raises(RewardError, match="finite"):
        score_in_sandbox(GOOD, card, trajectories[:1], scratch=tmp_path)


@pytest.mark.parametrize(
    "item", [None, 1, {}, {"terms": None}, {"terms": [1]}, {"terms": {"a": "x"}}, {"terms": {"a": [1]}}]
)
def test_malformed_scores_are_a_failure(card, trajectories, tmp_path, monkeypatch, item):
    monkeypatch.setattr(host, "run", lambda *_, **__: {"scores": [item]})
    with pytest.raises(RewardError, match="malformed"):
        score_in_sandbox(GOOD, card, trajectories[:1], scratch=tmp_path)


def test_a_return_is_the_sum_of_its_terms_whatever_was_sent(card, trajectories, tmp_path, monkeypatch):
    forged = {"return": 1e6, "terms": {"a": 1.0, "b": 2.0}}
    monkeypatch.setattr(host, "run", lambda *_, **__: {"scores": [forged]})
    assert score_in_sandbox(GOOD, card, trajectories[:1], scratch=tmp_path)[0]["return"] == 3.0


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
