"""The comparison of checkpoints reads which policy was delivered, and its interval is that of a mean over trainings."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from dressage.api.v1 import session_pb2 as v1

PATH = Path(__file__).parents[3] / "tools" / "checkpoint_choice.py"


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("checkpoint_choice", PATH)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def member(delivered):
    one = v1.Member(name="sessions/s/iterations/1/assignments/train/members/a-s0", delivered_env_step=delivered)
    for step, scores in ((100, (0.8, 0.6)), (200, (0.2, 0.4))):
        evaluation = one.evaluations.add(env_step=step)
        for score in scores:
            evaluation.rollouts.add().judgment.score = score
    return one


@pytest.mark.parametrize(("delivered", "step"), [(0, 200), (100, 100)])
def test_the_delivered_policy_is_the_chosen_or_the_last_one(tool, delivered, step):
    training = tool.training_of(
        member(delivered), "hop", "judge", Path("store"), "sessions/s/iterations/1/assignments/t"
    )
    assert training.marks == ((100, pytest.approx(0.7)), (200, pytest.approx(0.3))) and training.delivered == step
    policies = Path("store/sessions/s/iterations/1/assignments/t/members/a-s0/policies")
    assert training.chosen == policies / str(step) and training.last == policies / "200"


def test_the_interval_contains_the_mean_of_the_differences(tool):
    low, high = tool.interval([0.0, 0.0, 0.3, -0.1])
    assert low < 0.05 < high and tool.interval([0.2, 0.2]) == (pytest.approx(0.2), pytest.approx(0.2))
