"""The trainer's side of `RunService.Work`: hello, assignments, reports that count exactly once, transfers.

The stream may break at any moment: `WorkStream` dials again with jittered backoff and repeats every report that was not
accepted, in order; the orchestrator drops those it has already. What a caller awaits (an assignment, grants) survives a
redial. After ``redial_seconds`` without an orchestrator it gives up with `Unavailable`.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import grpc
import structlog
from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.api.internal.v1 import run_service_pb2_grpc as pb_grpc
from dressage.artifacts.store import Grant
from dressage.errors import FailedPrecondition, Unavailable
from dressage.rpc_errors import from_rpc
from dressage.serving.channels import connect
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

_MAX_UNACCEPTED = 10_000
_GRANT_SECONDS = 60.0


class _Cut(Exception):
    """The stream broke in a way that dialling again may mend."""


@dataclass
class _State:
    """What must survive a redial."""

    unaccepted: OrderedDict[int, pb.Report] = field(default_factory=OrderedDict)
    next_sequence: int = 1
    next_transfer: int = 1
    transfers: dict[int, tuple[pb.TransferRequest, asyncio.Future[pb.TransferGrants]]] = field(default_factory=dict)
    seen_assignments: set[int] = field(default_factory=set)


class WorkStream:
    """One run's lease. Use `run` as a background task, the other methods from anywhere in the same event loop."""

    def __init__(self, *, address: str, hello: pb.Hello, redial_seconds: float, tls_ca: str = "") -> None:
        self._address = address
        self._tls_ca = tls_ca
        self._hello = hello
        self._redial_seconds = redial_seconds
        self._state = _State()
        self._outgoing: asyncio.Queue[pb.WorkRequest] = asyncio.Queue(_MAX_UNACCEPTED)
        self._drained = asyncio.Event()
        self._drained.set()
        self._log = structlog.get_logger("dressage.trainer.work")
        self.assignments: asyncio.Queue[pb.Assignment | None] = asyncio.Queue()
        self.stopped = asyncio.Event()
        self.stop_reason = ""
        self.progress_interval = 0.5

    async def run(self) -> None:
        """Serves the stream until there is no more work.

        :raises Unavailable: if no orchestrator answers for ``redial_seconds``.
        :raises DressageError: what the orchestrator refuses the trainer with (a wrong token, say).
        """
        while True:
            # A connection that held starts the clock anew: only a continuous absence counts.
            retrying = AsyncRetrying(
                retry=retry_if_exception_type(_Cut),
                wait=wait_random_exponential(multiplier=0.2, max=5),
                stop=stop_after_delay(self._redial_seconds),
                reraise=True,
            )
            try:
                async for attempt in retrying:
                    with attempt:
                        finished = await self._serve_once()
            except _Cut as error:
                raise Unavailable(f"no orchestrator at {self._address}: {error}", reason="ORCHESTRATOR_GONE") from None
            if finished:
                return

    async def _serve_once(self) -> bool:
        """Dials and serves one stream; True when there is no more work, False when it ended after having held."""
        welcomed = False
        self._outgoing = asyncio.Queue(_MAX_UNACCEPTED)
        async with connect(self._address, tls_ca=self._tls_ca) as channel:
            call = pb_grpc.RunServiceStub(channel).Work(self._requests())
            try:
                async for response in call:
                    if response.WhichOneof("message") == "welcome":
                        welcomed = True
                        self.progress_interval = response.welcome.progress_interval_seconds or 0.5
                        self._repeat_what_was_not_accepted()
                    elif self._receive(response):
                        return True
            except grpc.aio.AioRpcError as error:
                if error.code() not in (
                    grpc.StatusCode.UNAVAILABLE,
                    grpc.StatusCode.CANCELLED,
                    grpc.StatusCode.INTERNAL,
                    grpc.StatusCode.UNKNOWN,
                ):
                    raise from_rpc(error) from None
                self._log.warning("stream cut", code=error.code().name)
            if not welcomed:
                raise _Cut("it does not answer")
            return False

    async def _requests(self) -> AsyncIterator[pb.WorkRequest]:
        yield pb.WorkRequest(hello=self._hello)
        queue = self._outgoing
        while True:
            yield await queue.get()

    def _repeat_what_was_not_accepted(self) -> None:
        for report in self._state.unaccepted.values():
            self._outgoing.put_nowait(pb.WorkRequest(report=report))
        for request, _ in self._state.transfers.values():
            self._outgoing.put_nowait(pb.WorkRequest(transfer_request=request))

    def _receive(self, response: pb.WorkResponse) -> bool:
        """Handles one message; True when it says that there is no more work."""
        kind = response.WhichOneof("message")
        if kind == "assignment":
            if response.assignment.id not in self._state.seen_assignments:
                self._state.seen_assignments.add(response.assignment.id)
                self.assignments.put_nowait(response.assignment)
        elif kind == "report_accepted":
            self._state.unaccepted.pop(response.report_accepted.sequence, None)
            if not self._state.unaccepted:
                self._drained.set()
        elif kind == "transfer_grants":
            _, future = self._state.transfers.pop(response.transfer_grants.id, (None, None))
            if future and not future.done():
                future.set_result(response.transfer_grants)
        elif kind == "stop":
            self.stop_reason = response.stop.reason
            self.stopped.set()
        elif kind == "no_more_work":
            # It is said only once everything is recorded, and nothing will be accepted on this stream any more.
            self._state.unaccepted.clear()
            self._drained.set()
            self.assignments.put_nowait(None)
            return True
        return False

    def report(self, report: pb.Report) -> None:
        """Queues a report; it is repeated until accepted.

        :raises FailedPrecondition: if too many reports wait for an orchestrator that does not answer.
        """
        state = self._state
        if len(state.unaccepted) >= _MAX_UNACCEPTED:
            raise FailedPrecondition("too many reports wait to be accepted", reason="REPORTS_BACKED_UP")
        report.sequence = state.next_sequence
        state.next_sequence += 1
        if report.WhichOneof("body") == "progress":
            self._forget_older_progress()
        state.unaccepted[report.sequence] = report
        self._drained.clear()
        self._outgoing.put_nowait(pb.WorkRequest(report=report))

    def _forget_older_progress(self) -> None:
        """A newer progress report makes an older one worthless: while cut off they would only pile up."""
        stale = [
            number for number, waiting in self._state.unaccepted.items() if waiting.WhichOneof("body") == "progress"
        ]
        for number in stale:
            del self._state.unaccepted[number]

    async def drain(self, seconds: float) -> bool:
        """Waits until every report is accepted; False if that takes longer than ``seconds``."""
        try:
            await asyncio.wait_for(self._drained.wait(), seconds)
        except TimeoutError:
            return False
        return True

    async def grants(self, *, put: Sequence[str] = (), get: Sequence[str] = ()) -> dict[str, Grant]:
        """Asks where to put and get files.

        :param put: keys relative to the run.
        :param get: keys relative to the run, or full ones.
        :returns: a grant by key.
        :raises FailedPrecondition: if the orchestrator refuses.
        :raises Unavailable: if it does not answer in time.
        """
        state = self._state
        request = pb.TransferRequest(id=state.next_transfer, put=put, get=get)
        state.next_transfer += 1
        future: asyncio.Future[pb.TransferGrants] = asyncio.get_running_loop().create_future()
        state.transfers[request.id] = (request, future)
        self._outgoing.put_nowait(pb.WorkRequest(transfer_request=request))
        try:
            answer = await asyncio.wait_for(future, max(_GRANT_SECONDS, self._redial_seconds))
        except TimeoutError:
            raise Unavailable("no answer to a transfer request", reason="ORCHESTRATOR_GONE") from None
        finally:
            state.transfers.pop(request.id, None)
        if answer.error:
            raise FailedPrecondition(f"the orchestrator refuses a transfer: {answer.error}", reason="TRANSFER_REFUSED")
        return {grant.key: Grant(url=grant.url, headers=dict(grant.headers)) for grant in answer.grants}
