"""PPO trains without the speed work, to the same numbers."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("jax")
sys.path.insert(0, str(Path(__file__).parent))

from dressage.training.hyperparameters import Hyperparameters
from dressage_trainer.ppo import snapshot
from dressage_trainer.ppo.members import MemberSpec
from dressage_trainer.ppo.ppo import PPO
from fake_environment import FakeBatch, FakeReward

GIVEN = Hyperparameters(num_envs=4, num_steps=16, minibatch_size=24, epochs=3, hidden_sizes=(8, 8), learning_rate=1e-3)
MEMBERS = [
    MemberSpec("a", GIVEN, 1),
    MemberSpec("b", replace(GIVEN, epochs=5, discount=0.8, entropy_coef=0.01), 2),
    MemberSpec("c", replace(GIVEN, learning_rate=1e-2, target_kl=0.003), 3),
]
WITHOUT_SPEED = """
import sys
sys.modules["dressage_trainer.speed"] = None  # its import raises ImportError
sys.path.insert(0, sys.argv[1])
import numpy as np
import test_trainer_without_speed as test
for dtype in (np.float32, np.float64):
    np.savez(f"{sys.argv[2]}/{np.dtype(dtype).name}.npz", **test.trained(dtype))
"""


def trained(dtype, optimise=None):
    """All state after three updates."""
    ppo = PPO(MEMBERS, environment=FakeBatch(3, 4), reward=FakeReward(), optimise=optimise, dtype=dtype)
    for _ in range(3):
        ppo.iterate()
    return snapshot.take(ppo)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The state after training in a process that cannot import the speed work."""
    folder = tmp_path_factory.mktemp("plain")
    command = [sys.executable, "-c", WITHOUT_SPEED, str(Path(__file__).parent), str(folder)]
    subprocess.run(command, check=True, timeout=300)
    return {name: dict(np.load(folder / f"{name}.npz")) for name in ("float32", "float64")}


@pytest.mark.parametrize(
    ("dtype", "threads", "size", "tolerance"),
    [
        (np.float64, 1, 3, 0.0),
        (np.float64, 2, 1, 1e-8),
        (np.float32, 1, 3, 1e-4),
    ],
    ids=["one lane", "three lanes", "fast arithmetic"],
)
def test_the_speed_work_changes_no_result(plain, dtype, threads, size, tolerance):
    from dressage_trainer.speed.lanes import PpoLanes

    lanes = PpoLanes(MEMBERS, environment=FakeBatch(3, 4), threads=threads, size=size, dtype=dtype)
    expected = plain[np.dtype(dtype).name]
    state = trained(dtype, lanes)
    assert state.keys() == expected.keys()
    for name, value in state.items():
        np.testing.assert_allclose(value, expected[name], rtol=0, atol=tolerance, err_msg=name)
    assert state["adam/step"][2] < state["adam/step"][0]  # the last member was stopped by its KL
