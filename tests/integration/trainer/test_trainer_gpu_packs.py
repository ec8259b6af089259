"""mjlab and Isaac Lab on the CPU: faults, last observations and whole trainings. Skipped where a pack is not installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from dressage.cli import packs
from dressage.envs import EnvOptions, load_card
from dressage.envs.packs import models, process, registry
from dressage.envs.packs.batched.client import PackBatch
from dressage.envs.packs.registry import PACKS
from dressage.policies import load as load_policy
from dressage.sandbox.capabilities import capabilities
from dressage.sandbox.limits import simulator_limits
from dressage.sandbox.process import SandboxProcess
from dressage_renderer.simulated import SimulatorStage
from dressage_renderer.stage import Stage, open_stage

from tests.unit.envs.body_poses import CART_POLE, pose_errors

ROOT = Path(__file__).parents[3]
TASKS = {"Mjlab-Velocity-Flat-Unitree-Go1": "go1_walk.py", "Isaac-Cartpole-Direct": "isaac_upright.py"}
ASSETS = {
    "Robots/Classic/Cartpole/cartpole.usd": "cartpole.usda",
    "Environments/Grid/default_ground_plane_checker_v1/default_ground_plane.usda": "ground_plane.usda",
}
LIMIT = 6
POSES = """
import json, sys
config = json.loads(sys.argv[1])
sys.path[:] = config["path"]
import numpy as np
from dressage.envs.packs.batched.isaaclab import IsaacSimulator
from dressage.envs.packs.batched.stepping import use_kernels

use_kernels()
simulator = IsaacSimulator(config["environment"], num_envs=1, max_episode_steps=None, device="cpu")
simulator.reset(3)
rng, rows = np.random.default_rng(0), []
(robot,) = simulator._env.scene.articulations.values()
origin = simulator._env.scene.env_origins.cpu().numpy()[0]
for _ in range(config["steps"]):
    if simulator.step(rng.uniform(-1, 1, (1, 1))).restarted.any():
        break
    values = (robot.data.joint_pos, robot.data.joint_vel, robot.data.body_link_pos_w, robot.data.body_link_quat_w)
    rows.append([np.array(value.torch.cpu().numpy()[0], np.float64) for value in values])
positions, velocities, places, turns = (np.stack(column) for column in zip(*rows))
names = np.array(robot.body_names)
np.savez(config["out"], joint_positions=positions, joint_velocities=velocities, place=places - origin, turn=turns, names=names)
"""

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
        packs.install(card.pack, reinstall=False)  # writes the model, where it is not there yet
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


@pytest.mark.parametrize("environment", [CART_POLE], indirect=True)
def test_bodies_of_the_written_model_are_where_the_simulators_are(environment: str, tmp_path: Path) -> None:
    script, out = tmp_path / "poses.py", tmp_path / "poses.npz"
    script.write_text(POSES)
    path = process.import_path("isaaclab")
    config = json.dumps({"path": path, "environment": environment, "steps": 60, "out": str(out)})
    command = [process.interpreter("isaaclab"), "-P", "-s", "-S", str(script), config]
    variables = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), **process.variables("isaaclab")}
    subprocess.run(command, cwd=tmp_path, env=variables, check=True, timeout=900)
    recorded = dict(np.load(out))
    assert len(recorded["place"]) > 20 and np.ptp(recorded["joint_positions"], axis=0).min() > 0.1
    assert pose_errors(models.load_model(environment), recorded).max() < 1e-4


@pytest.fixture
def without_model(environment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the installed pack is, without the model that its simulator has written."""
    pack = load_card(environment).pack
    installed, copy = registry.folder_of(pack), tmp_path / "packs" / pack
    copy.mkdir(parents=True)
    for entry in installed.iterdir():
        if entry.name != registry.MODELS:
            (copy / entry.name).symlink_to(entry)
    monkeypatch.setenv(registry.VARIABLE, str(copy.parent))
    return installed.parent


def coloured(image: Any) -> Any:
    """The pixels (H, W) of an image that are not grey."""
    return np.ptp(image.astype(int), axis=-1) > 30


@pytest.mark.parametrize("environment", [CART_POLE], indirect=True)
def test_the_simulators_camera_sees_what_mujoco_draws(
    environment: str, without_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = np.array([[0.0, 0.0], [1.0, 0.6], [-1.5, -1.0]])
    with open_stage(environment, width=480, height=360) as camera:
        assert isinstance(camera, SimulatorStage) and camera.position_size == 2
        seen = [coloured(camera.draw(state)) for state in states]
        again = coloured(camera.draw(states[0]))
    monkeypatch.setenv(registry.VARIABLE, str(without_model))
    with open_stage(environment, width=480, height=360) as drawing:
        assert isinstance(drawing, Stage)
        drawn = [coloured(drawing.draw(state)) & drawing.robot_mask() for state in states]
    np.testing.assert_array_equal(again, seen[0])
    for one, other in zip(seen, drawn, strict=True):
        assert one.sum() > 300 and 0.7 < one.sum() / other.sum() < 1.4
        places = [np.argwhere(mask).mean(axis=0) for mask in (one, other)]
        assert np.abs(places[0] - places[1]).max() < 2.0  # pixels


@pytest.mark.parametrize("environment", [CART_POLE], indirect=True)
def test_a_training_without_a_model_has_a_video(environment: str, without_model: Path, tmp_path: Path) -> None:
    test_a_whole_training_with_an_external_reward_ends_in_a_policy(environment, tmp_path)
    (video,) = tmp_path.glob("artifacts/sessions/*/iterations/1/assignments/train/members/*/videos/*.mp4")
    with av.open(str(video)) as container:
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    assert len(frames) > 10 and all(coloured(frame).any() for frame in frames)
