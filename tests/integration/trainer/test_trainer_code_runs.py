"""Code candidates by a real trainer process over gRPC: hostile ones fail alone, and a kill repeats no finished candidate."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "fakes"))

from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.policies import load_code
from dressage.sandbox.capabilities import capabilities
from run_service import FakeRunService

pytestmark = pytest.mark.skipif(not capabilities().sufficient, reason="this kernel has no Landlock or seccomp")

POLICY = (
    "import numpy as np\nclass Policy:\n    def reset(self):\n        self.n = 0\n    def act(self, obs):\n        {}\n"
)
SWING = POLICY.format("self.n += 1; return np.sin(0.2 * self.n + np.arange(6))")
# PromptPO's exploit: a policy that does nothing but moves the robot in its observation.
FORGE = POLICY.format("obs[:] = 1e6; obs[8] = 19.999; return np.zeros(6)")
FEEDBACK = (
    "class Feedback:\n    def summarize_trajectory(self, observations):\n        return f'{len(observations)} states'\n"
)


def assignment(*sources, seeds=(3, 4), cores=2, **limits) -> pb.Assignment:
    work = pb.Assignment(id=1, cores=cores)
    work.evaluate.environment, work.evaluate.feedback_source = "HalfCheetah-v5", FEEDBACK
    work.evaluate.seeds.extend(seeds)
    work.evaluate.kept.append("best")
    work.evaluate.bundles = True
    work.evaluate.code_limits.CopyFrom(pb.CodeLimits(**limits))
    for index, source in enumerate(sources):
        work.evaluate.candidates.add(id=f"c{index}", code=source)
    return work


def stock(action, seeds=(3, 4)) -> list[float]:
    """Returns of Gymnasium's own loop, by a function of the step."""
    env, returns = gymnasium.make("HalfCheetah-v5"), []
    for seed in seeds:
        env.reset(seed=seed)
        rewards = []
        for step in range(1, 1001):
            _, reward, *_ = env.step(np.clip(action(step), -1, 1).astype(np.float32))
            rewards.append(reward)
        returns.append(float(np.sum(rewards)))
    return returns


@pytest.mark.timeout(400)
def test_forged_observations_score_what_the_environment_gives(tmp_path):
    hang = POLICY.format("while True: pass")
    flood = POLICY.format("np.random.bytes(10**7); return np.ones(10**11)")
    with FakeRunService(tmp_path / "store", assignment(FORGE, hang, flood, SWING, act_seconds=3.0)) as service:
        trainer = service.start_trainer(tmp_path / "scratch")
        _, report = service.wait_for("result", timeout=300)
        assert trainer.wait(60) == 0 and report.result.evaluate.episodes == 4
        results = {
            item: each.candidate for (_, item), each in service.accepted.items() if item.startswith("candidate/")
        }
    still, swing = stock(lambda _: np.zeros(6)), stock(lambda step: np.sin(0.2 * step + np.arange(6)))
    forged, best = results["candidate/c0"], results["candidate/c3"]
    assert list(forged.returns) == still and max(still) < 1.0
    assert list(best.returns) == swing and list(best.feedback) == ["1001 states"] * 2
    assert best.policy == "candidates/c3/policy" and load_code(tmp_path / "store" / best.policy).source == SWING
    (rollout,) = best.rollouts
    assert rollout.label == "best" and rollout.seed == (3, 4)[int(np.argmax(swing))]
    reasons = [results[f"candidate/c{index}"].failure.reason for index in (1, 2)]
    assert reasons == ["POLICY_TOO_SLOW", "POLICY_OUT_OF_MEMORY"]


@pytest.mark.timeout(400)
def test_a_killed_trainer_repeats_no_finished_candidate(tmp_path):
    sources = [SWING + f"# {index}\n" for index in range(3)]
    with FakeRunService(tmp_path / "store", assignment(*sources, cores=1)) as service:
        trainer = service.start_trainer(tmp_path / "first")
        service.wait_for("candidate", timeout=200)
        trainer.send_signal(signal.SIGKILL)
        assert trainer.wait(30) == -9
        trainer = service.start_trainer(tmp_path / "second", attempt=2)
        service.wait_for("result", timeout=200)
        assert trainer.wait(60) == 0 and not service.repeated
        returns = [list(service.accepted[1, f"candidate/c{index}"].candidate.returns) for index in range(3)]
        assert returns[0] == returns[1] == returns[2] and len(returns[0]) == 2
