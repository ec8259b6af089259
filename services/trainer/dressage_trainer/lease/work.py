"""The trainer's side of `RunService.Work`: hello, assignments, reports that count exactly once, transfers.

The stream may break at any moment: `WorkStream` dials again with jittered backoff. After each welcome it sends all reports
that were not accepted, the oldest first, and only then new ones; the orchestrator drops those it has already. What a
caller awaits (an assignment, grants) survives a redial. After ``redial_seconds`` without an orchestrator, or with one that
accepts no report, it gives up with `Unavailable`.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field

import grpc
import structlog
from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.api.internal.v1 import run_service_pb2_grpc as pb_grpc
from dressage.artifacts.store import Grant
from dressage.errors import FailedPrecondition, Unavailable
from dressage.rpc_errors import from_rpc
from dressage.serving.channels import connect
from tenacity import AsyncRetrying, retry_if_exception_type, wait_random_exponential

REPORTS_BACKED_UP = "REPORTS_BACKED_UP"
_MAX_UNACCEPTED = 10_000
_GRANT_SECONDS = 60.0
_WELCOME_SECONDS = 60.0
_STOOD_SECONDS = 5.0
"""A stream that held this long after its welcome, with nothing to accept, counts as a good one."""


class _Cut(Exception):
    """The stream broke in a way that dialling again may repair."""


@dataclass
class EarlyEnd:
    """Whether a training is to end early, and with which policies.

    :param requested: set once it is.
    :param final_steps: environment steps of each member's final policy, by id.
    :param begun: whether the training is ending early.
    """

    requested: asyncio.Event = field(default_factory=asyncio.Event)
    final_steps: dict[str, int] = field(default_factory=dict)
    begun: bool = False
    assignment: pb.Assignment | None = None

    def request(self, assignment: pb.Assignment) -> None:
        """Set it if the assignment is sent to be ended early."""
        if assignment.train.final_steps and not self.requested.is_set():
            self.assignment = assignment
            self.final_steps.update(assignment.train.final_steps)
            self.requested.set()


class StepGrant:
    """Until which environment step the members of a training may train; it rises while the training improves."""

    def __init__(self) -> None:
        self.steps = 0
        """0: not limited."""
        self._raised = asyncio.Event()

    def raise_to(self, steps: int) -> None:
        """Note a number of steps; a lower one than before changes nothing."""
        if steps > self.steps:
            self.steps = steps
            self._raised.set()

    async def beyond(self, steps: int) -> int:
        """Return the number of steps as soon as it is above ``steps``."""
        while self.steps <= steps:
            self._raised.clear()
            await self._raised.wait()
        return self.steps


@dataclass
class _State:
    """What must survive a redial."""

    unaccepted: OrderedDict[int, pb.Report] = field(default_factory=OrderedDict)
    next_sequence: int = 1
    next_transfer: int = 1
    transfers: dict[int, tuple[pb.TransferRequest, asyncio.Future[pb.TransferGrants]]] = field(default_factory=dict)
    seen_assignments: set[int] = field(default_factory=set)
    """Those that were received, so that a repetition is dropped."""
    cancellations: dict[int, asyncio.Event] = field(default_factory=dict)
    """By assignment; see `WorkStream.cancellation`."""
    early_ends: dict[int, EarlyEnd] = field(default_factory=dict)
    """By assignment; see `WorkStream.early_end`."""
    step_grants: dict[int, StepGrant] = field(default_factory=dict)
    """By assignment; see `WorkStream.step_grant`."""
    answered: set[int] = field(default_factory=set)
    """Assignments that this trainer has ended."""


@dataclass
class _Line:
    """One stream, from its dialling to its end.

    :param more: set when there may be something to send.
    :param welcomed: time of the welcome, by `time.monotonic`.
    """

    more: asyncio.Event = field(default_factory=asyncio.Event)
    welcomed: float | None = None


def _may_be_repeated(report: pb.Report) -> bool:
    """Return whether the orchestrator may send the assignment again after this report, since the machine was to blame."""
    failure = report.result.failure
    return report.HasField("result") and failure.cause == pb.AssignmentFailure.CAUSE_INFRASTRUCTURE


class WorkStream:
    """One run's lease. Use `run` as a background task, the other methods from anywhere in the same event loop."""

    def __init__(self, *, address: str, hello: pb.Hello, redial_seconds: float, tls_ca: str = "") -> None:
        self._address = address
        self._tls_ca = tls_ca
        self._hello = hello
        self._redial_seconds = redial_seconds
        self._state = _State()
        self._line = _Line()
        self._last_good = 0.0
        self._drained = asyncio.Event()
        self._drained.set()
        self._log = structlog.get_logger("dressage.trainer.work")
        self.assignments: asyncio.Queue[pb.Assignment | None] = asyncio.Queue()
        self.stopped = asyncio.Event()
        self.stop_reason = ""

    async def run(self) -> None:
        """Serve the stream until there is no more work.

        :raises Unavailable: if for ``redial_seconds`` no orchestrator answers, or none accepts a report.
        :raises DressageError: if the orchestrator refuses the trainer (for a wrong token, for example).
        """
        self._last_good = time.monotonic()
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(_Cut),
            wait=wait_random_exponential(multiplier=0.2, max=5),
            # Not `stop_after_delay`: only the time since the last good answer counts.
            stop=lambda _: time.monotonic() - self._last_good >= self._redial_seconds,
            reraise=True,
        )
        try:
            async for attempt in retrying:
                with attempt:
                    before = self._last_good
                    try:
                        await self._serve_once()
                    except _Cut:
                        if self._last_good > before:  # the stream was a good one: the next pause is short again
                            attempt.retry_state.attempt_number = 1
                        raise
        except _Cut as error:
            raise Unavailable(f"no orchestrator at {self._address}: {error}", reason="ORCHESTRATOR_GONE") from None

    async def _serve_once(self) -> None:
        """Dial and serve one stream until there is no more work.

        :raises _Cut: if it ends earlier.
        """
        line = self._line = _Line()
        ending = "it does not answer"
        try:
            async with connect(self._address, tls_ca=self._tls_ca) as channel:
                call = pb_grpc.RunServiceStub(channel).Work(self._requests(line))
                async with asyncio.timeout(min(_WELCOME_SECONDS, self._redial_seconds)) as patience:
                    async for response in call:
                        if response.WhichOneof("message") == "welcome":
                            patience.reschedule(None)
                            ending = "it ends the stream"
                            line.welcomed = time.monotonic()
                            line.more.set()
                        elif self._receive(response):
                            return
        except TimeoutError:
            self._log.warning("no welcome in time")
        except grpc.aio.AioRpcError as error:
            # These may come from a connection, a proxy or a server that ends; any other is the orchestrator's answer.
            if error.code() not in (
                grpc.StatusCode.UNAVAILABLE,
                grpc.StatusCode.CANCELLED,
                grpc.StatusCode.INTERNAL,
                grpc.StatusCode.UNKNOWN,
            ):
                raise from_rpc(error) from None
            self._log.warning("stream cut", code=error.code().name)
            ending = f"{ending} ({error.code().name})"
        finally:
            self._note_silence()
            self._line = _Line()  # what is reported from now on waits for the next welcome
            line.more.set()  # lets its `_requests` end
        raise _Cut(ending)

    async def _requests(self, line: _Line) -> AsyncIterator[pb.WorkRequest]:
        """Yield hello, and after the welcome everything that waits for an answer: each once, reports in their order."""
        yield pb.WorkRequest(hello=self._hello)
        reported = requested = 0
        while line is self._line:
            line.more.clear()
            if line.welcomed is not None:
                # A copy: reports are added and accepted while this generator is suspended.
                for sequence, report in list(self._state.unaccepted.items()):
                    if sequence > reported:
                        reported = sequence
                        yield pb.WorkRequest(report=report)
                for number, (request, _) in list(self._state.transfers.items()):
                    if number > requested:
                        requested = number
                        yield pb.WorkRequest(transfer_request=request)
            await line.more.wait()

    def _note_silence(self) -> None:
        """Count a stream that stood for a while with nothing to accept as a good one."""
        state, welcomed, now = self._state, self._line.welcomed, time.monotonic()
        if welcomed is None or state.unaccepted or state.transfers:
            return
        # Streams that are cut right after each welcome must not be redialled for ever.
        if now - welcomed >= _STOOD_SECONDS:
            self._last_good = now

    def _receive(self, response: pb.WorkResponse) -> bool:
        """Handle one message; return whether it ends the work."""
        kind = response.WhichOneof("message")
        if kind == "assignment":
            self._receive_assignment(response.assignment)
        elif kind == "report_accepted":
            self._last_good = time.monotonic()
            report = self._state.unaccepted.pop(response.report_accepted.sequence, None)
            if report is not None and _may_be_repeated(report):
                self._state.seen_assignments.discard(report.assignment)
                self._state.answered.discard(report.assignment)
            self._set_drained_if_empty()
        elif kind == "transfer_grants":
            self._last_good = time.monotonic()
            _, future = self._state.transfers.pop(response.transfer_grants.id, (None, None))
            if future and not future.done():
                future.set_result(response.transfer_grants)
        elif kind == "stop":
            self.stop_reason = response.stop.reason
            self.stopped.set()
            self._cancel_all()
        elif kind == "cancel_assignment":
            self._cancel(response.cancel_assignment.assignment)
        elif kind == "no_more_work":
            # The orchestrator sends it only once everything is recorded, and accepts nothing on this stream afterwards.
            self._state.unaccepted.clear()
            self._drained.set()
            self._cancel_all()  # none is in progress, or its reports would be lost
            self.assignments.put_nowait(None)
            return True
        return False

    def _receive_assignment(self, assignment: pb.Assignment) -> None:
        """Queue a new assignment. One that is sent again is dropped, unless it now ends early or may continue."""
        state, number = self._state, assignment.id
        if assignment.train.granted_steps:
            self.step_grant(number).raise_to(assignment.train.granted_steps)
        if number not in state.seen_assignments:
            state.seen_assignments.add(number)
            self.assignments.put_nowait(assignment)
        elif assignment.train.final_steps and not self.early_end(number).requested.is_set():
            self.early_end(number).request(assignment)
            if number in state.answered:
                self._end_early_after_all(assignment)

    def _end_early_after_all(self, assignment: pb.Assignment) -> None:
        """Queue a training that has just ended by itself: the orchestrator decided before it knew, and ignores that result."""
        self._state.answered.discard(assignment.id)
        self.assignments.put_nowait(assignment)

    def early_end(self, assignment: int) -> EarlyEnd:
        """Return whether the training of an assignment is to end early."""
        return self._state.early_ends.setdefault(assignment, EarlyEnd())

    def step_grant(self, assignment: int) -> StepGrant:
        """Return until when the members of an assignment may train."""
        return self._state.step_grants.setdefault(assignment, StepGrant())

    def cancellation(self, assignment: int) -> asyncio.Event:
        """Return the event that is set once an assignment is cancelled, or the trainer is stopped."""
        event = self._state.cancellations.setdefault(assignment, asyncio.Event())
        if self.stopped.is_set():
            event.set()
        return event

    def forget(self, assignment: int) -> None:
        """Drop what is kept for the cancellation of an assignment that has ended."""
        self._state.cancellations.pop(assignment, None)
        self._state.step_grants.pop(assignment, None)
        early_end = self._state.early_ends.pop(assignment, None)
        self._state.answered.add(assignment)
        if early_end is not None and early_end.assignment is not None and not early_end.begun:
            self._end_early_after_all(early_end.assignment)

    def _cancel(self, assignment: int) -> None:
        """Note that an assignment is cancelled, and drop what is not yet reported about it."""
        self.cancellation(assignment).set()
        for number in [n for n, report in self._state.unaccepted.items() if report.assignment == assignment]:
            del self._state.unaccepted[number]
        self._set_drained_if_empty()

    def _cancel_all(self) -> None:
        for event in self._state.cancellations.values():
            event.set()

    def _set_drained_if_empty(self) -> None:
        if not self._state.unaccepted:
            self._drained.set()

    def report(self, report: pb.Report) -> None:
        """Queue a report. It is sent after the welcome, in order, and repeated until accepted.

        :raises FailedPrecondition: if too many reports wait for an orchestrator that does not answer.
        """
        state = self._state
        if len(state.unaccepted) >= _MAX_UNACCEPTED:
            raise FailedPrecondition("too many reports wait to be accepted", reason=REPORTS_BACKED_UP)
        self._note_silence()
        report.sequence = state.next_sequence
        state.next_sequence += 1
        if report.WhichOneof("body") == "progress":
            self._drop_older_progress()
        state.unaccepted[report.sequence] = report
        self._drained.clear()
        self._line.more.set()

    def _drop_older_progress(self) -> None:
        """Drop waiting progress reports, which a newer one replaces: without a stream they would pile up."""
        stale = [
            number for number, waiting in self._state.unaccepted.items() if waiting.WhichOneof("body") == "progress"
        ]
        for number in stale:
            del self._state.unaccepted[number]

    async def drain(self, seconds: float) -> bool:
        """Wait until every report is accepted; return False if that takes longer than ``seconds``."""
        try:
            await asyncio.wait_for(self._drained.wait(), seconds)
        except TimeoutError:
            return False
        return True

    async def grants(
        self, assignment: int, *, put: Mapping[str, int] | None = None, get: Sequence[str] = ()
    ) -> dict[str, Grant]:
        """Request grants to put and get files of an assignment.

        :param put: sizes in bytes by key relative to the assignment.
        :param get: keys relative to the assignment, or full ones below its session.
        :returns: a grant by key.
        :raises FailedPrecondition: if the orchestrator refuses.
        :raises Unavailable: if it does not answer in time.
        """
        state = self._state
        self._note_silence()
        sizes = put or {}
        request = pb.TransferRequest(id=state.next_transfer, assignment=assignment, put=sizes.keys(), get=get)
        request.put_bytes.extend(sizes.values())
        state.next_transfer += 1
        future: asyncio.Future[pb.TransferGrants] = asyncio.get_running_loop().create_future()
        state.transfers[request.id] = (request, future)
        self._line.more.set()
        try:
            # A request survives redials, so it may have to wait as long as they do.
            answer = await asyncio.wait_for(future, max(_GRANT_SECONDS, self._redial_seconds))
        except TimeoutError:
            raise Unavailable("no answer to a transfer request", reason="ORCHESTRATOR_GONE") from None
        finally:
            state.transfers.pop(request.id, None)
        if answer.error:
            raise FailedPrecondition(f"the orchestrator refuses a transfer: {answer.error}", reason="TRANSFER_REFUSED")
        return {
            grant.key: Grant(url=grant.url, headers=dict(grant.headers), size=sizes.get(grant.key))
            for grant in answer.grants
        }
