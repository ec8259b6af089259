"""A public API that answers from memory, on a real gRPC server: for tests of the client and the command line.

It records every request, and a test queues failures for a method by `fail_next`; failures carry a `google.rpc.Status`
as the real servers' do. A session created here lives through a scripted list of events.
"""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
from dressage.api.v1 import (
    artifact_service_pb2 as artifacts_pb,
)
from dressage.api.v1 import (
    artifact_service_pb2_grpc as artifacts_grpc,
)
from dressage.api.v1 import (
    benchmark_service_pb2 as benchmarks_pb,
)
from dressage.api.v1 import (
    benchmark_service_pb2_grpc as benchmarks_grpc,
)
from dressage.api.v1 import (
    environment_service_pb2 as environments_pb,
)
from dressage.api.v1 import (
    environment_service_pb2_grpc as environments_grpc,
)
from dressage.api.v1 import (
    event_pb2,
    session_pb2,
)
from dressage.api.v1 import (
    intent_service_pb2 as intents_pb,
)
from dressage.api.v1 import (
    intent_service_pb2_grpc as intents_grpc,
)
from dressage.api.v1 import (
    session_service_pb2 as sessions_pb,
)
from dressage.api.v1 import (
    session_service_pb2_grpc as sessions_grpc,
)
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc import error_details_pb2, status_pb2


@dataclass(frozen=True)
class Fault:
    """A status to answer with instead of a result."""

    code: grpc.StatusCode
    message: str = "out of order"
    reason: str = ""
    violations: tuple[tuple[str, str], ...] = ()
    hang_seconds: float = 0.0
    after_events: int = -1  # for streams: how many messages come first

    def trailers(self) -> tuple[tuple[str, bytes], ...]:
        status = status_pb2.Status(code=self.code.value[0], message=self.message)
        if self.reason:
            status.details.append(_packed(error_details_pb2.ErrorInfo(reason=self.reason, domain="dressage")))
        if self.violations:
            bad = error_details_pb2.BadRequest()
            for name, description in self.violations:
                bad.field_violations.add(field=name, description=description)
            status.details.append(_packed(bad))
        return (("grpc-status-details-bin", status.SerializeToString()),) if status.details else ()


def _packed(message: Any) -> AnyMessage:
    packed = AnyMessage()
    packed.Pack(message)
    return packed


@dataclass
class FakeOrchestrator(
    sessions_grpc.SessionServiceServicer,
    environments_grpc.EnvironmentServiceServicer,
    intents_grpc.IntentServiceServicer,
    artifacts_grpc.ArtifactServiceServicer,
    benchmarks_grpc.BenchmarkServiceServicer,
):
    """Answers from its attributes; what a test puts there is what clients see."""

    sessions: dict[str, session_pb2.Session] = field(default_factory=dict)
    events: dict[str, list[event_pb2.Event]] = field(default_factory=dict)
    environments: list[environments_pb.Environment] = field(default_factory=list)
    artifacts: dict[str, bytes] = field(default_factory=dict)
    script: list[event_pb2.Event] = field(default_factory=list)
    ended: session_pb2.Session = field(default_factory=session_pb2.Session)
    estimate: sessions_pb.EstimateSessionResponse = field(default_factory=sessions_pb.EstimateSessionResponse)
    page_size: int = 2
    lost_bytes: int = 0
    repeated_events: int = 0
    hold_stream: asyncio.Event | None = None
    requests: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))
    metadata: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    faults: dict[str, deque[Fault]] = field(default_factory=lambda: defaultdict(deque))

    def fail_next(self, method: str, *faults: Fault) -> None:
        """Queues faults for the next calls of a method."""
        self.faults[method].extend(faults)

    async def _record(self, method: str, request: Any, context: Any) -> Fault | None:
        """Records a call; raises its queued fault, or returns it if it is to come later in a stream."""
        copy = type(request)()
        copy.CopyFrom(request)
        self.requests[method].append(copy)
        self.metadata[method].append(dict(context.invocation_metadata()))
        if not self.faults[method]:
            return None
        fault = self.faults[method].popleft()
        if fault.after_events >= 0:
            return fault
        await asyncio.sleep(fault.hang_seconds)
        await context.abort(fault.code, fault.message, fault.trailers())
        return None

    # -- sessions

    async def CreateSession(self, request, context):
        await self._record("CreateSession", request, context)
        name = f"sessions/{request.session_id or f's{len(self.sessions) + 1}'}"
        session = session_pb2.Session(name=name, spec=request.spec, state=session_pb2.SESSION_STATE_RUNNING)
        self.sessions[name] = session
        self.events[name] = []
        for number, event in enumerate(self.script, start=1):
            copy = event_pb2.Event()
            copy.CopyFrom(event)
            copy.sequence, copy.session = number, name
            self.events[name].append(copy)
        return session

    async def GetSession(self, request, context):
        await self._record("GetSession", request, context)
        return await self._session(request.name, context)

    async def _session(self, name, context):
        if name not in self.sessions:
            fault = Fault(grpc.StatusCode.NOT_FOUND, f"{name} does not exist", "SESSION_NOT_FOUND")
            await context.abort(fault.code, fault.message, fault.trailers())
        return self.sessions[name]

    async def ListSessions(self, request, context):
        await self._record("ListSessions", request, context)
        names = list(self.sessions)
        first = int(request.page_token or 0)
        page = [self.sessions[name] for name in names[first : first + self.page_size]]
        more = str(first + self.page_size) if first + self.page_size < len(names) else ""
        return sessions_pb.ListSessionsResponse(sessions=page, next_page_token=more)

    async def CancelSession(self, request, context):
        await self._record("CancelSession", request, context)
        session = await self._session(request.name, context)
        if session.state in (session_pb2.SESSION_STATE_SUCCEEDED, session_pb2.SESSION_STATE_EXHAUSTED):
            return session
        session.state = session_pb2.SESSION_STATE_CANCELLED
        session.state_reason = request.reason
        if self.hold_stream is not None:
            self.hold_stream.set()
        return session

    async def ResumeSession(self, request, context):
        await self._record("ResumeSession", request, context)
        session = await self._session(request.name, context)
        session.state = session_pb2.SESSION_STATE_RUNNING
        return session

    async def SteerSession(self, request, context):
        await self._record("SteerSession", request, context)
        await self._session(request.name, context)
        return sessions_pb.SteerSessionResponse()

    async def DeleteSession(self, request, context):
        await self._record("DeleteSession", request, context)
        session = await self._session(request.name, context)
        session.delete_time.FromSeconds(1_700_000_000)
        return session

    async def UndeleteSession(self, request, context):
        await self._record("UndeleteSession", request, context)
        session = await self._session(request.name, context)
        session.ClearField("delete_time")
        return session

    async def WatchSession(self, request, context):
        fault = await self._record("WatchSession", request, context)
        await self._session(request.name, context)
        first = max(0, int(request.resume_token or 0) - self.repeated_events)
        for sent, event in enumerate(self.events[request.name][first:]):
            if fault is not None and sent == fault.after_events:
                await context.abort(fault.code, fault.message, fault.trailers())
            yield sessions_pb.WatchSessionResponse(event=event, resume_token=str(event.sequence))
        if fault is not None:
            await context.abort(fault.code, fault.message, fault.trailers())
        if self.hold_stream is not None:
            await self.hold_stream.wait()
        session = self.sessions[request.name]
        if session.state == session_pb2.SESSION_STATE_RUNNING and self.ended.state:
            state_name, spec = session.name, session.spec
            ended = session_pb2.Session()
            ended.CopyFrom(self.ended)
            ended.name = state_name
            ended.spec.CopyFrom(spec)
            self.sessions[request.name] = ended

    async def GetLineage(self, request, context):
        await self._record("GetLineage", request, context)
        await self._session(request.name, context)
        root = sessions_pb.LineageNode(
            iteration=f"{request.name}/iterations/1", score=0.5, lesson="effort was too dear"
        )
        child = sessions_pb.LineageNode(
            iteration=f"{request.name}/iterations/2", parent=root.iteration, score=0.9, best=True
        )
        return sessions_pb.Lineage(nodes=[root, child])

    async def GetIteration(self, request, context):
        await self._record("GetIteration", request, context)
        iteration = session_pb2.Iteration(name=request.name)
        iteration.reward.source = "def reward(…): …"
        return iteration

    async def ListIterations(self, request, context):
        await self._record("ListIterations", request, context)
        first = session_pb2.Iteration(name=f"{request.parent}/iterations/1", number=1, author="template/v1")
        first.reward.latex = "r = v_x"
        return sessions_pb.ListIterationsResponse(iterations=[first])

    async def ListRuns(self, request, context):
        await self._record("ListRuns", request, context)
        return sessions_pb.ListRunsResponse()

    async def ListAssignments(self, request, context):
        await self._record("ListAssignments", request, context)
        return sessions_pb.ListAssignmentsResponse()

    async def EstimateSession(self, request, context):
        await self._record("EstimateSession", request, context)
        answer = sessions_pb.EstimateSessionResponse()
        answer.CopyFrom(self.estimate)
        if not answer.HasField("spec"):
            answer.spec.CopyFrom(request.spec)
        return answer

    async def LabelRollout(self, request, context):
        await self._record("LabelRollout", request, context)
        return sessions_pb.LabelRolloutResponse(judgment=session_pb2.Judgment(score=request.score))

    # -- environments and intents

    async def GetEnvironment(self, request, context):
        await self._record("GetEnvironment", request, context)
        for environment in self.environments:
            if environment.name == request.name:
                return environment
        await context.abort(grpc.StatusCode.NOT_FOUND, f"{request.name} does not exist")
        return None

    async def ListEnvironments(self, request, context):
        await self._record("ListEnvironments", request, context)
        return environments_pb.ListEnvironmentsResponse(environments=self.environments)

    async def Elicit(self, request, context):
        await self._record("Elicit", request, context)
        return intents_pb.ElicitResponse(questions=["How fast?"])

    # -- artifacts

    async def ListArtifacts(self, request, context):
        await self._record("ListArtifacts", request, context)
        keys = sorted(key for key in self.artifacts if key.startswith(request.prefix))
        first = int(request.page_token or 0)
        page = [
            artifacts_pb.Artifact(key=key, size=len(self.artifacts[key]))
            for key in keys[first : first + self.page_size]
        ]
        more = str(first + self.page_size) if first + self.page_size < len(keys) else ""
        return artifacts_pb.ListArtifactsResponse(artifacts=page, next_page_token=more)

    async def GetArtifact(self, request, context):
        await self._record("GetArtifact", request, context)
        if request.key not in self.artifacts:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"{request.key} does not exist")
        return artifacts_pb.Artifact(key=request.key, size=len(self.artifacts[request.key]))

    async def GetRolloutVideo(self, request, context):
        await self._record("GetRolloutVideo", request, context)
        key = request.rollout.replace("/rollouts/", "/videos/").replace(".npz", ".mp4")
        return artifacts_pb.Artifact(key=key, size=len(self.artifacts[key]))

    async def ReadArtifact(self, request, context):
        fault = await self._record("ReadArtifact", request, context)
        whole = self.artifacts[request.key]
        data = whole[request.offset : len(whole) - self.lost_bytes]
        for sent, first in enumerate(range(0, len(data), 1000)):
            if fault is not None and sent == fault.after_events:
                await context.abort(fault.code, fault.message, fault.trailers())
            yield artifacts_pb.ReadArtifactResponse(data=data[first : first + 1000])

    # -- benchmarks

    async def CreateBenchmark(self, request, context):
        await self._record("CreateBenchmark", request, context)
        return benchmarks_pb.Benchmark(name="benchmarks/b1", cases=request.cases, template=request.template)

    async def WatchBenchmark(self, request, context):
        await self._record("WatchBenchmark", request, context)
        for completed in range(3):
            yield benchmarks_pb.WatchBenchmarkResponse(
                benchmark=benchmarks_pb.Benchmark(name=request.name, completed=completed)
            )


@asynccontextmanager
async def serving(fake: FakeOrchestrator, *, port: int = 0) -> AsyncIterator[str]:
    """Serves a fake on loopback; yields its address."""
    server = grpc.aio.server()
    sessions_grpc.add_SessionServiceServicer_to_server(fake, server)
    environments_grpc.add_EnvironmentServiceServicer_to_server(fake, server)
    intents_grpc.add_IntentServiceServicer_to_server(fake, server)
    artifacts_grpc.add_ArtifactServiceServicer_to_server(fake, server)
    benchmarks_grpc.add_BenchmarkServiceServicer_to_server(fake, server)
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    try:
        yield f"127.0.0.1:{bound}"
    finally:
        await server.stop(0)


class Background:
    """A fake server on a loop in another thread, for blocking callers."""

    def __init__(self, fake: FakeOrchestrator) -> None:
        self.fake = fake
        self.address = ""
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with serving(self.fake) as self.address:
            self._ready.set()
            await self._stop.wait()

    def __enter__(self) -> Background:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)
