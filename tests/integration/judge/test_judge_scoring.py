"""`JudgeService.Score`: a reward on recorded rollouts and on the shipped controls, in the real sandbox."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from dressage.api.internal.v1 import judge_service_pb2 as pb
from dressage.api.internal.v1 import judge_service_pb2_grpc as rpc
from dressage.artifacts import open_store
from dressage.envs.trajectory import load_check_trajectories
from dressage.serving import channels
from dressage_judge.settings import Settings
from dressage_judge.wiring import start

ENV = "HalfCheetah-v5"
REWARD = """
LATEX = r"v_x"
TERMS = {"speed": "forward velocity, m/s", "alive": "1 for each step"}

def reward(state, action, next_state, memory, np):
    return {"speed": next_state.x_velocity, "alive": np.ones_like(next_state.x_velocity)}
"""
JUDGE = """
def judge(trajectory, np):
    return {"score": 0.25, "criteria": {"any": 0.25}, "evidence": {}}
"""


@pytest.mark.asyncio
async def test_returns_of_rollouts_and_controls(tmp_path: Path) -> None:
    settings = Settings(store_url=str(tmp_path / "artifacts"), scratch=str(tmp_path / "scratch"), grace_seconds=1)
    service = await start(settings)
    episode = load_check_trajectories(ENV)["random"][0]
    episode.save(tmp_path / "t.npz")
    open_store(settings.store_url).put_file("sessions/s/r.npz", tmp_path / "t.npz")
    try:
        async with channels.connect(service.address) as channel:
            stub = rpc.JudgeServiceStub(channel)
            request = pb.ScoreRequest(
                environment=ENV, reward_source=REWARD, rollouts=["sessions/s/r.npz"], judge_source=JUDGE
            )
            answer = await stub.Score(request)
            broken = await stub.Score(
                pb.ScoreRequest(environment=ENV, reward_source=REWARD.replace("next_state.x_velocity,", "1.0,"))
            )
            rollouts_only = await stub.Score(
                pb.ScoreRequest(environment=ENV, reward_source=REWARD, rollouts=["sessions/s/r.npz"])
            )
    finally:
        await service.stop()
    first = answer.scored[0]
    speeds = np.asarray(episode.x_velocity, dtype=np.float64)[1:]
    assert (
        first.rollout == "sessions/s/r.npz" and first.steps == episode.num_steps and not first.HasField("judge_score")
    )
    assert first.terms["speed"] == pytest.approx(speeds.sum(), rel=1e-4)
    assert getattr(first, "return") == pytest.approx(speeds.sum() + episode.num_steps, rel=1e-4)
    controls = {entry.control for entry in answer.scored[1:]}
    assert controls == {"random", "untrained", "motionless"}
    assert all(entry.judge_score == 0.25 and "mean x_velocity" in entry.description for entry in answer.scored[1:])
    assert not broken.scored  # there was nothing to score, and nothing failed
    assert [entry.rollout for entry in rollouts_only.scored] == ["sessions/s/r.npz"]
