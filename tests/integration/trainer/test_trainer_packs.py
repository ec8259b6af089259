"""Environments of packs: played by our player in a process that imports the pack's packages instead of ours.

`dressage envs install` puts the pack below $DRESSAGE_PACKS (`make test` does it); without it, tests that play are skipped.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from dressage.envs import load_card
from dressage.envs.packs import installing, registry
from dressage.errors import FailedPrecondition, NotFound, Unavailable
from dressage.policies.kinds import PolicySpec, kind
from dressage.sandbox.capabilities import capabilities

from tests.unit.trainer.test_trainer_evaluate import assignment_of, one, seen

pytestmark = pytest.mark.skipif(not capabilities().sufficient, reason="this kernel has no Landlock or seccomp")

MAZE, SEEDS = "PointMaze_Large-v3", (3, 4)
FORCES = [0.0] * 8 + [0.7], [0.0] * 8 + [-0.4]
LINEAR = [*FORCES[0][:8], *FORCES[1][:8], FORCES[0][8], FORCES[1][8]]
"""Constant forces: the weights, row by row, then the biases."""

_GYMNASIUM_ALONE = """
import json, sys
import gymnasium, gymnasium_robotics, numpy as np
gymnasium.register_envs(gymnasium_robotics)
env = gymnasium.make("PointMaze_Large-v3")
results = []
for seed in (3, 4):
    env.reset(seed=seed)
    total, steps, ended = 0.0, 0, False
    while not ended:
        _, reward, terminated, truncated, info = env.step(np.array([0.7, -0.4], np.float32))
        total, steps, ended = total + reward, steps + 1, terminated or truncated
    results.append([total, steps, bool(info["success"])])
print(json.dumps(results))
"""


def needs(name):
    """Skip unless the pack is installed."""
    return pytest.mark.skipif(bool(registry.problem_of(name)), reason=f"the pack {name} is not installed")


@needs("robotics")
def test_a_maze_is_played_as_its_own_package_plays_it(tmp_path):
    assert kind("linear").size(PolicySpec.of("linear", load_card(MAZE))) == len(LINEAR)
    assignment = assignment_of(LINEAR, environment=MAZE, seeds=SEEDS, policy__bias=True, kept_rollouts=1)
    result, candidates = asyncio.run(one(tmp_path, assignment))
    assert result.evaluate.episodes == len(SEEDS)
    packages = str(registry.installed_packages("robotics"))
    command = [sys.executable, "-S", "-c", _GYMNASIUM_ALONE]
    alone = subprocess.run(command, env={"PYTHONPATH": packages}, capture_output=True, check=True, timeout=120)
    expected = json.loads(alone.stdout.splitlines()[-1])
    assert seen(candidates["a"]) == ([row[0] for row in expected], [row[1] for row in expected])
    assert list(candidates["a"].successes) == [row[2] for row in expected]


@needs("metaworld")
def test_meta_world_follows_the_seeds_and_reports_success(tmp_path):
    environment = "metaworld-button-press-v3"
    size = kind("linear").size(PolicySpec.of("linear", load_card(environment)))
    still = [0.0] * size
    assignment = assignment_of(still, still, environment=environment, seeds=(1, 2), policy__bias=True)
    _, candidates = asyncio.run(one(tmp_path, assignment))
    assert candidates["a"].returns == candidates["b"].returns
    assert len(set(candidates["a"].returns)) == 2
    assert list(candidates["a"].lengths) == [500, 500]
    assert list(candidates["a"].successes) == [False, False]


@pytest.mark.parametrize("name", [pytest.param(name, marks=needs(name)) for name in registry.PACKS])
def test_the_cards_of_an_installed_pack_are_current(name):
    tool = Path(__file__).parents[3] / "tools" / "pack_cards.py"
    done = subprocess.run([sys.executable, str(tool), "--check", name], capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr


def test_a_pack_that_is_not_installed_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setenv(registry.VARIABLE, str(tmp_path / "none"))
    result, _ = asyncio.run(one(tmp_path, assignment_of(LINEAR, environment=MAZE, policy__bias=True)))
    failure = result.failure.failure
    assert failure.reason == "PACK_NOT_INSTALLED"
    assert "dressage envs install robotics" in failure.message


@pytest.mark.parametrize(
    ("content", "words"),
    [("", "damaged"), ('{"python": "cpython-27"}', "another Python"), ("[]", "another Python")],
)
def test_a_damaged_or_foreign_installation_is_refused(tmp_path, monkeypatch, content, words):
    monkeypatch.setenv(registry.VARIABLE, str(tmp_path))
    (tmp_path / "robotics").mkdir()
    (tmp_path / "robotics" / registry.MARKER).write_text(content)
    with pytest.raises(FailedPrecondition, match=words):
        registry.installed_packages("robotics")


def test_packages_that_cannot_be_fetched_leave_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setenv(registry.VARIABLE, str(tmp_path))
    for name in ("UV_OFFLINE", "PIP_NO_INDEX"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    with pytest.raises(Unavailable, match="cannot be installed"):
        installing.install(registry.pack("robotics"))
    shutil.rmtree(tmp_path / "cache", ignore_errors=True)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_pack_names_the_known_ones():
    with pytest.raises(NotFound, match="metaworld or glucose or traffic"):
        registry.pack("nothing")
