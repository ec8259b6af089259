"""mjlab and Isaac Lab on the CPU: faults, last observations and whole trainings. Skipped where a pack is not installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from dressage.envs import EnvOptions, load_card
from dressage.envs.packs import process, registry
from dressage.envs.packs.batched.client import PackBatch
from dressage.envs.packs.registry import PACKS
from dressage.policies import load as load_policy
from dressage.sandbox.capabilities import capabilities
from dressage.sandbox.limits import simulator_limits
from dressage.sandbox.process import SandboxProcess

ROOT = Path(__file__).parents[3]
TASKS = {"Mjlab-Velocity-Flat-Unitree-Go1": "go1_walk.py", "Isaac-Cartpole-Direct": "isaac_upright.py"}
ASSETS = {
    "Robots/Classic/Cartpole/cartpole.usd": "cartpole.usda",
    "Environments/Grid/default_ground_plane_checker_v1/default_ground_plane.usda": "ground_plane.usda",
}
LIMIT = 6

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not capabilities().sufficient, reason="this kernel has no Landlock or seccomp"),
]


@pytest.fixture(params=[name for name in TASKS if name in registry.PACK_ENVIRONMENT_IDS])
def environment(request: pytest.FixtureRequest) -> str:
    card = load_card(request.param)
    if registry.problem_of(card.pack):
        pytest.skip(f"the pack {card.pack} is not installed")
    if card.pack == "isaaclab":
        folder = registry.folder_of(card.pack) / process.ASSETS / "Isaac" / "IsaacLab"
        for place, name in ASSETS.items():
            if not (folder / place).exists():
                (folder / place).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / "tests" / "data" / name, folder / place)
    return card.id


@pytest.fixture
def batch(environment: str, tmp_path: Path) -> Iterator[PackBatch]:
    card = load_card(environment)
    running = SandboxProcess.start(
        "dressage.envs.packs.batched.stepping:serve",
        limits=simulator_limits(PACKS[card.pack].gigabytes),
        scratch=tmp_path,
        packages=process.import_path(card.pack),
        read_only=process.readable(card.pack),
        python=process.interpreter(card.pack),
        env=process.variables(card.pack),
    )
    with running:
        options = EnvOptions(max_episode_steps=LIMIT)
        yield PackBatch(card, 3, options=options, fields=None, channel=running.channel)


def test_faults_and_last_observations_of_the_real_simulator(batch: PackBatch) -> None:
    batch.reset([1, 2, 3])
    still = np.zeros((3, batch.action_size), np.float32)
    for number in range(1, LIMIT + 1):
        before, step = batch.state(), batch.step(still)
        assert step.truncated.all() == (number == LIMIT) and not step.terminated.any()
        assert (step.next_state.time > before.time).all()
    moved = np.abs(step.final_observation - step.observation).max(axis=1)
    assert (moved > 1e-3).all()  # the last observation is not the first of the next episode
    good = batch.state().joint_positions.copy()
    batch._ask({"do": "spoil", "row": 1}, seconds=60.0)
    step = batch.step(still)
    assert step.truncated.tolist() == [False, True, False] and step.reward[1] == 0 and batch.divergences == 1
    np.testing.assert_array_equal(step.next_state.joint_positions[1], good[1])
    assert np.isfinite(step.observation).all()
    first = [batch.reset([5, 6, 7]), batch.step(still).observation]
    again = [batch.reset([5, 6, 7]), batch.step(still).observation]
    np.testing.assert_array_equal(first, again)


def test_a_whole_training_with_an_external_reward_ends_in_a_policy(environment: str, tmp_path: Path) -> None:
    command = [
        *(
            str(Path(sys.executable).with_name("dressage")),
            "train",
            str(ROOT / "examples" / "rewards" / TASKS[environment]),
        ),
        *("--env", environment, "--env-option", "max_episode_steps=100", "--seeds", "1", "--steps", "2048"),
        *("--yes", "--json", "--data-dir", str(tmp_path)),
    ]
    folders = {"DRESSAGE_PACKS": str(registry.folder_of(load_card(environment).pack).parent)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=3000, env={**os.environ, **folders})
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout)
    (member,) = tmp_path.glob("artifacts/sessions/*/iterations/1/assignments/train/members/*")
    card = load_card(environment)
    assert load_policy(member / "policy").act(np.zeros(card.observation_size)).shape == (card.action_size,)
    assert len(list(member.glob("videos/*.mp4"))) == card.has_video
