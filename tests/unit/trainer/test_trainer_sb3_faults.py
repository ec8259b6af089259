"""Members that fail in the Stable-Baselines3 backend, and what it keeps and reports of a member."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("mujoco")
pytest.importorskip("torch")
pytest.importorskip("stable_baselines3")
sys.path.insert(0, str(Path(__file__).parent))

from dressage.training import replay_memory, sac
from dressage_trainer.backends.sb3 import models
from dressage_trainer.backends.sb3.vecenv import MemberStopped, RewardedVecEnv, StoppingNormalizer
from dressage_trainer.messages import MemberTask
from fake_environment import FakeBatch, FakeReward
from learner_line import REWARD
from test_trainer_sb3_backend import PPO, SAC, run

BOUND = np.array([[-1.0], [1.0]], np.float32)
PLAIN = {**SAC, "normalize_observation": False}


@pytest.fixture
def short_chunks(monkeypatch):
    monkeypatch.setattr(sac, "REPORT_STEPS", 200)


def stopped_of(messages):
    return [m for m in messages if m.type == "member_stopped"]


def rows_of(folder, member):
    return [json.loads(line) for line in (folder / "members" / member / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("algorithm", "given", "steps"),
    [("ppo", {**PPO, "learning_rate": 1.0, "entropy_coef": 10.0}, 896), ("sac", {**PLAIN, "learning_rate": 1.0}, 400)],
)
def test_weights_that_break_stop_their_member_alone(tmp_path, monkeypatch, short_chunks, algorithm, given, steps):
    members = (MemberTask("a", PPO if algorithm == "ppo" else PLAIN, 1), MemberTask("b", given, 2))
    messages = run(tmp_path / "run", monkeypatch, algorithm=algorithm, steps=steps, members=members)
    (stopped,) = stopped_of(messages)
    assert stopped.member == "b" and stopped.reason == "GRADIENT_NOT_FINITE" and "not finite" in stopped.message
    assert messages[-1].type == "done" and [p.member for p in messages[-1].policies] == ["a"]
    assert rows_of(tmp_path / "run", "b")[-1]["step"] == stopped.env_step


def test_a_deviation_of_zero_stops_its_member_too(tmp_path, monkeypatch):
    train = models.PPO.train

    def collapse(self):
        train(self)
        if self.learning_rate == 2e-3:
            self.policy.log_std.data.fill_(-200.0)

    monkeypatch.setattr(models.PPO, "train", collapse)
    members = (MemberTask("a", PPO, 1), MemberTask("b", {**PPO, "learning_rate": 2e-3}, 2))
    messages = run(tmp_path / "run", monkeypatch, algorithm="ppo", steps=192, members=members)
    (stopped,) = stopped_of(messages)
    assert stopped.member == "b" and "distribution of actions was not valid" in stopped.message
    assert [p.member for p in messages[-1].policies] == ["a"]


def test_another_value_error_is_not_taken_for_broken_weights(tmp_path, monkeypatch):
    def learn(*arguments, **options):
        raise ValueError("a bug")

    monkeypatch.setattr(models.PPO, "learn", learn)
    with pytest.raises(ValueError, match="a bug"):
        run(tmp_path / "run", monkeypatch, algorithm="ppo", steps=64)


def test_a_reward_beyond_single_precision_stops_sac(tmp_path, monkeypatch, short_chunks):
    reward = REWARD.replace("0.01 * memory.steps", "np.where(memory.steps > 6, 1e39, 0.0)")
    messages = run(tmp_path / "run", monkeypatch, algorithm="sac", steps=400, reward=reward)
    assert [(m.member, m.reason) for m in stopped_of(messages)] == [
        ("a", "REWARD_NOT_FINITE"),
        ("b", "REWARD_NOT_FINITE"),
    ]
    assert all("'late'" in m.message for m in stopped_of(messages))
    assert messages[-1].type == "failed" and messages[-1].generated_code


DIVIDING = """
TERMS = {"up": "stay up", "inverse": "of what is left of the time"}

def reward_fn(obs, action, next_obs, info):
    inverse = 1.0 / (0.5 - info["time"] if info["time"] < 0.35 else 0.0)
    return 1.0 + inverse, {"up": 1.0, "inverse": inverse}
"""


def test_arithmetic_that_raises_stops_its_member(tmp_path, monkeypatch):
    members = (MemberTask("a", PPO, 1),)
    messages = run(tmp_path / "run", monkeypatch, algorithm="ppo", steps=512, members=members, reward=DIVIDING)
    (stopped,) = stopped_of(messages)
    assert stopped.reason == "REWARD_NOT_FINITE" and "'total'" in stopped.message
    assert "ZeroDivisionError: float division by zero (line 5)" in stopped.message


def test_a_reward_that_overflows_the_variance_stops_its_member(tmp_path, monkeypatch):
    reward = REWARD.replace("0.01 * memory.steps", "np.where(memory.steps == 5, 1e160, 0.0)")
    members = (MemberTask("a", PPO, 1),)
    messages = run(tmp_path / "run", monkeypatch, algorithm="ppo", steps=128, members=members, reward=reward)
    (stopped,) = stopped_of(messages)
    text = "the running variance of returns overflowed at environment step 20, where the largest |reward| was 1e+160"
    assert (stopped.reason, stopped.env_step, stopped.message) == ("REWARD_NOT_FINITE", 20, text)


@pytest.mark.parametrize(("bad", "cause"), [(1e160, "observation"), (1.0, None)])
def test_an_observation_that_overflows_the_variance_stops_its_member(bad, cause):
    batch = FakeBatch(1, 3)
    batch.corrupt = lambda count, observation: observation.__setitem__((1, 2), bad) if count == 4 else None
    environment = StoppingNormalizer(RewardedVecEnv(batch, FakeReward(), [0, 1, 2]))
    environment.reset()
    stops = []
    for _ in range(8):
        try:
            environment.step(np.zeros((3, 2), np.float32))
        except MemberStopped as stopped:
            stops.append((stopped.stop.cause, stopped.stop.step, "1e+160" in stopped.stop.message))
            break
    assert stops == ([(cause, 12, True)] if cause else [])


def outcome(total, observation=0.0, options=None, **terms):
    """Return the outcome of a step of three environments: None, or the cause and the term of a stop."""
    size = SimpleNamespace(num_envs=3, observation_size=1, action_size=1, action_low=BOUND[0], action_high=BOUND[1])
    env = RewardedVecEnv(size, None, [0, 1, 2], **(options or {}))
    output = SimpleNamespace(total=np.asarray(total), terms={n: np.asarray(v) for n, v in terms.items()}, raised={})
    try:
        env._check(np.full((3, 1), observation), output)
    except MemberStopped as stopped:
        return stopped.stop.cause, stopped.stop.term
    return None


def test_only_a_value_that_is_not_finite_itself_stops_a_member():
    huge = [1e308] * 3
    assert outcome(huge, up=huge) is None
    assert outcome([1.0] * 3, 1e308) is None
    assert outcome([1.0] * 3, np.nan) == ("observation", "")
    assert outcome(huge, np.inf) == ("observation", "")
    assert outcome([1.0, np.nan, 1.0], up=[1.0] * 3, late=[0.0, np.nan, 0.0]) == ("reward", "late")
    assert outcome([1.0, np.inf, 1.0], np.nan, up=[1.0] * 3) == ("reward", "total")


def test_rewards_that_single_precision_does_not_hold_are_not_finite():
    single = {"reward_dtype": np.float32}
    assert outcome([3e38] * 3, options=single, up=[3e38] * 3) is None
    assert outcome([1.0, -1e39, 1.0], options=single, up=[1.0] * 3, late=[0.0, -1e39, 0.0]) == ("reward", "late")


def test_the_last_chunk_of_a_stopped_member_is_reported(tmp_path, monkeypatch, short_chunks):
    reward = REWARD.replace("0.01 * memory.steps", "np.where(memory.steps > 14, np.nan, 0.0)")
    folder = tmp_path / "run"
    members = (MemberTask("a", PLAIN, 1),)
    monkeypatch.setattr("dressage_trainer.learner._PROGRESS_SECONDS", 0.0)
    messages = run(folder, monkeypatch, algorithm="sac", steps=2000, members=members, reward=reward)
    (stopped,) = stopped_of(messages)
    rows = rows_of(folder, "a")
    assert stopped.env_step % 200 and rows[-1]["step"] == stopped.env_step and "term/up" in rows[-1]
    state = [m for m in messages if m.type == "progress"][-1].members[0]
    assert state.env_step == stopped.env_step and state.metrics["step"] == stopped.env_step


def test_an_incomplete_rollout_does_not_repeat_earlier_figures(tmp_path, monkeypatch):
    reward = REWARD.replace("0.01 * memory.steps", "np.where(memory.steps > 24, np.nan, 0.0)")
    run(tmp_path / "run", monkeypatch, algorithm="ppo", steps=1280, members=(MemberTask("a", PPO, 1),), reward=reward)
    rows = rows_of(tmp_path / "run", "a")
    assert len(rows) > 1 and "policy_loss" not in rows[-1]
    assert all("policy_loss" in row for row in rows[:-1])


def test_the_replay_buffer_is_as_large_as_the_run_and_grows_with_it(tmp_path, monkeypatch, short_chunks):
    sizes = []
    load = models.SAC.load.__func__

    def loading(cls, *arguments, **options):
        (old,) = [m for m in created if m.replay_buffer is None][-1:]
        assert old is created[-1]  # released before another is created
        restored = load(cls, *arguments, **options)
        sizes.append(restored.replay_buffer.observations.shape[0])
        return restored

    created = []
    make = models.make_model
    monkeypatch.setattr(models, "make_model", lambda *a, **k: created.append(make(*a, **k)) or created[-1])
    monkeypatch.setattr(models.SAC, "load", classmethod(loading))
    known = dict(algorithm="sac", members=(MemberTask("a", PLAIN, 1),))
    part = run(tmp_path / "part", monkeypatch, steps=200, checkpoint_seconds=0, **known)
    assert created[0].replay_buffer.buffer_size == (200 + 200) // 4
    resume = [m.path for m in part if m.type == "checkpoint"][-1]
    rest = run(tmp_path / "part", monkeypatch, steps=360, resume=resume, **known)
    assert rest[-1].type == "done" and sizes == [(360 + 200) // 4]
    whole = run(tmp_path / "whole", monkeypatch, steps=360, **known)
    for name, value in whole[-1].policies[0].weights.items():
        np.testing.assert_array_equal(value, rest[-1].policies[0].weights[name], err_msg=name)


def test_a_full_buffer_is_put_into_a_larger_one_oldest_first():
    def buffer(size, pos, full):
        arrays = {name: np.zeros((size, 1)) for name in models._REPLAY}
        return SimpleNamespace(replay_buffer=SimpleNamespace(buffer_size=size, pos=pos, full=full, **arrays))

    old, same, larger = buffer(4, 1, True), buffer(4, 0, False), buffer(6, 0, False)
    old.replay_buffer.rewards[:, 0] = [5, 2, 3, 4]
    arrays = models.replay_arrays(old)
    for model in (same, larger):
        models.fill_replay(model, arrays)
    np.testing.assert_array_equal(same.replay_buffer.rewards, old.replay_buffer.rewards)
    assert (same.replay_buffer.pos, same.replay_buffer.full) == (1, True)
    np.testing.assert_array_equal(larger.replay_buffer.rewards[:, 0], [2, 3, 4, 5, 0, 0])
    assert (larger.replay_buffer.pos, larger.replay_buffer.full) == (4, False)


def test_sac_states_what_it_trained_with_and_only_that(tmp_path, monkeypatch, short_chunks):
    fixed = {**PLAIN, "entropy_coef": 0.0}
    known = dict(algorithm="sac", steps=200)
    tuned = run(tmp_path / "run", monkeypatch, members=(MemberTask("a", PLAIN, 1),), checkpoint_seconds=0, **known)
    stated = tuned[-1].policies[0].card["provenance"]["hyperparameters"]
    assert set(stated) == {*sac.HYPERPARAMETERS, "normalize_observation"} and stated["entropy_coef"] == "auto"
    resume = [m.path for m in tuned if m.type == "checkpoint"][-1]
    other = run(tmp_path / "run", monkeypatch, members=(MemberTask("a", fixed, 1),), resume=resume, **known)
    assert other[-1].type == "failed" and other[-1].reason == "CHECKPOINT_MISMATCH"
    alone = run(tmp_path / "fixed", monkeypatch, members=(MemberTask("a", fixed, 1),), **known)
    assert alone[-1].policies[0].card["provenance"]["hyperparameters"]["entropy_coef"] == 0.0


def test_replay_buffers_that_would_outgrow_the_learner_are_refused_at_once(tmp_path, monkeypatch, short_chunks):
    created = []
    make = models.make_model
    monkeypatch.setattr(models, "make_model", lambda *a, **k: created.append(make(*a, **k)) or created[-1])
    known = dict(algorithm="sac", steps=400, members=(MemberTask("a", PLAIN, 1), MemberTask("b", PLAIN, 2)))
    # 600 transitions (400 steps and a chunk) in each of two buffers, their copies, and one copy more.
    whole = 600 * sac.transition_bytes(4, 1) * 5 + replay_memory.BESIDES
    refused = run(tmp_path / "refused", monkeypatch, memory_bytes=whole - 1, **known)
    assert [(m.type, m.reason) for m in refused if m.type == "failed"] == [("failed", "REPLAY_TOO_LARGE")]
    assert "for 2 members" in refused[-1].message and "train at most 399 steps" in refused[-1].message and not created
    known_to_fit = known | {"steps": 399}
    assert run(tmp_path / "advised", monkeypatch, memory_bytes=whole - 1, **known_to_fit)[-1].type == "done"
    created.clear()
    assert run(tmp_path / "fits", monkeypatch, memory_bytes=whole, **known)[-1].type == "done"
    buffers = [getattr(created[0].replay_buffer, name) for name in models._REPLAY]
    assert sum(array.nbytes for array in buffers) == 600 * sac.transition_bytes(4, 1)
    ppo = run(tmp_path / "ppo", monkeypatch, algorithm="ppo", steps=128, memory_bytes=1)
    assert ppo[-1].type == "done"
