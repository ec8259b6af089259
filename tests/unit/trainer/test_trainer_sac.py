"""The stacked SAC by the learner's protocol: it trains, resumes, acts from its bundle, and keeps members apart."""

from __future__ import annotations

import functools
import json
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mujoco")
pytest.importorskip("jax")

from dressage.errors import ResourceExhausted
from dressage.training import sac as settings
from dressage_trainer import learner
from dressage_trainer.backends.group import check_memory
from dressage_trainer.messages import MemberTask, TrainSpec
from dressage_trainer.ppo.members import MemberSpec
from dressage_trainer.sac.replay import ReplayBuffer, Transitions
from dressage_trainer.sac.sac import SAC

from tests.unit.trainer.fake_environment import A, D, FakeBatch, FakeReward, advance
from tests.unit.trainer.learner_line import REWARD, Line, acts_alike, trained_whole_and_in_halves

GIVEN = {"num_envs": 4, "minibatch_size": 16, "hidden_sizes": [8, 8], "warmup_steps": 20, "updates_per_step": 0.5}


@pytest.fixture(autouse=True)
def _short_reports(monkeypatch):
    monkeypatch.setattr("dressage.training.sac.REPORT_STEPS", 40)
    # Listening ends at once here and would stop the training.
    monkeypatch.setattr(learner.Training, "_listen", lambda self: None)


def run(folder, monkeypatch, *, steps, values=GIVEN, reward=REWARD, environment="InvertedPendulum-v5", **more):
    folder.mkdir(exist_ok=True)
    monkeypatch.chdir(folder)
    members = (MemberTask("a", values, 1), MemberTask("b", {**values, "learning_rate": 1e-3}, 2))
    spec = TrainSpec(environment=environment, reward_source=reward, members=members, steps_per_member=steps,
                     algorithm="sac", **more)  # fmt: skip
    line = Line(spec.to_dict())
    learner.learn(line)
    return line.sent


# A ring that holds the training, one that it overwrites, and normalised observations.
@pytest.mark.parametrize("own", [{}, {"replay_size": 60}, {"normalize_observation": True}], ids=["all", "ring", "norm"])
def test_resumes_to_the_same_bits_and_acts(tmp_path, monkeypatch, own):
    values = {**GIVEN, **own}
    known = {"values": values, "evaluations": 2, "threads": 2}
    whole = trained_whole_and_in_halves(functools.partial(run, monkeypatch=monkeypatch, **known), tmp_path, steps=160)
    rows = [json.loads(line) for line in (tmp_path / "part/members/a/metrics.jsonl").read_text().splitlines()]
    assert [row["gradient_steps"] for row in rows] == [10.0, 30.0, 50.0, 70.0]
    assert {"policy_loss", "value_loss", "entropy_coefficient", "term/up", "steps_per_second"} <= rows[-1].keys()
    stated = whole[-1].policies[0].card["provenance"]
    assert stated["algorithm"] == "sac" and stated["hyperparameters"]["entropy_coef"] == "auto"
    acts_alike(whole[-1].policies[0], tmp_path, "sac")


@pytest.mark.parametrize(
    ("given", "environment", "words"),
    [
        ({"clip_range": 0.1}, "InvertedPendulum-v5", "clip_range"),
        ({"updates_per_step": 0}, "InvertedPendulum-v5", "updates_per_step"),
        ({}, "CartPole-v1", "discrete actions"),
    ],
)
def test_bad_requests_are_refused_by_name(tmp_path, monkeypatch, given, environment, words):
    failed = run(tmp_path / "run", monkeypatch, steps=64, values=given, environment=environment)[-1]
    assert failed.type == "failed" and words in failed.message


def test_a_broken_reward_stops_its_member(tmp_path, monkeypatch):
    broken = REWARD.replace("0.01 * memory.steps", "np.where(memory.steps > 4, np.nan, 0.0)")
    messages = run(tmp_path / "run", monkeypatch, steps=256, reward=broken)
    assert [m.member for m in messages if m.type == "member_stopped"] == ["a", "b"]
    assert messages[-1].type == "failed" and messages[-1].generated_code


# -- the algorithm


def trained(indices, *, reports=3, **values):
    members = [
        MemberSpec(f"m{i}", settings.complete({**GIVEN, **values, "learning_rate": 1e-3 * (i + 1)}), 10 + i)
        for i in indices
    ]
    batch = FakeBatch(len(members), GIVEN["num_envs"])
    algorithm = SAC(members, environment=batch, reward=FakeReward(), steps=400, dtype=np.float64)
    rows: list[Any] = []
    for _ in range(reports):
        rows = algorithm.iterate()
    return algorithm, rows


def test_members_learn_the_same_alone_and_in_company():
    together, _ = trained([0, 1, 2])
    for index in range(3):
        alone, _ = trained([index])
        for name, value in alone.state.actor.weights.items():
            np.testing.assert_allclose(value[0], together.state.actor.weights[name][index], rtol=0, atol=1e-10)


def test_a_member_with_a_loss_that_is_not_finite_stops_alone():
    algorithm, _ = trained([0, 1], reports=1)
    algorithm.state.critics.weights["q0.0.weight"][0] = np.inf
    before = algorithm.state.actor.weights["pi.0.weight"].copy()
    algorithm.iterate()
    (stop,) = algorithm.env.faults.stops.values()
    assert (stop.member, stop.cause) == (0, "gradient")
    now = algorithm.state.actor.weights["pi.0.weight"]
    np.testing.assert_array_equal(now[0], before[0])
    assert not np.array_equal(now[1], before[1])


def test_transitions_hold_what_the_environment_showed_before_resets():
    algorithm, _ = trained([0], reports=2, warmup_steps=10_000)
    rows = algorithm.replay._rows[0, : algorithm.replay.filled]
    observations, following, actions = rows[:, :D], rows[:, D : 2 * D], rows[:, 2 * D : 2 * D + A]
    expected, _, terminated = advance(observations, actions)
    np.testing.assert_allclose(following, expected, atol=1e-12)
    np.testing.assert_array_equal(rows[:, -1], terminated)
    limits = ~terminated[:-4] & ~np.isclose(following[:-4], observations[4:]).all(1)
    assert limits.any(), "no episode ended at its time limit"


# -- the replay buffer


def transitions(step):
    values = np.full((1, 2), float(step))
    return Transitions(values[..., None], values[..., None], values[..., None], values, values)


def ring(size=6):
    return ReplayBuffer(members=1, size=size, num_envs=2, observation_size=1, action_size=1, dtype=np.float64)


def test_a_snapshot_of_a_full_ring_keeps_what_is_overwritten_later():
    buffer = ring()
    for step in range(3):
        buffer.add(transitions(step))
    kept = buffer.arrays()
    assert np.shares_memory(kept["rows/0"], buffer._rows)
    buffer.add(transitions(9))
    assert kept["rows/0"][:, 0].tolist() == [0, 0, 1, 1, 2, 2]
    assert buffer.arrays()["rows/0"][:, 0].tolist() == [9, 9, 1, 1, 2, 2]


@pytest.mark.parametrize(("size", "expected"), [(6, [3, 3, 1, 1, 2, 2]), (10, [1, 1, 2, 2, 3, 3]), (4, [2, 2, 3, 3])])
def test_a_buffer_of_another_size_keeps_the_newest(size, expected):
    buffer, other = ring(), ring(size)
    for step in range(4):
        buffer.add(transitions(step))
    other.load(buffer.arrays())
    assert other.arrays()["rows/0"][:, 0].tolist() == expected
    other.add(transitions(7))
    assert 7 in other.arrays()["rows/0"][:, 0] and other.filled == min(size, 8)


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"memory_bytes": 2**30}, "take 1.4 GiB once 1,000,000 transitions are in each); expected at most 0.2 GiB"),
        ({"checkpoint_bytes": 2**28}, "a checkpoint of 0.5 GiB once 1,000,000 transitions are in each"),
    ],
)
def test_replay_buffers_that_would_not_fit_are_refused_with_what_does(limits, words):
    card: Any = SimpleNamespace(observation_size=17, action_size=6)
    spec = TrainSpec(algorithm="sac", steps_per_member=2_000_000, **limits)
    setup: Any = SimpleNamespace(spec=spec, card=card)
    members = [MemberSpec(f"m{i}", settings.DEFAULTS, i) for i in range(3)]
    with pytest.raises(ResourceExhausted, match=re.escape(words)) as caught:
        check_memory(setup, members)
    fits = int(re.search(r"at most ([\d,]+), train", caught.value.message)[1].replace(",", ""))
    smaller = [replace(m, hyperparameters=settings.complete({"replay_size": fits})) for m in members]
    check_memory(setup, smaller)
