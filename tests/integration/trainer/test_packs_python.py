"""`dressage.evaluate`, `dressage eval` and `dressage render` with policies for environments of packs."""

from __future__ import annotations

import json
import subprocess
import sys

import dressage
import numpy as np
import pytest
from dressage.cli.main import invoke
from dressage.envs import load_card, load_check_trajectories
from dressage.envs.packs import registry
from dressage.errors import FailedPrecondition, InvalidArgument
from dressage.policies import CodePolicy, save_bundle
from dressage.policies.kinds import PolicySpec, kind
from dressage.sandbox.capabilities import capabilities

from tests.integration.trainer.test_trainer_packs import _GYMNASIUM_ALONE, LINEAR, MAZE, needs

pytestmark = pytest.mark.skipif(not capabilities().sufficient, reason="this kernel has no Landlock or seccomp")

SOURCE = """import numpy as np


class Policy:
    def reset(self):
        self.steps = 0

    def act(self, obs):
        self.steps += 1
        assert self.steps <= 800
        return np.array([0.7, -0.4])
"""


def _policy(environment, source=SOURCE):
    card = load_card(environment)
    return CodePolicy(
        source=source,
        environment=environment,
        observation_size=card.observation_size,
        action_low=tuple(part.low for part in card.action),
        action_high=tuple(part.high for part in card.action),
    )


@pytest.fixture(scope="module")
def alone():
    """The returns of seeds 3 and 4 in the pack's own package."""
    packages = str(registry.installed_packages("robotics"))
    command = [sys.executable, "-S", "-c", _GYMNASIUM_ALONE]
    done = subprocess.run(command, env={"PYTHONPATH": packages}, capture_output=True, check=True, timeout=120)
    return [row[0] for row in json.loads(done.stdout.splitlines()[-1])]


@needs("robotics")
def test_code_weights_and_functions_are_evaluated_in_the_pack(alone, tmp_path, capsys):
    bundle = _policy(MAZE).save(tmp_path / "code")
    assert invoke(["eval", str(bundle), "--episodes", "2", "--seed", "3", "--json"]) in (0, None)
    facts = json.loads(capsys.readouterr().out)
    assert facts["policy"]["mean_return"] == np.mean(alone) and facts["policy"]["mean_length"] == 800
    assert facts["random"]["mean_length"] == 800
    spec = PolicySpec.of("linear", load_card(MAZE))
    chosen, weights = kind("linear"), tmp_path / "linear"
    save_bundle(weights, weights=chosen.weights(spec, LINEAR), card=chosen.card(spec, environment=MAZE))
    assert dressage.evaluate(weights, episodes=2, seed=3, random_baseline=False).returns == tuple(alone)
    options = {"max_episode_steps": 5}
    short = dressage.evaluate(
        lambda observation: [0.7, -0.4], MAZE, episodes=3, env_options=options, random_baseline=False
    )
    assert short.lengths == (5, 5, 5) and short.speeds is None
    with pytest.raises(InvalidArgument, match="2 finite numbers at step 0"):
        dressage.evaluate(lambda observation: [0.7], MAZE, episodes=1, random_baseline=False)


@needs("metaworld")
def test_meta_world_is_evaluated_in_its_pack(tmp_path):
    source = SOURCE.replace("[0.7, -0.4]", "np.zeros(4)")
    given = {"episodes": 2, "env_options": {"max_episode_steps": 20}}
    policy = dressage.SandboxedPolicy(_policy("metaworld-button-press-v3", source))
    with policy:
        first, second = (dressage.evaluate(policy, **given) for _ in range(2))
    assert first.returns == second.returns and first.random.returns == second.random.returns
    assert first.lengths == (20, 20) and len({*first.returns, *first.random.returns}) == 4


def test_a_pack_that_is_not_installed_is_named_before_anything_is_played(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(registry.VARIABLE, str(tmp_path / "none"))
    bundle = _policy(MAZE).save(tmp_path / "code")
    with pytest.raises(FailedPrecondition, match="dressage envs install robotics"):
        dressage.evaluate(bundle, episodes=1)
    assert invoke(["eval", str(bundle), "--episodes", "1"]) == 1
    assert (
        "it is not installed. Install it where trainers run: dressage envs install robotics" in capsys.readouterr().err
    )


def test_a_video_of_a_pack_says_why_there_is_none(tmp_path, capsys):
    bundle = _policy(MAZE).save(tmp_path / "code")
    rollout = tmp_path / "rollout.npz"
    next(iter(load_check_trajectories(MAZE).values()))[0].save(rollout)
    for source in (bundle, rollout):
        assert invoke(["render", str(source), "--out", str(tmp_path / "video.mp4")]) == 1
        error = capsys.readouterr().err
        assert f"{MAZE} cannot be drawn: its model is in the environment pack robotics. `dressage eval`" in error
    assert not (tmp_path / "video.mp4").exists()
