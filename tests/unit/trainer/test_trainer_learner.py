"""The learner as the supervisor sees it: messages in, messages and files out, and resuming to the same bits."""

from __future__ import annotations

import json
import resource

import numpy as np
import pytest

pytest.importorskip("jax")
pytest.importorskip("mujoco")

from dressage.policies import Policy, PolicyCard
from dressage_trainer import checkpoints
from dressage_trainer.backends import stacked
from dressage_trainer.backends.metrics import scalars as tagged
from dressage_trainer.messages import MemberTask, TrainSpec

from tests.unit.trainer.event_files import scalars
from tests.unit.trainer.in_process import Supervisor, run

CHEETAH = '''
LATEX = r"v_x + \\\\max"
TERMS = {"speed": "forward velocity", "best": "new best speed of the episode", "effort": "squared torque"}
MEMORY = {"best": 0.0, "steps": 0.0}

def reward(state, action, next_state, memory, np):
    """Depends on the memory, so that a resume without it would differ."""
    gain = np.maximum(next_state.x_velocity - memory.best, 0.0)
    memory.best = np.maximum(memory.best, next_state.x_velocity)
    memory.steps = memory.steps + 1.0
    return {"speed": next_state.x_velocity, "best": gain, "effort": -0.1 * np.square(action).sum(-1)}
'''
PENDULUM = '''
LATEX = "1"
TERMS = {"up": "stay up"}
MEMORY = {"steps": 0.0}

def reward(state, action, next_state, memory, np):
    """Grows with the episode."""
    memory.steps = memory.steps + 1.0
    return {"up": 1.0 + 0.01 * memory.steps}
'''
BROKEN_LATER = '''
LATEX = "1"
TERMS = {"fine": "one", "root": "turns into NaN where the pole leans left"}

def reward(state, action, next_state, memory, np):
    """Non-finite for some rows only."""
    return {"fine": 0.0 * next_state.time + 1.0, "root": np.where(next_state.time > 0.25, np.nan, 0.0)}
'''
SMALL = {"num_envs": 4, "num_steps": 32, "minibatch_size": 32, "epochs": 2, "hidden_sizes": [16, 16]}


def spec(environment, reward, *, steps, members=None, **options):
    members = members or (MemberTask("a", SMALL, 1), MemberTask("b", {**SMALL, "learning_rate": 1e-3}, 2))
    return TrainSpec(
        environment=environment, reward_source=reward, members=tuple(members), steps_per_member=steps, **options
    )


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def of_type(messages, kind):
    return [message for message in messages if message.type == kind]


def assert_same_policies(first, second):
    assert [p.member for p in first] == [p.member for p in second]
    for a, b in zip(first, second, strict=True):
        for name, value in a.weights.items():
            np.testing.assert_array_equal(value, b.weights[name], err_msg=f"{a.member} {name}")


def test_members_of_different_shape_end_at_different_steps(tmp_path):
    members = MemberTask("a", SMALL, 1), MemberTask("b", {**SMALL, "num_steps": 40}, 1)
    messages = run(tmp_path / "run", spec("InvertedPendulum-v5", PENDULUM, steps=300, members=members, evaluations=1))
    (done,) = of_type(messages, "done")
    assert {policy.member: policy.env_step for policy in done.policies} == {"a": 3 * 128, "b": 2 * 160}


def test_trains_reports_and_writes(tmp_path):
    messages = run(tmp_path / "run", spec("HalfCheetah-v5", CHEETAH, steps=512, evaluations=2, checkpoint_seconds=0))
    (done,) = of_type(messages, "done")
    assert messages[-1] is done
    assert [policy.env_step for policy in done.policies] == [512, 512]
    assert done.env_steps_total == 2 * 512
    (evaluate,) = of_type(messages, "evaluate")
    assert [policy.env_step for policy in evaluate.policies] == [256, 256]
    for policies in (evaluate.policies, done.policies):
        assert [p.member for p in policies] == ["a", "b"]
        for item in policies:
            policy = Policy(weights=item.weights, card=PolicyCard.from_dict(item.card))
            assert policy.act(np.zeros(17)).shape == (6,)
    assert done.policies[0].card["provenance"]["seed"] == 1
    rows = [json.loads(line) for line in (tmp_path / "run/members/b/metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [128, 256, 384, 512]
    needed = {"entropy", "approx_kl", "clip_fraction", "explained_variance", "value_loss", "policy_loss", "grad_norm",
              "term/speed", "term/effort", "collect_steps_per_second", "update_steps_per_second"}  # fmt: skip
    assert needed <= rows[-1].keys()
    # An untrained unit Gaussian in 6 dimensions.
    # Six actions with the preset's initial deviation, exp(-1) each.
    assert rows[0]["entropy"] == pytest.approx(6 * (0.5 * np.log(2 * np.pi * np.e) - 1.0), abs=0.1)
    assert rows[-1]["term/speed"] is not None
    assert list((tmp_path / "run/members/a/tb").iterdir())
    paths = [message.path for message in of_type(messages, "checkpoint")]
    assert paths[-1] == "checkpoints/4.safetensors"
    assert (tmp_path / "run" / paths[-1]).exists()


TERMS = ("speed", "best", "effort")
DIAGNOSTICS = {
    "rollout": ("episode_length", "episode_return", "environment_return", "episodes"),
    "train": (
        *(
            "entropy",
            "std",
            "approx_kl",
            "clip_fraction",
            "explained_variance",
            "grad_norm",
            "policy_loss",
            "value_loss",
        ),
        *("return_target_mean", "value_mean", "minibatches", "steps", "learning_rate"),
    ),
    "time": (
        *("collect_steps_per_second", "update_steps_per_second", "steps_per_second", "update", "seconds"),
        "compile_seconds",
    ),
}


@pytest.mark.parametrize("reader", ["tensorboardX", "tensorboard"])
def test_a_row_has_every_diagnostic_and_tensorboard_shows_the_same_values(tmp_path, reader):
    pytest.importorskip(reader)
    short = {"max_episode_steps": 30}  # so that episodes end within the first update
    run(tmp_path / "run", spec("HalfCheetah-v5", CHEETAH, steps=256, options=short, checkpoint_seconds=1e9))
    names = {f"{group}/{name}": name for group, diagnostics in DIAGNOSTICS.items() for name in diagnostics}
    names |= {tag: tag for term in TERMS for tag in (f"term/{term}", f"term_magnitude/{term}", f"term_share/{term}")}
    for member in ("a", "b"):
        folder = tmp_path / "run/members" / member
        rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        shown = scalars(folder / "tb", reader)
        assert list(shown) == [row["step"] for row in rows] == [128, 256]
        for row in rows:
            assert row.keys() == {"step", *names.values()}
            # The names of the tags are tested with those of Stable-Baselines3.
            assert shown[row["step"]] == {tag: np.float32(value) for tag, value in tagged(row).items()}
            assert len(shown[row["step"]]) == len(row) + 1  # the entropy twice, once negated


@pytest.mark.parametrize(("environment", "reward"), [("HalfCheetah-v5", CHEETAH), ("InvertedPendulum-v5", PENDULUM)])
def test_resumes_to_the_same_bits(tmp_path, environment, reward):
    whole = run(tmp_path / "whole", spec(environment, reward, steps=768, checkpoint_seconds=1e9))
    run(tmp_path / "part", spec(environment, reward, steps=384, checkpoint_seconds=0))
    resume = "checkpoints/3.safetensors"
    rest = run(tmp_path / "part", spec(environment, reward, steps=768, checkpoint_seconds=1e9, resume=resume))
    assert_same_policies(whole[-1].policies, rest[-1].policies)
    assert rest[-1].env_steps_total == 2 * 384
    untimed = [
        [
            {k: v for k, v in json.loads(line).items() if "second" not in k}
            for line in (tmp_path / name / "members/a/metrics.jsonl").read_text().splitlines()
        ]
        for name in ("whole", "part")
    ]
    assert untimed[0] == untimed[1]


def test_groups_of_different_shape_train_together_and_resume(tmp_path):
    members = (MemberTask("a", SMALL, 1), MemberTask("b", {**SMALL, "hidden_sizes": [8]}, 1),
               MemberTask("c", {**SMALL, "num_steps": 64}, 1))  # fmt: skip
    whole = run(tmp_path / "whole", spec("InvertedPendulum-v5", PENDULUM, steps=512, members=members))
    assert {p.member for p in whole[-1].policies} == {"a", "b", "c"}
    run(tmp_path / "part", spec("InvertedPendulum-v5", PENDULUM, steps=256, members=members, checkpoint_seconds=0))
    (latest,) = sorted((tmp_path / "part/checkpoints").glob("*"), key=lambda p: int(p.stem))[-1:]
    resume = str(latest.relative_to(tmp_path / "part"))
    rest = run(tmp_path / "part", spec("InvertedPendulum-v5", PENDULUM, steps=512, members=members, resume=resume))
    assert_same_policies(whole[-1].policies, rest[-1].policies)


def test_only_the_group_that_advanced_is_copied(tmp_path, monkeypatch):
    taken = []
    snapshot = stacked.Group.snapshot
    monkeypatch.setattr(stacked.Group, "snapshot", lambda self: taken.append(self.names) or snapshot(self))
    members = (MemberTask("a", SMALL, 1), MemberTask("b", {**SMALL, "hidden_sizes": [8]}, 2))
    run(tmp_path / "w", spec("InvertedPendulum-v5", PENDULUM, steps=384, members=members))
    assert sorted(taken) == [["a"]] * 4 + [["b"]] * 4  # once at the start, then after each of three updates


def test_snapshot_on_request_is_answered_while_training(tmp_path):
    supervisor = Supervisor(
        tmp_path / "run", spec("InvertedPendulum-v5", PENDULUM, steps=20_000, checkpoint_seconds=1e9)
    )
    supervisor.channel.send({"type": "snapshot"})
    messages = list(supervisor.messages())
    (checkpoint,) = of_type(messages, "checkpoint")
    assert checkpoint.requested
    snapshot = checkpoints.read(tmp_path / "run" / checkpoint.path)
    assert snapshot.update == checkpoint.update
    assert messages[-1].type == "done"


def test_non_finite_reward_stops_the_run_naming_the_term(tmp_path):
    messages = run(tmp_path / "run", spec("InvertedPendulum-v5", BROKEN_LATER, steps=512))
    stopped = of_type(messages, "member_stopped")
    assert {message.member for message in stopped} == {"a", "b"}
    assert all("'root'" in message.message and message.reason == "REWARD_NOT_FINITE" for message in stopped)
    assert not of_type(messages, "warning"), "what a stopped member does means nothing"
    assert messages[-1].type == "failed"
    assert messages[-1].generated_code


def test_members_stopped_before_the_checkpoint_are_reported_again(tmp_path):
    """The attempt before may have been killed before it could."""
    part = run(tmp_path / "run", spec("InvertedPendulum-v5", PENDULUM, steps=256, checkpoint_seconds=0))
    newest = of_type(part, "checkpoint")[-1].path
    snapshot = checkpoints.read(tmp_path / "run" / newest)
    stop = {"member": 1, "step": 128, "cause": "gradient", "term": "", "message": "it was not finite"}
    snapshot.arrays["group0/state/stops"] = np.frombuffer(json.dumps([stop]).encode(), np.uint8)
    checkpoints.write(tmp_path / "run", snapshot)
    rest = run(tmp_path / "run", spec("InvertedPendulum-v5", PENDULUM, steps=384, resume=newest))
    (stopped,) = of_type(rest, "member_stopped")
    assert (stopped.member, stopped.env_step, stopped.reason) == ("b", 128, "GRADIENT_NOT_FINITE")
    assert [policy.member for policy in rest[-1].policies] == ["a"]


@pytest.mark.parametrize(
    ("change", "reason", "words"),
    [
        ({"environment": "Nothing-v0"}, "ENVIRONMENT_NOT_FOUND", "Nothing-v0"),
        ({"reward_source": "import os\n" + PENDULUM}, "REWARD_INVALID", "import"),
        ({"members": [{"member": "a", "hyperparameters": {"discount": 2}, "seed": 0}]}, "INVALID_ARGUMENT", "discount"),
        ({"members": [{"member": "a", "hyperparameters": {"gamma": 0.9}, "seed": 0}]}, "INVALID_ARGUMENT", "gamma"),
        ({"members": []}, "INVALID_ARGUMENT", "member"),
        ({"options": {"gravity": 3}}, "INVALID_ARGUMENT", "gravity"),
    ],
)
def test_bad_specs_are_refused_by_name(tmp_path, change, reason, words):
    request = {**spec("InvertedPendulum-v5", PENDULUM, steps=100).to_dict(), **change}
    failed = run(tmp_path / "run", request)[-1]
    assert failed.type == "failed"
    assert words in failed.message
    assert failed.reason == (reason if reason != "REWARD_INVALID" else "REWARD_ERROR")
    assert failed.generated_code == (reason == "REWARD_INVALID")


def damage(path, how):
    data = bytearray(path.read_bytes())
    if how == "truncated":
        data = data[:-100]
    else:
        data[-50] ^= 0x40  # one bit, in the middle of an array
    path.write_bytes(data)


@pytest.mark.parametrize("how", ["truncated", "flipped"])
def test_after_a_damaged_checkpoint_the_one_before_is_used(tmp_path, how):
    request = spec("InvertedPendulum-v5", PENDULUM, steps=384, checkpoint_seconds=0)
    whole = run(tmp_path / "run", request)
    damage(tmp_path / "run/checkpoints/3.safetensors", how)
    again = spec("InvertedPendulum-v5", PENDULUM, steps=384, resume="checkpoints/3.safetensors",
                 resume_earlier=("checkpoints/2.safetensors",), checkpoint_seconds=1e9)  # fmt: skip
    messages = run(tmp_path / "run", again)
    corrupt, fallback = of_type(messages, "warning")
    assert corrupt.reason == "CHECKPOINT_CORRUPT" and "3.safetensors" in corrupt.message
    assert fallback.reason == "CHECKPOINT_FALLBACK" and "update 2" in fallback.message
    assert_same_policies(whole[-1].policies, messages[-1].policies)
    assert messages[-1].env_steps_total == 2 * 128


def test_without_a_usable_checkpoint_training_restarts_with_a_warning(tmp_path):
    whole = run(tmp_path / "run", spec("InvertedPendulum-v5", PENDULUM, steps=256))
    messages = run(
        tmp_path / "run", spec("InvertedPendulum-v5", PENDULUM, steps=256, resume="checkpoints/7.safetensors")
    )
    assert [m.reason for m in of_type(messages, "warning")] == ["CHECKPOINT_CORRUPT", "CHECKPOINT_FALLBACK"]
    assert "restarts" in of_type(messages, "warning")[1].message
    assert_same_policies(whole[-1].policies, messages[-1].policies)


def test_a_foreign_checkpoint_is_refused(tmp_path):
    run(tmp_path / "run", spec("InvertedPendulum-v5", PENDULUM, steps=128, checkpoint_seconds=0))
    other = (MemberTask("a", SMALL, 5), MemberTask("b", SMALL, 2))
    request = spec("InvertedPendulum-v5", PENDULUM, steps=256, members=other, resume="checkpoints/1.safetensors")
    assert run(tmp_path / "run", request)[-1].reason == "CHECKPOINT_MISMATCH"


@pytest.fixture
def small_files():
    """Files may not grow beyond some bytes, as on a full disk; lifted again at the end."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def snapshot_of(update, size):
    return checkpoints.Snapshot(update=update, env_step=update, facts={}, arrays={"x": np.full(size, update)})


def test_a_full_disk_leaves_the_previous_checkpoint_and_no_partial_one(tmp_path, small_files):
    checkpoints.write(tmp_path, snapshot_of(1, 10))
    small_files(20_000)
    with pytest.raises(OSError, match="File too large"):
        checkpoints.write(tmp_path, snapshot_of(2, 10_000))
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["1.safetensors"]
    assert checkpoints.read(tmp_path / "checkpoints/1.safetensors").update == 1


def test_training_continues_without_checkpoints_but_not_without_metrics(tmp_path, small_files):
    small_files(30_000)  # less than a checkpoint, more than a few rows of metrics
    messages = run(tmp_path / "run", spec("InvertedPendulum-v5", PENDULUM, steps=384, checkpoint_seconds=0))
    assert {m.reason for m in of_type(messages, "warning")} == {"CHECKPOINT_FAILED"}
    assert messages[-1].type == "done"
    assert not list((tmp_path / "run/checkpoints").iterdir())
    small_files(1_000)
    messages = run(tmp_path / "other", spec("InvertedPendulum-v5", PENDULUM, steps=384, checkpoint_seconds=1e9))
    assert messages[-1].type == "failed" and messages[-1].reason == "OUT_OF_DISK"
