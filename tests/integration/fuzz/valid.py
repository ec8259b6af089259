"""Valid requests of the methods with the largest messages, from which the fuzzing makes nearly valid ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from dressage.api.internal.v1 import agent_service_pb2 as agent
from dressage.api.internal.v1 import judge_service_pb2 as judge
from dressage.api.internal.v1 import renderer_service_pb2 as renderer
from dressage.api.v1 import benchmark_service_pb2 as benchmarks
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as sessions
from google.protobuf.message import Message

from tests.fakes.specs import filled_session

SOURCE = "def reward(context):\n    return context.info['x_velocity']\n"
_ROLLOUT = "sessions/fuzzed/iterations/1/assignments/train/members/m/rollouts/1_median.npz"


@cache
def valid_requests() -> Mapping[str, Sequence[Message]]:
    """Requests by the full name of their type."""
    specs = _specs()
    requests: list[Message] = []
    for spec in specs:
        requests += [sessions.CreateSessionRequest(spec=spec), sessions.EstimateSessionRequest(spec=spec)]
        case = benchmarks.BenchmarkCase(intent="run", environment=spec.environment)
        requests.append(benchmarks.CreateBenchmarkRequest(template=spec, cases=[case]))
    name = "sessions/fuzzed"
    requests += [
        sessions.SteerSessionRequest(name=name, note="faster"),
        sessions.ApproveSessionRequest(name=name, iteration=1),
        sessions.LabelRolloutRequest(rollout=_ROLLOUT, score=0.5),
        sessions.ReadRunLogRequest(name=f"{name}/runs/r1"),
        judge.CheckRequest(environment="HalfCheetah-v5", reward_source=SOURCE),
        judge.JudgeRequest(environment="CartPole-v1", judge_source=SOURCE, rollouts=[_ROLLOUT]),
        judge.ScoreRequest(environment="CartPole-v1", reward_source=SOURCE, rollouts=[_ROLLOUT]),
        judge.ReadRepliesRequest(environment="karel/Maze", replies=["def run():\n    move()\n"]),
        renderer.RenderRequest(trajectory=_ROLLOUT, video=f"{name}/videos/1.mp4", width=64, height=64, end=0.1),
        renderer.RenderFramesRequest(trajectory=_ROLLOUT, prefix=f"{name}/frames", max_frames=2, width=64, height=64),
    ]
    brief = agent.Brief(intent="run forward", environment="HalfCheetah-v5")
    for task in (
        agent.Task(key="a", model="template/v1", reward_author=agent.RewardAuthorTask(brief=brief)),
        agent.Task(key="b", model="template/v1", judge_author=agent.JudgeAuthorTask(brief=brief)),
        agent.Task(key="c", model="template/v1", elicitor=agent.ElicitorTask(brief=brief)),
    ):
        requests.append(agent.ConverseRequest(task=task))
    by_type: dict[str, list[Message]] = {}
    for request in requests:
        by_type.setdefault(request.DESCRIPTOR.full_name, []).append(request)
    return by_type


def _specs() -> list[v1.SessionSpec]:
    """A filled spec of each method of the API."""
    common = {"intent": "run forward", "model": "template/v1", "max_iterations": 1}
    return [
        filled_session(spec)
        for spec in (
            v1.SessionSpec(**common, environment="environments/HalfCheetah-v5", reward=v1.RewardSpec(seeds=1)),
            v1.SessionSpec(**common, environment="environments/CartPole-v1", parameters={}),
            v1.SessionSpec(**common, environment="environments/CartPole-v1", code={}),
            v1.SessionSpec(**common, environment="environments/karel/Maze", program={}),
        )
    ]
