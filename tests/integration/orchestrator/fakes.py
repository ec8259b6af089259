"""Scripted stand-ins for the services around the orchestrator, and a server that holds them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.internal.v1 import agent_service_pb2_grpc as agent_rpc
from dressage.api.internal.v1 import judge_service_pb2 as judge_pb
from dressage.api.internal.v1 import judge_service_pb2_grpc as judge_rpc
from dressage.api.internal.v1 import renderer_service_pb2 as renderer_pb
from dressage.api.internal.v1 import renderer_service_pb2_grpc as renderer_rpc
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.artifacts import ArtifactStore
from dressage.errors import FailedPrecondition, InvalidArgument
from dressage.serving.server import GrpcServer

Answer = Callable[[agent_pb.Task], agent_pb.TaskResult]

BAD, WEAK, GOOD = "# bad reward\n", "# weak reward\n", "# good reward\n"
JUDGE = "# a judge\n"


def author(task: agent_pb.Task) -> agent_pb.TaskResult:
    """The default script: a bad reward, repaired to a weak one, revised to a good one."""
    cost = v1.Cost(requests=1, input_tokens=100, output_tokens=10, dollars=0.01)
    result = agent_pb.TaskResult(model=task.model, cost=cost)
    role = task.WhichOneof("role")
    if role == "reward_author":
        repair = task.reward_author.HasField("repair")
        reasoning = "defined the term" if repair else "forward speed"
        result.reward.CopyFrom(agent_pb.RewardProposal(source=WEAK if repair else BAD, reasoning=reasoning))
    elif role == "judge_author":
        result.judge.CopyFrom(agent_pb.JudgeProposal(source=JUDGE, null_controls=["random"]))
    elif role == "reviser":
        revision = agent_pb.Revision(
            diagnosis="too slow", lesson="speed needs weight", planned_change="more weight", source=GOOD
        )
        result.revision.CopyFrom(revision)
    else:
        result.elicitor.criteria.add(title="speed", description="mean speed", category="gait", default_on=True)
    return result


class FakeAgent:
    """llm-agent: answers with a function, records tasks and results of tools."""

    def __init__(self, answer: Answer = author) -> None:
        self.answer = answer
        self.tasks: list[agent_pb.Task] = []
        self.tool_results: list[agent_pb.ToolResult] = []
        self.tools_to_call: list[tuple[str, dict[str, Any]]] = [
            ("get_scores", {}),
            ("get_iteration", {"number": 1}),
            ("get_iteration", {"number": 9}),
        ]
        self.delay = 0.0

    @property
    def keys(self) -> list[str]:
        return [task.key for task in self.tasks]

    async def Converse(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[agent_pb.ConverseResponse]:
        task = (await anext(requests)).task
        self.tasks.append(task)
        await asyncio.sleep(self.delay)
        if task.HasField("reviser"):
            for number, (name, arguments) in enumerate(self.tools_to_call):
                call = agent_pb.ToolCall(id=str(number), name=name)
                call.arguments.update(arguments)
                yield agent_pb.ConverseResponse(tool_call=call)
                self.tool_results.append((await anext(requests)).tool_result)
        yield agent_pb.ConverseResponse(result=self.answer(task))

    async def DescribeModel(self, request: Any, context: Any) -> agent_pb.DescribeModelResponse:
        good = request.model.startswith("test/")
        return agent_pb.DescribeModelResponse(
            model=request.model,
            language_model=True,
            configured=good,
            problem="" if good else "no OPENAI_API_KEY",
            supports_images=request.model == "test/eyes",
            input_dollars_per_million=1.0,
            output_dollars_per_million=10.0,
        )


class FakeJudge(judge_rpc.JudgeServiceServicer):
    """judge: a source that contains "bad" fails its check; a rollout's file contains its score."""

    def __init__(self, store: ArtifactStore) -> None:
        self.store = store
        self.checks: list[judge_pb.CheckRequest] = []
        self.judged: list[judge_pb.JudgeRequest] = []
        self.scored: list[judge_pb.ScoreRequest] = []
        self.sees = 100
        self.has_jax = True
        self.admit: Callable[[str], None] = lambda kind: None
        """Called with the name of each call; may refuse it."""

    async def Check(self, request: judge_pb.CheckRequest, context: Any) -> judge_pb.CheckResponse:
        self.admit("check")
        self.checks.append(request)
        if "bad" in getattr(request, request.WhichOneof("subject")):
            failure = ev.CheckFailure(rule="undeclared-term", line=3, message="term 'x' is not declared", seen="x")
            return judge_pb.CheckResponse(ok=False, failures=[failure])
        if "# either way" in request.judge_source and request.rollouts and "time_reversed" in request.null_controls:
            failure = ev.CheckFailure(rule="null-control", message="it passes backwards", seen="score 0.9")
            return judge_pb.CheckResponse(ok=False, failures=[failure])
        answer = judge_pb.CheckResponse(ok=True, terms={"speed": "m/s"}, latex="v")
        if request.traceable and not self.has_jax:
            answer.obstacles.add(rule="traceable", message="it is not known whether the reward can be compiled")
        elif request.traceable:
            answer.traceable = "# looks at a value" not in request.reward_source
            if not answer.traceable:
                answer.obstacles.add(
                    rule="traceable", line=5, message="values decide an if; use np.where", seen="v > 0"
                )
        return answer

    async def Judge(self, request: judge_pb.JudgeRequest, context: Any) -> judge_pb.JudgeResponse:
        self.admit("judge")
        self.judged.append(request)
        answer = judge_pb.JudgeResponse()
        if "# crashes" in request.judge_source:
            facts = {"rollouts": ",".join(request.rollouts), "rule": "exception", "line": "7", "seen": "IndexError"}
            raise FailedPrecondition(
                "the judge failed", reason="JUDGE_FAILED", metadata={**facts, "episode": "it rests"}
            )
        for key in request.rollouts:
            score = float(self.store.get(key))
            if not request.judge_source:
                self._judge_by_video(request, answer.rollouts.add(rollout=key), score)
                continue
            judgment = v1.Judgment(score=score, diagnosis="" if score > 0.5 else "too slow")
            judgment.criteria.add(name="speed", score=score)
            judgment.verdicts.add(kind=v1.JUDGE_KIND_CODE, score=score, votes=1, evidence={"speed": 10 * score})
            judgment.judged_by, judgment.rollouts = "code", 1
            entry = answer.rollouts.add(rollout=key, judgment=judgment)
            if key in request.video.rollouts:
                self._judge_by_video(request, entry, score)
        return answer

    def _judge_by_video(self, request: judge_pb.JudgeRequest, entry: judge_pb.RolloutJudgment, score: float) -> None:
        """The first `sees` rollouts of a request get a verdict by video, the others a notice."""
        if list(request.video.rollouts).index(entry.rollout) >= self.sees:
            entry.notices.append("the frames decided no visual criterion")
            return
        code = bool(entry.judgment.verdicts)
        entry.judgment.score, entry.judgment.passed = score, score >= request.pass_threshold
        entry.judgment.verdicts.add(kind=v1.JUDGE_KIND_VIDEO, score=score, votes=3, comment="runs: met, met, unknown")
        entry.judgment.judged_by, entry.judgment.rollouts = "code and video" if code else "video", 1
        entry.judgment.video_rollouts = 1

    async def Score(self, request: judge_pb.ScoreRequest, context: Any) -> judge_pb.ScoreResponse:
        """A reward that contains "backwards" is high for low judgments; others are high for high judgments."""
        self.scored.append(request)
        sign = -1.0 if "backwards" in request.reward_source else 1.0
        answer = judge_pb.ScoreResponse()
        for key in request.rollouts:
            entry = answer.scored.add(rollout=key, steps=10, description="an episode")
            setattr(entry, "return", sign * float(self.store.get(key)))
        for kind in ("random", "motionless"):
            entry = answer.scored.add(control=kind, steps=10, judge_score=0.05)
            setattr(entry, "return", sign * 0.05)
        return answer


class FakeRenderer(renderer_rpc.RendererServiceServicer):
    """renderer: writes a few bytes; with ``broken`` it fails."""

    def __init__(self, store: ArtifactStore) -> None:
        self.store = store
        self.broken = False
        self.posed: list[str] = []
        self.rendered: list[str] = []

    async def Render(self, request: renderer_pb.RenderRequest, context: Any) -> renderer_pb.RenderResponse:
        if self.broken:
            raise FailedPrecondition("no EGL here", reason="NO_EGL")
        if not self.store.exists(request.trajectory):
            raise InvalidArgument(field="trajectory", value=request.trajectory, expected="a stored trajectory")
        self.rendered.append(request.trajectory)
        self.store.put(request.video, b"mp4")
        return renderer_pb.RenderResponse(video=request.video, frames=1, duration=0.1)

    async def RecordPoses(
        self, request: renderer_pb.RecordPosesRequest, context: Any
    ) -> renderer_pb.RecordPosesResponse:
        self.posed.append(request.trajectory)
        self.store.put(request.poses, b"poses")
        return renderer_pb.RecordPosesResponse(poses=request.poses, states=1)


class Neighbours:
    """The three services on one loopback server."""

    def __init__(self, store: ArtifactStore, answer: Answer = author) -> None:
        self.agent, self.judge, self.renderer = FakeAgent(answer), FakeJudge(store), FakeRenderer(store)
        self.address = ""
        self._server: GrpcServer | None = None

    async def start(self) -> None:
        server = GrpcServer(service_name="fakes", address="127.0.0.1:0", grace_seconds=0.2)
        server.add(agent_rpc.add_AgentServiceServicer_to_server, self.agent, "dressage.internal.v1.AgentService")
        server.add(judge_rpc.add_JudgeServiceServicer_to_server, self.judge, "dressage.internal.v1.JudgeService")
        server.add(
            renderer_rpc.add_RendererServiceServicer_to_server, self.renderer, "dressage.internal.v1.RendererService"
        )
        self.address = await server.start()
        self._server = server

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop()


async def watch(stub: Any, name: str, *, token: str = "", seconds: float = 60.0) -> list[ev.Event]:
    """All events of a session until it ends."""
    from dressage.api.v1 import session_service_pb2 as pb

    request = pb.WatchSessionRequest(name=name, resume_token=token)
    return [answer.event async for answer in stub.WatchSession(request, timeout=seconds)]


def code(error: grpc.RpcError) -> str:
    """The name of a failed call's code."""
    return str(error.code().name)
