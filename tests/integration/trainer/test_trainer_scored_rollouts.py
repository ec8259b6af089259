"""A real trainer records all episodes of a scored policy on request, so that two policies can be compared seed by seed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("mujoco")
sys.path.insert(0, str(Path(__file__).parents[2] / "fakes"))

from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.envs.trajectory import Trajectory
from dressage.policies import load
from dressage.sandbox.capabilities import capabilities
from run_service import FakeRunService

from tests.unit.policies.test_policies_bundle import make_policy, saved

pytestmark = pytest.mark.skipif(not capabilities().sufficient, reason="this kernel has no Landlock or seccomp")


@pytest.mark.timeout(200)
def test_every_rollout_of_a_scored_policy_is_recorded(tmp_path: Path) -> None:
    store = tmp_path / "store"
    saved(make_policy(), store / "members/a-s1/policies/5")
    score = pb.ScoreAssignment(environment="Hopper-v5", episodes=5, seed=1_500_000, every_rollout=True, deliver=True)
    score.options.max_episode_steps = 20
    score.policies.add(member="a-s1", bundle="members/a-s1/policies/5", env_step=5)
    name = "sessions/s/iterations/1/assignments/select"
    with FakeRunService(store, pb.Assignment(id=1, name=name, cores=1, score=score)) as service:
        assert service.start_trainer(tmp_path / "scratch").wait(150) == 0
        played = service.accepted[1, "evaluation/a-s1/5"].evaluation.evaluation
        member = service.accepted[1, "member/a-s1"].member
    assert sorted(rollout.seed for rollout in played.rollouts) == list(range(1_500_000, 1_500_005))
    for rollout in played.rollouts:
        episode = Trajectory.load(store / rollout.artifact)
        assert episode.seed == rollout.seed and episode.stock_return == pytest.approx(getattr(rollout, "return"))
    assert {"p10", "median", "p90"} <= {rollout.label for rollout in played.rollouts}
    assert load(store / member.policy).description.environment == "Hopper-v5"
