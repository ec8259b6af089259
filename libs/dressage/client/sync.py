"""The blocking client: `AsyncClient` on an event loop of its own, in a thread of its own.

One implementation of retries, paging and watching then serves both kinds of program, and a blocking client also works
inside a running event loop (a notebook). Ctrl-C while a call waits cancels the call on that loop.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from dressage.api.v1 import artifact_service_pb2 as artifacts_pb
from dressage.api.v1 import benchmark_service_pb2 as benchmarks_pb
from dressage.api.v1 import environment_service_pb2 as environments_pb
from dressage.api.v1 import intent_service_pb2 as intents_pb
from dressage.api.v1 import session_pb2 as session_pb
from dressage.api.v1 import session_service_pb2 as sessions_pb
from dressage.client.aio import AsyncClient
from dressage.client.calls import CallPolicy

T = TypeVar("T")

_STOP_SECONDS = 5.0


class LoopThread:
    """An event loop that runs in a daemon thread until it is stopped."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="dressage-client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result; it is cancelled if the caller is interrupted."""
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def iterate(self, source: AsyncIterator[T]) -> Iterator[T]:
        """The items of an asynchronous iterator, fetched one at a time as they are asked for."""

        async def following() -> tuple[bool, T | None]:
            try:
                return True, await anext(source)
            except StopAsyncIteration:
                return False, None

        try:
            while True:
                more, item = self.run(following())
                if not more:
                    return
                yield item  # type: ignore[misc]  # an item came with more
        finally:
            if self.loop.is_running():
                self.run(_close(source))

    def stop(self) -> None:
        """Ends the loop and its thread."""
        if self.loop.is_running():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(_STOP_SECONDS)
        if not self.loop.is_running() and not self.loop.is_closed():
            self.loop.close()


async def _close(source: AsyncIterator[Any]) -> None:
    close = getattr(source, "aclose", None)
    if close is not None:
        await close()


class Client:
    """A blocking client of the public API; the methods are those of `AsyncClient`, which documents them.

    Safe to use from several threads. Close it, or use it as a context manager.
    """

    def __init__(self, loop: LoopThread, client: AsyncClient) -> None:
        self._loop = loop
        self._client = client

    @classmethod
    def connect(
        cls,
        address: str | None = None,
        token: str | None = None,
        *,
        policy: CallPolicy | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> Self:
        """A client for a server; see `AsyncClient.connect`."""

        async def connect() -> AsyncClient:  # on the loop: a channel belongs to the loop that it is made in
            return AsyncClient.connect(address, token, policy=policy, environ=environ)

        loop = LoopThread()
        try:
            return cls(loop, loop.run(connect()))
        except BaseException:
            loop.stop()
            raise

    @property
    def address(self) -> str:
        """`host:port` of the server."""
        return self._client.address

    def close(self) -> None:
        """Closes the connection; harmless if repeated."""
        if self._loop.loop.is_running():
            self._loop.run(self._client.close())
        self._loop.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def create_session(
        self, spec: session_pb.SessionSpec, *, session_id: str = "", request_id: str | None = None
    ) -> session_pb.Session:
        """Starts a session."""
        return self._loop.run(self._client.create_session(spec, session_id=session_id, request_id=request_id))

    def estimate_session(self, spec: session_pb.SessionSpec) -> sessions_pb.EstimateSessionResponse:
        """What a session would spend, without starting it."""
        return self._loop.run(self._client.estimate_session(spec))

    def get_session(self, session: str) -> session_pb.Session:
        """One session."""
        return self._loop.run(self._client.get_session(session))

    def list_sessions(
        self,
        *,
        state: session_pb.SessionState.ValueType = session_pb.SESSION_STATE_UNSPECIFIED,
        show_deleted: bool = False,
        page_size: int = 0,
    ) -> Iterator[session_pb.Session]:
        """Sessions, newest first."""
        pages = self._client.list_sessions(state=state, show_deleted=show_deleted, page_size=page_size)
        return self._loop.iterate(pages)

    def cancel_session(self, session: str, *, reason: str = "") -> session_pb.Session:
        """Ends a session; what it has so far stays."""
        return self._loop.run(self._client.cancel_session(session, reason=reason))

    def resume_session(
        self,
        session: str,
        *,
        additional_iterations: int = 0,
        budget: session_pb.Budget | None = None,
        request_id: str | None = None,
    ) -> session_pb.Session:
        """Takes an ended session up again."""
        work = self._client.resume_session(
            session, additional_iterations=additional_iterations, budget=budget, request_id=request_id
        )
        return self._loop.run(work)

    def steer_session(
        self,
        session: str,
        note: str = "",
        *,
        proposal_source: str = "",
        criteria: Sequence[session_pb.IntentCriterion] = (),
        rebase_to: int = 0,
        request_id: str | None = None,
    ) -> None:
        """Steers the next iteration."""
        work = self._client.steer_session(
            session,
            note,
            proposal_source=proposal_source,
            criteria=criteria,
            rebase_to=rebase_to,
            request_id=request_id,
        )
        self._loop.run(work)

    def approve_session(
        self, session: str, *, iteration: int = 0, note: str = "", request_id: str | None = None
    ) -> session_pb.Session:
        """Lets the proposal that waits for approval be trained."""
        work = self._client.approve_session(session, iteration=iteration, note=note, request_id=request_id)
        return self._loop.run(work)

    def delete_session(self, session: str, *, force: bool = False, etag: str = "") -> session_pb.Session:
        """Marks an ended session as deleted; with force, cancels it first."""
        return self._loop.run(self._client.delete_session(session, force=force, etag=etag))

    def undelete_session(self, session: str) -> session_pb.Session:
        """Takes a deletion back."""
        return self._loop.run(self._client.undelete_session(session))

    def watch_session(self, session: str, *, resume_token: str = "") -> Iterator[sessions_pb.WatchSessionResponse]:
        """A session's events, recorded and live, until it ends; a lost connection is made again."""
        return self._loop.iterate(self._client.watch_session(session, resume_token=resume_token))

    def wait_session(self, session: str) -> session_pb.Session:
        """The session once it has ended."""
        return self._loop.run(self._client.wait_session(session))

    def get_iteration(self, name: str) -> session_pb.Iteration:
        """One iteration, by its full name."""
        return self._loop.run(self._client.get_iteration(name))

    def list_iterations(self, session: str) -> Iterator[session_pb.Iteration]:
        """Iterations of a session, in order."""
        return self._loop.iterate(self._client.list_iterations(session))

    def get_run(self, name: str) -> session_pb.Run:
        """One run, by its full name."""
        return self._loop.run(self._client.get_run(name))

    def list_runs(self, session: str) -> Iterator[session_pb.Run]:
        """Runs of a session, the leases of its trainers, oldest first."""
        return self._loop.iterate(self._client.list_runs(session))

    def get_assignment(self, name: str) -> session_pb.Assignment:
        """One assignment with its members and candidates, by its full name."""
        return self._loop.run(self._client.get_assignment(name))

    def list_assignments(self, parent: str) -> Iterator[session_pb.Assignment]:
        """See `AsyncClient.list_assignments`."""
        return self._loop.iterate(self._client.list_assignments(parent))

    def read_run_log(self, name: str, *, tail_bytes: int = 0) -> sessions_pb.ReadRunLogResponse:
        """See `AsyncClient.read_run_log`."""
        return self._loop.run(self._client.read_run_log(name, tail_bytes=tail_bytes))

    def get_lineage(self, session: str) -> sessions_pb.Lineage:
        """The tree of iterations with scores and lessons."""
        return self._loop.run(self._client.get_lineage(session))

    def label_rollout(
        self, rollout: str, score: float, *, comment: str = "", request_id: str | None = None
    ) -> session_pb.Judgment:
        """Records a person's score (0..1) for a rollout."""
        return self._loop.run(self._client.label_rollout(rollout, score, comment=comment, request_id=request_id))

    def get_environment(self, environment: str) -> environments_pb.Environment:
        """One environment card."""
        return self._loop.run(self._client.get_environment(environment))

    def list_environments(self) -> Iterator[environments_pb.Environment]:
        """Environment cards, by name."""
        return self._loop.iterate(self._client.list_environments())

    def elicit(self, intent: str, environment: str, *, model: str = "") -> intents_pb.ElicitResponse:
        """Criteria for an intent, and what it leaves open."""
        return self._loop.run(self._client.elicit(intent, environment, model=model))

    def list_artifacts(self, prefix: str) -> Iterator[artifacts_pb.Artifact]:
        """Artifacts whose keys begin with a prefix, by key."""
        return self._loop.iterate(self._client.list_artifacts(prefix))

    def get_artifact(self, key: str) -> artifacts_pb.Artifact:
        """One artifact's facts."""
        return self._loop.run(self._client.get_artifact(key))

    def read_artifact(self, key: str, *, offset: int = 0) -> Iterator[bytes]:
        """An artifact's bytes in chunks."""
        return self._loop.iterate(self._client.read_artifact(key, offset=offset))

    def download_artifacts(self, prefix: str, folder: str | Path) -> list[Path]:
        """Downloads an artifact, or all below a prefix, into a folder; returns the files written."""
        return self._loop.run(self._client.download_artifacts(prefix, folder))

    def create_benchmark(
        self,
        cases: Sequence[benchmarks_pb.BenchmarkCase],
        *,
        template: session_pb.SessionSpec | None = None,
        staged: bool = False,
        stage_gate: float = 0.0,
        request_id: str | None = None,
    ) -> benchmarks_pb.Benchmark:
        """Starts one session per case."""
        work = self._client.create_benchmark(
            cases, template=template, staged=staged, stage_gate=stage_gate, request_id=request_id
        )
        return self._loop.run(work)

    def get_benchmark(self, benchmark: str) -> benchmarks_pb.Benchmark:
        """One benchmark with its table."""
        return self._loop.run(self._client.get_benchmark(benchmark))

    def list_benchmarks(self) -> Iterator[benchmarks_pb.Benchmark]:
        """Benchmarks, newest first."""
        return self._loop.iterate(self._client.list_benchmarks())

    def watch_benchmark(self, benchmark: str) -> Iterator[benchmarks_pb.Benchmark]:
        """The benchmark each time a case changes, until all have ended."""
        return self._loop.iterate(self._client.watch_benchmark(benchmark))

    def cancel_benchmark(self, benchmark: str) -> benchmarks_pb.Benchmark:
        """Ends a benchmark and its sessions."""
        return self._loop.run(self._client.cancel_benchmark(benchmark))
