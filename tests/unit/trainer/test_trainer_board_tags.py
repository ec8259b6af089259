"""TensorBoard tags: those of Stable-Baselines3 where it logs the same, and evaluations with scores of the judge."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from dressage.api.v1 import session_pb2 as pb
from dressage_orchestrator.lifecycle import board
from dressage_trainer.backends.metrics import scalars

from tests.unit.trainer.event_files import events_by_tensorboard_x

ROW = {
    "step": 2048.0,
    "update": 1.0,
    "seconds": 2.0,
    "steps_per_second": 1024.0,
    "episode_return": 3.0,
    "episode_length": 20.0,
    "environment_return": 2.0,
    "approx_kl": 0.01,
    "learning_rate": 3e-4,
    "clip_fraction": 0.1,
    "entropy": 2.5,
    "explained_variance": 0.9,
    "policy_loss": -0.02,
    "value_loss": 0.5,
    "std": 0.6,
    "term/speed": 1.0,
}


def logged_by_sb3(*modules: str) -> set[str]:
    """The tags in the sources of Stable-Baselines3, which is not imported, because it imports torch."""
    import importlib.util

    spec = importlib.util.find_spec("stable_baselines3")
    if spec is None or spec.origin is None:
        pytest.skip("needs Stable-Baselines3")
    texts = [(Path(spec.origin).parent / module).read_text() for module in modules]
    return {tag for text in texts for tag in re.findall(r'record\(\s*"([a-z]+/[a-z_]+)"', text)}


def test_tags_are_those_of_stable_baselines3() -> None:
    tags = logged_by_sb3("ppo/ppo.py", "common/on_policy_algorithm.py", "common/base_class.py")
    tagged = scalars(ROW)
    shared = {tag for tag in tagged if tag in tags}
    assert shared >= {
        "rollout/ep_rew_mean",
        "rollout/ep_len_mean",
        "time/fps",
        "time/iterations",
        "time/time_elapsed",
        "time/total_timesteps",
        "train/approx_kl",
        "train/clip_fraction",
        "train/entropy_loss",
        "train/explained_variance",
        "train/learning_rate",
        "train/policy_gradient_loss",
        "train/value_loss",
        "train/std",
    }
    assert tagged["train/entropy_loss"] == -2.5 and tagged["time/total_timesteps"] == 2048.0
    assert tagged["term/speed"] == 1.0


def test_tags_of_sac_are_those_of_stable_baselines3() -> None:
    tags = logged_by_sb3("sac/sac.py")
    row = {"step": 10.0, "policy_loss": 1.0, "value_loss": 2.0, "entropy_coefficient": 0.1,
           "entropy_coefficient_loss": 0.2, "gradient_steps": 8.0}  # fmt: skip
    assert {tag for tag in scalars(row) if tag.startswith("train/")} <= tags


def test_evaluations_and_scores_are_in_a_file_of_their_own(tmp_path: Path) -> None:
    tags = logged_by_sb3("common/callbacks.py")
    member = pb.Member(name="sessions/s/iterations/1/assignments/train/members/default-s0")
    for step in (100, 200):
        evaluation = member.evaluations.add(env_step=step, returns=[1.0, 3.0], lengths=[10, 20], speeds=[0.5])
        if step == 200:
            rollout = evaluation.rollouts.add()
            rollout.judgment.verdicts.add(kind=pb.JUDGE_KIND_CODE, score=0.75)
            rollout.judgment.score = 0.75
    path = tmp_path / "events.out.tfevents.0.dressage"
    path.write_bytes(board.encode(member, wall_time=1.5))
    events = events_by_tensorboard_x(path)[1:]
    values = [(event.step, {value.tag: value.simple_value for value in event.summary.value}) for event in events]
    assert values[0] == (100, {"eval/mean_reward": 2.0, "eval/mean_ep_length": 15.0, "eval/mean_speed": 0.5})
    assert values[1] == (200, {**values[0][1], "eval/judge_score": 0.75})
    assert {"eval/mean_reward", "eval/mean_ep_length"} <= tags
