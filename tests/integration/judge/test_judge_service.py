"""The judge as a service: real gRPC, the real sandbox, the shipped episodes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import numpy as np
import pytest
from dressage.api.internal.v1 import judge_service_pb2 as pb
from dressage.api.internal.v1 import judge_service_pb2_grpc as rpc
from dressage.artifacts import ArtifactStore, open_store
from dressage.envs.trajectory import Trajectory, load_check_trajectories
from dressage.errors import DressageError, FailedPrecondition, InvalidArgument, NotFound
from dressage.rpc_errors import from_rpc
from dressage.serving import channels
from dressage_judge.settings import Settings
from dressage_judge.wiring import start
from prometheus_client import REGISTRY

ENV = "HalfCheetah-v5"

REWARD = """
LATEX = r"v_x - 0.1 \\\\lVert a \\\\rVert^2"
TERMS = {"speed": "forward velocity, m/s", "effort": "squared torque"}

def reward(state, action, next_state, memory, np):
    return {"speed": next_state.x_velocity, "effort": -0.1 * np.square(action).sum(-1)}
"""

RUNS_FAST = """
def judge(trajectory, np):
    speed = float(np.mean(trajectory.x_velocity))
    way = float(trajectory.x_position[-1] - trajectory.x_position[0])
    fast = float(np.clip(speed / 4.0, 0.0, 1.0))
    ahead = 1.0 if way > 1.0 else 0.0
    return {"score": min(fast, ahead), "criteria": {"fast": fast, "gets_ahead": ahead},
            "evidence": {"mean_speed": speed, "way": way}}
"""

PLEASED = """
def judge(trajectory, np):
    return {"score": 0.95, "criteria": {"nice": 0.95}, "evidence": {}}
"""


@dataclass
class Stack:
    stub: rpc.JudgeServiceStub
    store: ArtifactStore


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    settings = Settings(store_url=str(tmp_path / "artifacts"), scratch=str(tmp_path / "scratch"), grace_seconds=1)
    service = await start(settings)
    async with channels.connect(service.address) as channel:
        yield Stack(rpc.JudgeServiceStub(channel), open_store(settings.store_url))
    await service.stop()
    # A check leaves no files.
    assert list((tmp_path / "scratch").iterdir()) == []


def runner_at(speed: float) -> Trajectory:
    """An episode whose fields say that the robot runs ahead at a steady speed."""
    base = load_check_trajectories(ENV)["random"][0]
    fields = dict(base.fields)
    fields["x_velocity"] = np.full_like(base.x_velocity, speed)
    fields["x_position"] = (base.time * speed).astype(np.float32)
    return Trajectory(**{**vars(base), "fields": fields})


def put(stack: Stack, tmp_path: Path, key: str, trajectory: Trajectory) -> str:
    trajectory.save(tmp_path / "t.npz")
    stack.store.put_file(key, tmp_path / "t.npz")
    return key


async def failure(call: grpc.aio.UnaryUnaryCall) -> DressageError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return from_rpc(caught.value)


async def test_a_sound_reward_passes_with_its_terms_and_formula(stack: Stack) -> None:
    reply = await stack.stub.Check(pb.CheckRequest(reward_source=REWARD, environment=ENV), timeout=60)
    assert reply.ok, list(reply.failures)
    assert dict(reply.terms) == {"speed": "forward velocity, m/s", "effort": "squared torque"}
    assert "v_x" in reply.latex
    assert reply.style == "vectorised"
    assert 0 < reply.milliseconds_per_thousand_rows < 25


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("    import os", "import"),
        (
            '    return {"speed": next_state.x_velocity / (0 * next_state.x_velocity), "effort": 0 * action[:, 0]}',
            "finite",
        ),
        ('    return {"speed": next_state.x_speed, "effort": 0 * action[:, 0]}', "x_speed"),
        ('    return {"speed": next_state.x_velocity.mean(), "effort": 0 * action[:, 0]}', "shape"),
    ],
)
async def test_a_bad_reward_is_refused_with_rule_and_message(stack: Stack, line: str, problem: str) -> None:
    source = REWARD.replace('    return {"speed"', f'{line}\n    return {{"speed"')
    reply = await stack.stub.Check(pb.CheckRequest(reward_source=source, environment=ENV), timeout=60)
    assert not reply.ok
    everything = " ".join(f"{each.rule} {each.message} {each.seen}" for each in reply.failures)
    assert problem in everything
    assert all(each.rule and each.message for each in reply.failures)


async def test_an_endless_reward_is_ended_and_counted(stack: Stack) -> None:
    def kills() -> float:
        return REGISTRY.get_sample_value("dressage_sandbox_kills_total", {"reason": "timeout"}) or 0.0

    before = kills()
    source = REWARD.replace("    return", "    while True:\n        pass\n    return", 1)
    reply = await stack.stub.Check(pb.CheckRequest(reward_source=source, environment=ENV), timeout=20)
    assert not reply.ok
    assert "did not end in time" in reply.failures[0].message
    assert kills() == before + 1


async def test_a_judge_that_fails_every_null_control_is_trusted(stack: Stack) -> None:
    controls = ["random", "untrained", "motionless", "time_reversed"]
    request = pb.CheckRequest(judge_source=RUNS_FAST, environment=ENV, null_controls=controls, pass_threshold=0.7)
    reply = await stack.stub.Check(request, timeout=60)
    assert reply.ok, list(reply.failures)
    assert set(reply.control_scores) == set(controls)
    assert max(reply.control_scores.values()) < 0.7


async def test_a_judge_that_passes_any_episode_is_refused(stack: Stack) -> None:
    request = pb.CheckRequest(
        judge_source=PLEASED, environment=ENV, null_controls=["motionless", "time_reversed"], pass_threshold=0.7
    )
    reply = await stack.stub.Check(request, timeout=60)
    assert not reply.ok
    assert [each.rule for each in reply.failures] == ["null-control", "null-control"]
    assert "'motionless'" in reply.failures[0].message
    assert "0.950" in reply.failures[0].message
    assert "mean x_velocity" in reply.failures[0].seen
    assert reply.control_scores["random"] == pytest.approx(0.95)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('"score": min(fast, ahead)', '"score": 1.5', "0..1"),
        ('"score": min(fast, ahead)', '"score": float("nan")', "finite"),
        ('"criteria": {', '"marks": {', "criteria"),
        ("trajectory.x_velocity", "trajectory.velocity_of_x", "velocity_of_x"),
        ("def judge", "import socket\ndef judge", "import"),
    ],
)
async def test_a_judge_that_breaks_its_contract_is_refused(stack: Stack, old: str, new: str, problem: str) -> None:
    source = RUNS_FAST.replace(old, new)
    assert source != RUNS_FAST
    reply = await stack.stub.Check(pb.CheckRequest(judge_source=source, environment=ENV), timeout=60)
    assert not reply.ok
    assert problem in " ".join(f"{each.message} {each.seen}" for each in reply.failures)


async def test_judgments_have_the_order_of_the_request_and_evidence(stack: Stack, tmp_path: Path) -> None:
    slow, fast = put(stack, tmp_path, "r/slow.npz", runner_at(1.0)), put(stack, tmp_path, "r/fast.npz", runner_at(6.0))
    request = pb.JudgeRequest(environment=ENV, rollouts=[slow, fast], judge_source=RUNS_FAST, pass_threshold=0.7)
    first, second = (await stack.stub.Judge(request, timeout=60)).rollouts
    assert (first.rollout, second.rollout) == (slow, fast)
    assert first.judgment.score == pytest.approx(0.25, abs=1e-6)
    assert not first.judgment.passed
    assert list(first.judgment.failure_tags) == ["fast"]
    assert "What is lacking: fast (0.25)" in first.judgment.diagnosis
    assert first.judgment.verdicts[0].evidence["mean_speed"] == pytest.approx(1.0, abs=1e-5)
    assert second.judgment.passed
    assert second.judgment.score == 1.0


async def test_a_judge_that_crashes_is_an_error_and_never_a_zero(stack: Stack, tmp_path: Path) -> None:
    keys = [put(stack, tmp_path, f"r/{speed}.npz", runner_at(float(speed))) for speed in range(5)]
    source = RUNS_FAST.replace("    way =", '    if 2.5 < speed < 3.5:\n        raise ValueError("too odd")\n    way =')
    request = pb.JudgeRequest(environment=ENV, rollouts=keys, judge_source=source, pass_threshold=0.7)
    error = await failure(stack.stub.Judge(request, timeout=60))
    assert isinstance(error, FailedPrecondition)
    assert error.reason == "JUDGE_FAILED"
    assert error.metadata["rollout"] == "r/3.npz"
    assert error.metadata["line"] == "5"
    assert "r/3.npz at line 5" in error.message
    assert "too odd" in error.message


async def test_bad_requests_are_refused_with_the_problem(stack: Stack, tmp_path: Path) -> None:
    key = put(stack, tmp_path, "r/a.npz", runner_at(1.0))

    async def fails(**changes: object) -> DressageError:
        values = {"environment": ENV, "rollouts": [key], "judge_source": RUNS_FAST, "pass_threshold": 0.7}
        return await failure(stack.stub.Judge(pb.JudgeRequest(**{**values, **changes}), timeout=60))

    missing = await fails(rollouts=[key, "r/none.npz"])
    assert isinstance(missing, NotFound)
    assert "r/none.npz" in missing.message
    unknown = await fails(environment="Unicycle-v0")
    assert isinstance(unknown, NotFound)
    assert "HalfCheetah-v5" in unknown.message
    other = await fails(environment="Hopper-v5")
    assert isinstance(other, InvalidArgument)
    assert "is of HalfCheetah-v5" in other.message
    stack.store.put("r/bad.npz", b"nonsense")
    assert (await fails(rollouts=["r/bad.npz"])).reason == "BAD_ROLLOUT"
    broken = await fails(judge_source="def judge(trajectory, np:")
    assert broken.reason == "JUDGE_FAILED"
    empty = await failure(stack.stub.Check(pb.CheckRequest(environment=ENV), timeout=60))
    assert isinstance(empty, InvalidArgument)


POLICY = "class Policy:\n    def reset(self): pass\n    def act(self, obs): return {}\n"
FEEDBACK = "class Feedback:\n    def summarize_trajectory(self, observations): return {}\n"


async def test_a_policy_passes_with_the_time_of_an_action(stack: Stack) -> None:
    source = POLICY.format("list(obs[:6])")
    reply = await stack.stub.Check(pb.CheckRequest(policy_source=source, environment=ENV), timeout=60)
    assert reply.ok and reply.style == "policy" and 0 < reply.act_microseconds < 10_000, list(reply.failures)
    source = FEEDBACK.format("f'{len(observations)} states'")
    reply = await stack.stub.Check(pb.CheckRequest(feedback_source=source, environment=ENV), timeout=60)
    assert reply.ok and reply.style == "feedback" and not reply.failures


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        (dict(policy_source=POLICY.format("0")), "action-shape"),
        (dict(policy_source="import os\n" + POLICY.format("list(obs[:6])")), "import"),
        (dict(policy_source=POLICY.format("[sum(range(10**6)) * 0.0] * 6"), act_seconds=1e-3), "time_budget"),
        (dict(feedback_source=FEEDBACK.format("7")), "return-type"),
    ],
)
async def test_a_bad_policy_fails_with_its_rule(stack: Stack, fields: dict[str, str | float], rule: str) -> None:
    reply = await stack.stub.Check(pb.CheckRequest(environment=ENV, **fields), timeout=60)
    assert not reply.ok and [failure.rule for failure in reply.failures] == [rule]
    assert (reply.failures[0].message and reply.failures[0].seen) or rule == "import"


async def test_a_judge_is_checked_on_episodes_of_full_length(stack: Stack) -> None:
    steps = "len(trajectory.time) - 1"
    source = RUNS_FAST.replace("    way =", f'    if {steps} > 900:\n        raise ValueError("too long")\n    way =')
    request = pb.CheckRequest(judge_source=source, environment=ENV)
    reply = await stack.stub.Check(request, timeout=60)
    assert not reply.ok and reply.failures[0].line == 5
    assert "too long" in reply.failures[0].seen and "full length episode of 1000 steps" in reply.failures[0].seen
    # The session's own limit counts: no episode of it is that long.
    request.episode_steps = 400
    assert (await stack.stub.Check(request, timeout=60)).ok


async def test_a_judge_is_checked_on_the_rollouts_that_it_failed_on(stack: Stack, tmp_path: Path) -> None:
    keys = [put(stack, tmp_path, f"r/{speed}.npz", runner_at(float(speed))) for speed in (1, 6)]
    source = RUNS_FAST.replace("    way =", '    if speed > 5:\n        raise ValueError("too odd")\n    way =')
    request = pb.CheckRequest(judge_source=source, environment=ENV)
    assert (await stack.stub.Check(request, timeout=60)).ok
    error = await failure(
        stack.stub.Judge(pb.JudgeRequest(environment=ENV, rollouts=keys, judge_source=source), timeout=60)
    )
    assert error.metadata["rollouts"] == "r/6.npz" and "mean x_velocity 6 m/s" in error.metadata["episode"]
    request.rollouts.append("r/6.npz")
    reply = await stack.stub.Check(request, timeout=60)
    assert not reply.ok and "too odd; on a rollout episode" in reply.failures[0].seen


async def test_a_trained_rollout_played_backwards_is_a_null_control(stack: Stack, tmp_path: Path) -> None:
    """A judge of the speed without its sign passes it both ways; the shipped episodes are too slow to show that."""
    fast, slow = (put(stack, tmp_path, f"r/{speed}.npz", runner_at(float(speed))) for speed in (6, 1))
    either_way = RUNS_FAST.replace("np.mean(trajectory.x_velocity)", "np.mean(abs(trajectory.x_velocity))").replace(
        "ahead = 1.0 if way > 1.0", "ahead = 1.0 if abs(way) > 1.0"
    )
    controls = ["motionless", "time_reversed"]
    request = pb.CheckRequest(judge_source=either_way, environment=ENV, null_controls=controls, pass_threshold=0.7)
    assert (await stack.stub.Check(request, timeout=60)).ok
    request.rollouts.extend([slow, fast])
    reply = await stack.stub.Check(request, timeout=60)
    assert [each.rule for each in reply.failures] == ["null-control"]
    assert "1.000 when it was played backwards" in reply.failures[0].message
    assert "x_velocity 6 m/s" in reply.failures[0].seen and "x_velocity -6 m/s" in reply.failures[0].seen
    assert reply.control_scores["time_reversed"] == 1.0
    request.judge_source = RUNS_FAST
    assert (await stack.stub.Check(request, timeout=60)).ok
    request.judge_source = either_way
    request.null_controls[:] = ["motionless"]
    assert (await stack.stub.Check(request, timeout=60)).ok
