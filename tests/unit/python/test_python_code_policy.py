"""Code policies from Python and the command line: they act in a sandbox, are evaluated and exported."""

from __future__ import annotations

import json
import subprocess
import sys

import dressage
import gymnasium
import numpy as np
import pytest
from dressage.cli.main import invoke
from dressage.contracts.policy_host import PolicyFailure
from dressage.errors import InvalidArgument
from dressage.policies import CodePolicy
from dressage.sandbox.capabilities import capabilities

pytestmark = pytest.mark.skipif(not capabilities().sufficient, reason="this kernel has no Landlock or seccomp")

SOURCE = """from __future__ import annotations

import numpy as np


class Policy:
    def reset(self):
        self.steps = 0

    def act(self, obs: np.ndarray) -> int:
        self.steps += 1
        return int(obs[2] + 0.3 * obs[3] + 0.02 * (self.steps % 7 - 3) > 0)
"""


@pytest.fixture
def bundle(tmp_path):
    policy = CodePolicy(source=SOURCE, environment="CartPole-v1", observation_size=4, num_actions=2)
    return policy.save(tmp_path / "balance")


def stock(seeds) -> list[float]:
    scope, env, returns = {}, gymnasium.make("CartPole-v1"), []
    exec(SOURCE, scope)
    for seed in seeds:
        policy, total, ended = scope["Policy"](), 0.0, False
        policy.reset()
        observation, _ = env.reset(seed=seed)
        while not ended:
            observation, reward, terminated, truncated, _ = env.step(policy.act(np.float64(observation)))
            total, ended = total + reward, terminated or truncated
        returns.append(total)
    return returns


def test_a_loaded_policy_acts_in_a_process_of_its_own(bundle, tmp_path):
    with dressage.load(bundle) as policy:
        assert isinstance(policy, dressage.SandboxedPolicy) and policy.source == SOURCE
        assert policy.act([0.0, 0.0, 0.2, 0.0]) == 1 and policy.predict(np.array([0.0, 0.0, -0.2, 0.0]))[0] == 0
        process = policy._host._process
        assert process.poll() is None
        with pytest.raises(InvalidArgument, match="observation"):
            policy.act([0.0])
    assert process.poll() is not None
    again = dressage.load(policy.save(tmp_path / "balance.zip"))
    assert dressage.evaluate(again, episodes=2, seed=7, random_baseline=False).returns == tuple(stock([7, 8]))
    again.close()


def test_a_policy_that_fails_says_why_and_starts_anew(tmp_path):
    source = SOURCE.replace("int(obs[2]", "5 if obs[0] > 1 else int(obs[2]")
    policy = dressage.SandboxedPolicy(
        CodePolicy(source=source, environment="CartPole-v1", observation_size=4, num_actions=2)
    )
    with policy, pytest.raises(PolicyFailure, match="must return an int from 0 to 1"):
        policy.act([2.0, 0.0, 0.0, 0.0])
    assert policy.act([0.0, 0.0, 0.2, 0.0]) == 1
    policy.close()


def test_the_export_plays_stock_gymnasium_alone(bundle, tmp_path, capsys):
    out = tmp_path / "exported.py"
    assert invoke(["export", str(bundle), "--format", "python", "--out", str(out), "--json"]) in (0, None)
    assert json.loads(capsys.readouterr().out) == {"format": "python", "files": [str(out)]}
    command = [sys.executable, str(out), "--episodes", "2", "--seed", "7"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    first, second = stock([7, 8])
    assert done.stdout.splitlines()[:2] == [f"seed 7: return {first:.6g}", f"seed 8: return {second:.6g}"]
    assert invoke(["export", str(bundle), "--format", "onnx"]) == 1
    assert "--format: invalid value (got 'onnx'); expected python for a code policy" in capsys.readouterr().err


def test_eval_of_a_bundle_plays_its_code(bundle, capsys):
    assert invoke(["eval", str(bundle), "--episodes", "2", "--seed", "7", "--json"]) in (0, None)
    facts = json.loads(capsys.readouterr().out)
    assert facts["policy"]["mean_return"] == np.mean(stock([7, 8])) and facts["environment"] == "CartPole-v1"


def test_check_reads_policies_and_feedback(tmp_path):
    assert dressage.check(SOURCE, "CartPole-v1").act_microseconds > 0
    result = dressage.check(SOURCE.replace("obs[2]", "obs[9]"), "CartPole-v1")
    assert not result and result.problems[0].line == 12 and "IndexError" in result.problems[0].seen
