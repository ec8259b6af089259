"""The asyncio client: a method for each RPC, and methods that combine RPCs (pages, watching, downloads).

Every write has a request_id, made once for each method call, so that a repeated attempt changes nothing. Lists are
asynchronous iterators that fetch page after page as they are consumed.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from dressage import errors
from dressage.api.v1 import artifact_service_pb2 as artifacts_pb
from dressage.api.v1 import artifact_service_pb2_grpc as artifacts_grpc
from dressage.api.v1 import benchmark_service_pb2 as benchmarks_pb
from dressage.api.v1 import benchmark_service_pb2_grpc as benchmarks_grpc
from dressage.api.v1 import environment_service_pb2 as environments_pb
from dressage.api.v1 import environment_service_pb2_grpc as environments_grpc
from dressage.api.v1 import intent_service_pb2 as intents_pb
from dressage.api.v1 import intent_service_pb2_grpc as intents_grpc
from dressage.api.v1 import maintenance_service_pb2 as maintenance_pb
from dressage.api.v1 import maintenance_service_pb2_grpc as maintenance_grpc
from dressage.api.v1 import session_pb2 as session_pb
from dressage.api.v1 import session_service_pb2 as sessions_pb
from dressage.api.v1 import session_service_pb2_grpc as sessions_grpc
from dressage.client import names
from dressage.client.calls import CHANNEL_OPTIONS, Caller, CallPolicy, some_request_id
from dressage.client.discovery import find_local_server, local_token
from dressage.client.downloads import relative_path, write_whole
from dressage.client.endpoints import Endpoint, Trust
from dressage.places import default_data_dir

ENDED = (
    session_pb.SESSION_STATE_SUCCEEDED,
    session_pb.SESSION_STATE_EXHAUSTED,
    session_pb.SESSION_STATE_FAILED,
    session_pb.SESSION_STATE_CANCELLED,
)


class AsyncClient:
    """A client of the public API; make one with `connect`, use it in one event loop, and close it."""

    def __init__(self, caller: Caller, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        """The server, as `connect` found it."""
        self._caller = caller
        channel: Any = caller.channel  # the generated stubs are typed for either kind of channel
        self._sessions: Any = sessions_grpc.SessionServiceStub(channel)
        self._environments: Any = environments_grpc.EnvironmentServiceStub(channel)
        self._intents: Any = intents_grpc.IntentServiceStub(channel)
        self._artifacts: Any = artifacts_grpc.ArtifactServiceStub(channel)
        self._benchmarks: Any = benchmarks_grpc.BenchmarkServiceStub(channel)
        self._maintenance: Any = maintenance_grpc.MaintenanceServiceStub(channel)

    @classmethod
    def connect(
        cls,
        address: str | None = None,
        token: str | None = None,
        *,
        trust: Trust | None = None,
        policy: CallPolicy | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> Self:
        """A client for a server; nothing is sent before the first call.

        :param address: `host:port` or `https://host:port`; by default `$DRESSAGE_ADDRESS`, else the server that runs
            on the default data folder of this machine.
        :param token: bearer token; by default that of the server that runs on the default data folder, or
            `$DRESSAGE_TOKEN`.
        :param trust: CA certificates, and whether a token may be sent in clear to another machine; by default what
            `$DRESSAGE_CA_FILE` and `$DRESSAGE_INSECURE` state.
        :raises InvalidArgument: if the address is malformed, or the token would be sent in clear to another machine.
        :raises FailedPrecondition: if no address is given and no server runs on this machine.
        """
        address = address or environ.get("DRESSAGE_ADDRESS")
        if not address:
            local = find_local_server(default_data_dir(environ))
            if local is None:
                raise errors.FailedPrecondition(
                    "no server: give an address, set DRESSAGE_ADDRESS, or start one with `dressage serve`",
                    reason="NO_SERVER",
                )
            address, token = f"http://{local.address}", token or local.token
        token = token or environ.get("DRESSAGE_TOKEN")
        if not token:
            token = local_token(address, default_data_dir(environ))
        endpoint = Endpoint.parse(address, token, trust or Trust.from_environment(environ))
        metadata = (("authorization", f"Bearer {token}"),) if token else ()
        channel = endpoint.open(CHANNEL_OPTIONS)
        caller = Caller(channel=channel, address=endpoint.address, metadata=metadata, policy=policy or CallPolicy())
        return cls(caller, endpoint)

    @property
    def address(self) -> str:
        """`host:port` of the server."""
        return self._caller.address

    async def close(self) -> None:
        """Closes the connection; calls under way end with an error."""
        await self._caller.channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- sessions ---------------------------------------------------------------------------------------------

    async def create_session(
        self, spec: session_pb.SessionSpec, *, session_id: str = "", request_id: str | None = None
    ) -> session_pb.Session:
        """Starts a session; its environment may be given by its id alone."""
        request = sessions_pb.CreateSessionRequest(
            spec=names.with_full_names(spec), session_id=session_id, request_id=some_request_id(request_id)
        )
        session: session_pb.Session = await self._caller.unary(self._sessions.CreateSession, request, patient=True)
        return session

    async def estimate_session(self, spec: session_pb.SessionSpec) -> sessions_pb.EstimateSessionResponse:
        """Estimates what a session would spend, without starting it."""
        request = sessions_pb.EstimateSessionRequest(spec=names.with_full_names(spec))
        response: sessions_pb.EstimateSessionResponse = await self._caller.unary(
            self._sessions.EstimateSession, request, patient=True
        )
        return response

    async def get_session(self, session: str) -> session_pb.Session:
        """One session."""
        request = sessions_pb.GetSessionRequest(name=names.session_name(session))
        answer: session_pb.Session = await self._caller.unary(self._sessions.GetSession, request)
        return answer

    async def list_sessions(
        self,
        *,
        state: session_pb.SessionState.ValueType = session_pb.SESSION_STATE_UNSPECIFIED,
        show_deleted: bool = False,
        page_size: int = 0,
    ) -> AsyncIterator[session_pb.Session]:
        """Sessions, newest first, without sources; `get_session` returns all fields."""
        request = sessions_pb.ListSessionsRequest(state=state, show_deleted=show_deleted, page_size=page_size)
        async for page in self._pages(self._sessions.ListSessions, request):
            for session in page.sessions:
                yield session

    async def cancel_session(self, session: str, *, reason: str = "") -> session_pb.Session:
        """Ends a session; what it has so far stays."""
        request = sessions_pb.CancelSessionRequest(name=names.session_name(session), reason=reason)
        answer: session_pb.Session = await self._caller.unary(self._sessions.CancelSession, request)
        return answer

    async def resume_session(
        self,
        session: str,
        *,
        additional_iterations: int = 0,
        budget: session_pb.Budget | None = None,
        request_id: str | None = None,
    ) -> session_pb.Session:
        """Takes an ended session up again.

        :param budget: new bounds, in place of the old ones of the kinds that are set.
        """
        request = sessions_pb.ResumeSessionRequest(
            name=names.session_name(session),
            additional_iterations=additional_iterations,
            budget=budget,
            request_id=some_request_id(request_id),
        )
        answer: session_pb.Session = await self._caller.unary(self._sessions.ResumeSession, request)
        return answer

    async def steer_session(
        self,
        session: str,
        note: str = "",
        *,
        proposal_source: str = "",
        criteria: Sequence[session_pb.IntentCriterion] = (),
        rebase_to: int = 0,
        from_parent: session_pb.FromParent.ValueType = session_pb.FROM_PARENT_UNSPECIFIED,
        request_id: str | None = None,
    ) -> None:
        """Steers the next iteration; at least one argument must be given.

        :param note: a direction that the next revision must follow.
        :param proposal_source: a proposal that the next iteration evaluates; it replaces one that waits for approval.
        :param criteria: in place of the session's.
        :param rebase_to: number of the iteration that the next revision starts from.
        :param from_parent: whether the next training continues from the policies of the iteration that it revises.
        """
        request = sessions_pb.SteerSessionRequest(
            name=names.session_name(session),
            note=note,
            proposal_source=proposal_source,
            criteria=criteria,
            rebase_to=rebase_to,
            from_parent=from_parent,
            request_id=some_request_id(request_id),
        )
        await self._caller.unary(self._sessions.SteerSession, request)

    async def approve_session(
        self, session: str, *, iteration: int = 0, note: str = "", request_id: str | None = None
    ) -> session_pb.Session:
        """Lets the proposal that waits for approval be trained.

        :param iteration: the one that is meant; 0: whichever waits.
        """
        request = sessions_pb.ApproveSessionRequest(
            name=names.session_name(session), iteration=iteration, note=note, request_id=some_request_id(request_id)
        )
        answer: session_pb.Session = await self._caller.unary(self._sessions.ApproveSession, request)
        return answer

    async def delete_session(self, session: str, *, force: bool = False, etag: str = "") -> session_pb.Session:
        """Marks an ended session as deleted; with force, cancels it first."""
        request = sessions_pb.DeleteSessionRequest(name=names.session_name(session), force=force, etag=etag)
        answer: session_pb.Session = await self._caller.unary(self._sessions.DeleteSession, request, repeatable=False)
        return answer

    async def undelete_session(self, session: str) -> session_pb.Session:
        """Takes a deletion back."""
        request = sessions_pb.UndeleteSessionRequest(name=names.session_name(session))
        answer: session_pb.Session = await self._caller.unary(self._sessions.UndeleteSession, request, repeatable=False)
        return answer

    async def watch_session(
        self, session: str, *, resume_token: str = ""
    ) -> AsyncIterator[sessions_pb.WatchSessionResponse]:
        """A session's events, recorded and live, until it ends; each exactly once and in order.

        While the session waits in the queue, responses with its place come between them; they have no event.

        A lost connection is made again where the stream was. A stream that ends while the session has not (a server
        that shuts down) counts as lost.

        :param resume_token: from an earlier response: only what came after it.
        :raises Unavailable: if the server stays away.
        """
        name, token, sequence, quiet = names.session_name(session), resume_token, 0, 0

        def request() -> sessions_pb.WatchSessionRequest:
            return sessions_pb.WatchSessionRequest(name=name, resume_token=token)

        while True:
            stream = self._caller.renewed_stream(self._sessions.WatchSession, request)
            quiet += 1
            async for response in stream:
                token = response.resume_token or token
                if response.HasField("queue"):
                    quiet = 0
                    yield response
                elif response.event.sequence > sequence:  # a server may repeat itself around a reconnection
                    sequence, quiet = response.event.sequence, 0
                    yield response
            if (await self.get_session(name)).state in ENDED:
                return
            if quiet > self._caller.policy.watch_reconnects:
                raise errors.Unavailable(f"{name}: the server ends the event stream though the session has not ended")
            await self._caller.sleep(self._caller.policy.backoff(quiet + 1, self._caller.jitter()))

    async def wait_session(self, session: str) -> session_pb.Session:
        """The session once it has ended."""
        async for _ in self.watch_session(session):
            pass
        return await self.get_session(session)

    async def get_iteration(self, name: str) -> session_pb.Iteration:
        """One iteration, by its full name."""
        request = sessions_pb.GetIterationRequest(name=name)
        iteration: session_pb.Iteration = await self._caller.unary(self._sessions.GetIteration, request)
        return iteration

    async def list_iterations(self, session: str) -> AsyncIterator[session_pb.Iteration]:
        """Iterations of a session, in order."""
        request = sessions_pb.ListIterationsRequest(parent=names.session_name(session))
        async for page in self._pages(self._sessions.ListIterations, request):
            for iteration in page.iterations:
                yield iteration

    async def get_run(self, name: str) -> session_pb.Run:
        """One run, by its full name."""
        run: session_pb.Run = await self._caller.unary(self._sessions.GetRun, sessions_pb.GetRunRequest(name=name))
        return run

    async def list_runs(self, session: str) -> AsyncIterator[session_pb.Run]:
        """Runs of a session, the leases of its trainers, oldest first."""
        request = sessions_pb.ListRunsRequest(parent=names.session_name(session))
        async for page in self._pages(self._sessions.ListRuns, request):
            for run in page.runs:
                yield run

    async def list_pools(self) -> list[sessions_pb.Pool]:
        """The pools of trainers with their live runs, the default pool first."""
        response: sessions_pb.ListPoolsResponse = await self._caller.unary(
            self._sessions.ListPools, sessions_pb.ListPoolsRequest()
        )
        return list(response.pools)

    async def get_assignment(self, name: str) -> session_pb.Assignment:
        """One assignment with its members and candidates, by its full name."""
        request = sessions_pb.GetAssignmentRequest(name=name)
        assignment: session_pb.Assignment = await self._caller.unary(self._sessions.GetAssignment, request)
        return assignment

    async def list_assignments(self, parent: str) -> AsyncIterator[session_pb.Assignment]:
        """Assignments with their members and without candidates, oldest first.

        :param parent: a session, or one of its iterations as `sessions/{s}/iterations/{i}`.
        """
        if "/iterations/" not in parent:
            parent = f"{names.session_name(parent)}/iterations/-"
        request = sessions_pb.ListAssignmentsRequest(parent=parent)
        async for page in self._pages(self._sessions.ListAssignments, request):
            for assignment in page.assignments:
                yield assignment

    async def read_run_log(self, name: str, *, tail_bytes: int = 0) -> sessions_pb.ReadRunLogResponse:
        """The end of the log of a run's trainers.

        :param tail_bytes: at most so many bytes; 0: the server's default.
        :raises NotFound: if there is no such run, or no log of it is kept.
        """
        request = sessions_pb.ReadRunLogRequest(name=name, tail_bytes=tail_bytes)
        answer: sessions_pb.ReadRunLogResponse = await self._caller.unary(self._sessions.ReadRunLog, request)
        return answer

    async def get_lineage(self, session: str) -> sessions_pb.Lineage:
        """The tree of iterations with scores and lessons."""
        request = sessions_pb.GetLineageRequest(name=names.session_name(session))
        lineage: sessions_pb.Lineage = await self._caller.unary(self._sessions.GetLineage, request)
        return lineage

    async def label_rollout(
        self, rollout: str, score: float, *, comment: str = "", request_id: str | None = None
    ) -> session_pb.Judgment:
        """Records a person's score (0..1) for a rollout; returns its judgment with that verdict in it.

        How all labels agree with the judges' scores is the session's ``label_agreement``.
        """
        request = sessions_pb.LabelRolloutRequest(
            rollout=rollout, score=score, comment=comment, request_id=some_request_id(request_id)
        )
        response: sessions_pb.LabelRolloutResponse = await self._caller.unary(self._sessions.LabelRollout, request)
        return response.judgment

    # -- environments and intents -----------------------------------------------------------------------------

    async def get_environment(self, environment: str) -> environments_pb.Environment:
        """One environment card."""
        request = environments_pb.GetEnvironmentRequest(name=names.environment_name(environment))
        card: environments_pb.Environment = await self._caller.unary(self._environments.GetEnvironment, request)
        return card

    async def list_environments(self) -> AsyncIterator[environments_pb.Environment]:
        """Environment cards, by name."""
        request = environments_pb.ListEnvironmentsRequest()
        async for page in self._pages(self._environments.ListEnvironments, request):
            for environment in page.environments:
                yield environment

    async def elicit(self, intent: str, environment: str, *, model: str = "") -> intents_pb.ElicitResponse:
        """Criteria for an intent, and what it leaves open."""
        request = intents_pb.ElicitRequest(intent=intent, environment=names.environment_name(environment), model=model)
        response: intents_pb.ElicitResponse = await self._caller.unary(self._intents.Elicit, request, slow=True)
        return response

    # -- artifacts --------------------------------------------------------------------------------------------

    async def list_artifacts(self, prefix: str) -> AsyncIterator[artifacts_pb.Artifact]:
        """Artifacts whose keys begin with a prefix, by key."""
        async for page in self._pages(self._artifacts.ListArtifacts, artifacts_pb.ListArtifactsRequest(prefix=prefix)):
            for artifact in page.artifacts:
                yield artifact

    async def get_artifact(self, key: str) -> artifacts_pb.Artifact:
        """One artifact's facts."""
        request = artifacts_pb.GetArtifactRequest(key=key)
        artifact: artifacts_pb.Artifact = await self._caller.unary(self._artifacts.GetArtifact, request)
        return artifact

    async def get_rollout_video(self, rollout: str) -> artifacts_pb.Artifact:
        """The video of a recorded rollout, which the first call renders."""
        request = artifacts_pb.GetRolloutVideoRequest(rollout=rollout)
        artifact: artifacts_pb.Artifact = await self._caller.unary(self._artifacts.GetRolloutVideo, request, slow=True)
        return artifact

    async def read_artifact(self, key: str, *, offset: int = 0) -> AsyncIterator[bytes]:
        """An artifact's bytes in chunks; a lost connection is made again at the byte where it was."""
        position = offset
        stream = self._caller.renewed_stream(
            self._artifacts.ReadArtifact, lambda: artifacts_pb.ReadArtifactRequest(key=key, offset=position)
        )
        async for response in stream:
            position += len(response.data)
            yield response.data

    async def download_artifacts(self, prefix: str, folder: str | Path) -> list[Path]:
        """Downloads an artifact, or all below a prefix, into a folder; returns the files written.

        :raises NotFound: if there is no such artifact.
        """
        written: list[Path] = []
        async for artifact in self.list_artifacts(prefix):
            path = relative_path(artifact.key, prefix)
            if path is not None:
                target = Path(folder) / path
                await write_whole(self.read_artifact(artifact.key), target, size=artifact.size)
                written.append(target)
        if not written:
            raise errors.NotFound(f"no artifact at or below {prefix!r}", metadata={"prefix": prefix})
        return written

    # -- benchmarks -------------------------------------------------------------------------------------------

    async def create_benchmark(
        self,
        cases: Sequence[benchmarks_pb.BenchmarkCase],
        *,
        template: session_pb.SessionSpec | None = None,
        name: str = "",
        staged: bool = False,
        stage_gate: float = 0.0,
        parallel: int = 0,
        request_id: str | None = None,
    ) -> benchmarks_pb.Benchmark:
        """Starts one session per case, or adds cases to the benchmark with the name and continues it.

        :param staged: stage by stage, each gated by the score so far.
        :param stage_gate: mean score that lets the next stage begin; 0: the server's default.
        :param parallel: sessions at a time; 0: the server's setting.
        """
        request = benchmarks_pb.CreateBenchmarkRequest(
            cases=[names.with_full_names(case) for case in cases],
            template=template,
            name=names.benchmark_name(name) if name else "",
            staged=staged,
            stage_gate=stage_gate,
            parallel=parallel,
            request_id=some_request_id(request_id),
        )
        benchmark: benchmarks_pb.Benchmark = await self._caller.unary(
            self._benchmarks.CreateBenchmark, request, patient=True
        )
        return benchmark

    async def get_benchmark(self, benchmark: str) -> benchmarks_pb.Benchmark:
        """One benchmark with its table."""
        request = benchmarks_pb.GetBenchmarkRequest(name=names.benchmark_name(benchmark))
        answer: benchmarks_pb.Benchmark = await self._caller.unary(self._benchmarks.GetBenchmark, request)
        return answer

    async def list_benchmarks(self) -> AsyncIterator[benchmarks_pb.Benchmark]:
        """Benchmarks, newest first, without most fields of their cases; `get_benchmark` returns all."""
        async for page in self._pages(self._benchmarks.ListBenchmarks, benchmarks_pb.ListBenchmarksRequest()):
            for benchmark in page.benchmarks:
                yield benchmark

    async def watch_benchmark(self, benchmark: str) -> AsyncIterator[benchmarks_pb.Benchmark]:
        """The benchmark each time a case changes, until all have ended."""
        name = names.benchmark_name(benchmark)
        stream = self._caller.renewed_stream(
            self._benchmarks.WatchBenchmark, lambda: benchmarks_pb.WatchBenchmarkRequest(name=name)
        )
        async for response in stream:
            yield response.benchmark

    async def cancel_benchmark(self, benchmark: str) -> benchmarks_pb.Benchmark:
        """Ends a benchmark and its sessions."""
        request = benchmarks_pb.CancelBenchmarkRequest(name=names.benchmark_name(benchmark))
        answer: benchmarks_pb.Benchmark = await self._caller.unary(self._benchmarks.CancelBenchmark, request)
        return answer

    # -- maintenance ------------------------------------------------------------------------------------------

    async def collect_garbage(
        self, *, validate_only: bool = False, force: bool = False
    ) -> AsyncIterator[maintenance_pb.CollectGarbageResponse]:
        """Removes what the server's retention settings no longer keep; each part once it is removed.

        :param validate_only: report what would be removed, and remove nothing.
        :param force: remove also what is refused because the database or the clock may be wrong.
        """
        request = maintenance_pb.CollectGarbageRequest(validate_only=validate_only, force=force)
        async for response in self._caller.renewed_stream(self._maintenance.CollectGarbage, lambda: request):
            yield response

    async def _pages(self, stub: Callable[..., Awaitable[Any]], request: Any) -> AsyncIterator[Any]:
        """Every page of a list, fetched as it is asked for."""
        while True:
            page = await self._caller.unary(stub, request)
            yield page
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token
