"""The benchmark of the time to a passing policy: its clock, its parts, and what it makes of them."""

from __future__ import annotations

import json
import sys
import threading
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "benchmarks"))
sys.path.insert(0, str(ROOT / "tools"))

pytest.importorskip("mujoco")

import bench  # noqa: E402
import time_to_pass  # noqa: E402
from dressage.training.preset import load_preset  # noqa: E402
from support import children, passing, passing_peer  # noqa: E402

CHEETAH = "HalfCheetah-v5"


class Clock:
    """A clock that a test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def progress(**more):
    clock = Clock()
    given = {"began": 0.0, "every": 10, "limit_seconds": 100.0, "max_steps": 1000, "clock": clock, **more}
    return passing.Progress(**given), clock


def test_the_clock_stands_still_while_policies_are_judged():
    part, clock = progress()
    scores = iter([0.2, 0.75])

    def score():
        clock.now += 50.0
        return next(scores)

    ends = []
    for steps in range(0, 25, 5):
        clock.now += 4.0
        ends.append(part.ended(steps, score))
    assert ends == [False, False, False, False, True]
    assert part.result() == {
        **{"passed": True, "seconds": 20.0, "steps": 20, "score": 0.75},
        "rate": 1.2,  # 20 steps in the 16 seconds after the first one
        "curve": [[0, 4.0, 0.0], [10, 12.0, 0.2], [20, 20.0, 0.75]],
    }


def test_random_steps_count_in_the_time_and_not_in_the_speed_or_the_limit():
    part, clock = progress(random_steps=50, limit_seconds=20.0)
    for steps in range(0, 1000, 10):
        clock.now += 1.0 if steps < 50 else 10.0
        if part.ended(steps, lambda: 0.0):
            break
    assert (steps, part.seconds()) == (70, 35.0)
    assert part.result()["rate"] == 1.0


@pytest.mark.parametrize(("more", "steps"), [({"limit_seconds": 12.0}, 15), ({"max_steps": 5}, 5)])
def test_a_training_ends_at_its_limits_and_is_judged_then(more, steps):
    part, clock = progress(**more)
    for done in range(0, 100, 5):
        clock.now += 4.0
        if part.ended(done, lambda: 0.1):
            break
    assert done == steps and part.result()["score"] == 0.1 and not part.passed


def options(**more):
    return Namespace(**{"seeds": 2, "limit_seconds": 60.0, "cores": 1, "environments": [CHEETAH], **more})


def compared(state, **more):
    return time_to_pass.measure_both(time_to_pass.State(state), options(**more))[CHEETAH]


def result(seconds, *, passed=True, steps=100_000, rate=100.0):
    return {
        "passed": passed,
        "seconds": seconds,
        "steps": steps,
        "score": 0.8 if passed else 0.1,
        "rate": rate,
        "curve": [],
    }


def measured_by(monkeypatch, results):
    """Have children return these results, by module and algorithm; return the tasks."""
    tasks = []

    def measure(module, task, **more):
        tasks.append((module, task["algorithm"], task.get("seeds", task.get("seed"))))
        return results[module, task["algorithm"]]

    monkeypatch.setattr(time_to_pass, "measure", measure)
    return tasks


def test_the_result_states_what_is_measured_and_what_is_derived(tmp_path, monkeypatch):
    results = {
        ("passing", "ppo"): result(40.0),
        ("passing", "sac"): result(60.0, passed=False),
        ("passing_peer", "ppo"): result(62.0, passed=False, steps=30_000, rate=500.0),
        ("passing_peer", "sac"): result(61.0, passed=False, steps=3_000, rate=50.0),
    }
    tasks = measured_by(monkeypatch, results)
    row = compared(tmp_path / "parts.jsonl")
    assert (row["ours_seconds"], row["passed"], row["peer_kind"]) == (40.0, True, "derived")
    assert (row["peer_seconds"], row["ratio"], row["ratio_at_least"]) == (2000.0, 50.0, 1.5)
    assert (row["ours_all_seconds"], row["peer_all_seconds"], row["ratio_all"]) == (40.0, 4000.0, 100.0)
    # A seed that did not pass within the limit stands for all.
    assert tasks == [
        ("passing", "ppo", [0, 1]),
        ("passing", "sac", [0, 1]),
        ("passing", "ppo", [0]),
        ("passing", "ppo", [1]),
        ("passing_peer", "ppo", 0),
        ("passing_peer", "sac", 0),
    ]
    results["passing_peer", "sac"] = result(90.0)
    row = compared(tmp_path / "others.jsonl")
    assert (row["peer_kind"], row["peer_seconds"], row["ratio"]) == ("measured", 90.0, 2.2)
    assert row["peer"]["sac"]["seeds"] == 2 and row["peer"]["ppo"]["seeds"] == 1
    assert (row["peer_all_seconds"], row["ratio_all"]) == (180.0, 4.5)


def test_one_policy_takes_the_median_and_all_take_the_cores_in_turn(tmp_path, monkeypatch):
    """Seconds of three seeds, each its own, on two cores."""
    times = {"passing": [10.0, 30.0, 20.0], "passing_peer": [100.0, 300.0, 250.0]}

    def measure(module, task, **more):
        if task["algorithm"] == "sac":
            return result(5000.0, passed=False)
        seeds = task.get("seeds", [task.get("seed")])
        return result(60.0 if len(seeds) > 1 else times[module][seeds[0]])

    monkeypatch.setattr(time_to_pass, "measure", measure)
    row = compared(tmp_path / "parts.jsonl", seeds=3, cores=2)
    assert (row["ours_seconds"], row["peer_seconds"], row["ratio"]) == (20.0, 250.0, 12.5)
    assert (row["ours_all_seconds"], row["peer_all_seconds"], row["ratio_all"]) == (60.0, 350.0, 5.8)
    one, every = time_to_pass.table_rows(CHEETAH, row, seeds=3)
    assert (one["ours"], one["peer"], one["ratio"]) == (20.0, 250, 12.5)
    assert (every["ours"], every["peer"], every["ratio"]) == (60.0, 350, 5.8) and "each of 3 seeds" in every["what"]


@pytest.mark.parametrize(("failing", "expected"), [([1], (True, 30.0, 10.0)), ([1, 2], (False, 60.0, None))])
def test_one_of_our_seeds_that_does_not_pass_counts_as_the_last(tmp_path, monkeypatch, failing, expected):
    times, limits = [10.0, 20.0, 30.0], []

    def measure(module, task, **more):
        if module == "passing_peer" or task["algorithm"] == "sac" or len(task["seeds"]) > 1:
            return result(300.0 if module == "passing_peer" else 60.0)
        limits.append(task["limit_seconds"])
        (seed,) = task["seeds"]
        return result(60.0, passed=False) if seed in failing else result(times[seed])

    monkeypatch.setattr(time_to_pass, "measure", measure)
    row = compared(tmp_path / "parts.jsonl", seeds=3, limit_seconds=500.0)
    assert (row["passed"], row["ours_seconds"], row["ratio"]) == expected
    assert row["ours"]["one"]["each"] == [None if seed in failing else times[seed] for seed in range(3)]
    assert limits == [60.0] * 3  # the time in which all seeds together passed


def test_a_whole_training_of_the_peer_that_did_not_pass_is_no_time_to_pass(tmp_path, monkeypatch):
    results = {
        ("passing", "ppo"): result(40.0),
        ("passing", "sac"): result(60.0, passed=False),
        ("passing_peer", "ppo"): result(700.0, passed=False, steps=time_to_pass.STEPS["ppo"][CHEETAH]),
        ("passing_peer", "sac"): result(900.0, passed=False, steps=90_000, rate=100.0),
    }
    measured_by(monkeypatch, results)
    row = compared(tmp_path / "parts.jsonl")
    assert (row["peer_kind"], row["peer_seconds"], row["ratio_at_least"]) == ("derived", 10_000.0, 22.5)
    assert time_to_pass.table_rows(CHEETAH, row, seeds=2)[0]["what"].endswith("peer derived (at least 900 s)")
    results["passing_peer", "sac"] = result(9000.0, passed=False, steps=time_to_pass.STEPS["sac"][CHEETAH])
    row = compared(tmp_path / "others.jsonl")
    assert (row["peer_kind"], row["peer_seconds"]) == ("measured, not passed", 700.0)


def test_our_other_algorithm_gets_the_time_in_which_the_default_passed(tmp_path, monkeypatch):
    limits = []

    def measure(module, task, **more):
        limits.append((module, task["algorithm"], task["limit_seconds"]))
        return result(40.0, passed=task["environment"] == CHEETAH)

    monkeypatch.setattr(time_to_pass, "measure", measure)
    given = options(environments=[CHEETAH, "Ant-v5"], seeds=1)
    time_to_pass.measure_both(time_to_pass.State(tmp_path / "parts.jsonl"), given)
    ours = [limit for module, _, limit in limits if module == "passing"]
    assert ours == [60.0, 40.0, 60.0, 60.0]  # one seed is all seeds
    assert [limit for module, _, limit in limits if module == "passing_peer"] == [60.0] * 4


def test_parts_that_ended_are_not_measured_again(tmp_path, monkeypatch):
    results = {
        ("passing", "ppo"): result(60.0, passed=False, steps=time_to_pass.OURS_STEPS),
        ("passing", "sac"): result(60.0, passed=False),
        ("passing_peer", "ppo"): result(62.0, passed=False, steps=time_to_pass.STEPS["ppo"][CHEETAH]),
        ("passing_peer", "sac"): result(50.0),
    }
    tasks = measured_by(monkeypatch, results)
    path = tmp_path / "parts.jsonl"
    first = compared(path)
    with path.open("a", encoding="utf-8") as file:
        file.write('{"key": "cut o')
    tasks.clear()
    assert compared(path) == first and not tasks
    compared(path, limit_seconds=600.0)
    assert tasks == [("passing", "sac", [0, 1])]  # more time helps only what neither passed nor ended


def test_ours_trains_alone_and_the_peer_once_per_core(tmp_path, monkeypatch):
    running, together, lock = [], [], threading.Lock()
    both = threading.Barrier(2, timeout=10.0)

    def measure(module, task, **more):
        with lock:
            running.append(module)
            together.append(sorted(running))
        if module == "passing_peer":
            both.wait()
        with lock:
            running.remove(module)
        return result(40.0)

    monkeypatch.setattr(time_to_pass, "measure", measure)
    compared(tmp_path / "parts.jsonl", cores=2)
    assert together[:4] == [["passing"]] * 4
    assert max(map(len, together)) == 2
    assert len((tmp_path / "parts.jsonl").read_text("utf-8").splitlines()) == 8


def test_our_trainings_have_the_environment_of_the_learner(monkeypatch):
    given = {}

    def popen(command, *, env, **more):
        given[command[2].split("support.")[1].split(" ")[0]] = env

    monkeypatch.setattr(children.subprocess, "Popen", popen)
    for module in ("passing", "passing_peer"):
        children.start(module, {}, threads=2, cores=1)
    assert given["passing"]["JAX_PLATFORMS"] == "cpu" and given["passing"]["OMP_NUM_THREADS"] == "1"
    assert given["passing_peer"]["OMP_NUM_THREADS"] == "2"


def test_the_report_has_the_keys_of_a_benchmark(tmp_path, monkeypatch, capsys):
    results = dict.fromkeys([(m, a) for m in ("passing", "passing_peer") for a in ("ppo", "sac")], result(40.0))
    measured_by(monkeypatch, results)
    arguments = ["time_to_pass.py", "--environments", CHEETAH, "--seeds", "1", "--state", str(tmp_path / "parts.jsonl")]
    monkeypatch.setattr(sys, "argv", arguments)
    assert time_to_pass.main() == 0
    report = json.loads(capsys.readouterr().out)
    bench.check(report, ROOT / "benchmarks" / "time_to_pass.py")
    assert "time_to_pass" in bench.BY_NAME


@pytest.mark.parametrize("environment", sorted(time_to_pass.INTENTS))
def test_both_sides_of_sac_begin_with_the_same_number_of_random_steps(environment):
    assert load_preset(environment).sac.warmup_steps == passing_peer.SAC["learning_starts"]
    assert environment in passing_peer.PPO


@pytest.mark.parametrize("environment", sorted(time_to_pass.INTENTS))
def test_the_peer_is_rewarded_as_ours_is(environment):
    """The reward of one environment, against the author's reward on the fields of a recorded episode of the same actions."""
    from dressage.envs.reference import rollout

    reward, _ = passing.written(environment, time_to_pass.INTENTS[environment])
    env = passing_peer.RewardedEnv(environment, reward)
    env.action_space.seed(3)
    env.reset(seed=5)
    actions, theirs = [], []
    for _ in range(20):
        actions.append(env.action_space.sample())
        _, value, terminated, truncated, _ = env.step(actions[-1])
        theirs.append(value)
        if terminated or truncated:
            break
    env.close()
    played = iter([*actions, *[actions[-1]] * 1000])
    (episode,) = rollout(lambda observation: next(played), environment, [5])
    names: dict = {}
    exec(reward, names)
    count = len(theirs)
    before, after = (
        passing_peer.SimpleNamespace(**{name: values[rows] for name, values in episode.fields.items()})
        for rows in (slice(0, count), slice(1, count + 1))
    )
    terms = names["reward"](before, episode.action[:count], after, passing_peer.SimpleNamespace(), np)
    np.testing.assert_allclose(theirs, sum(terms.values()), rtol=1e-6, atol=1e-9)
