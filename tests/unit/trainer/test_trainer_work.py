"""`WorkStream` against a scripted orchestrator: redials, their pauses and their end, and the order of what is repeated."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace

import grpc
import pytest
from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.api.internal.v1 import run_service_pb2_grpc as pb_grpc
from dressage.errors import Unavailable
from dressage_trainer.lease import work as trainer_work
from dressage_trainer.lease.work import WorkStream

from tests.waiting import until

WELCOME = pb.WorkResponse(welcome=pb.Welcome(session="s1"))
NO_MORE_WORK = pb.WorkResponse(no_more_work=pb.NoMoreWork())
HELLO = pb.Hello(run="sessions/s1/runs/train", attempt=1, token="token")


def accepted(report):
    return pb.WorkResponse(report_accepted=pb.ReportAccepted(sequence=report.sequence))


def evaluation(member="a", assignment=1):
    item = f"evaluation/{member}/64"
    return pb.Report(assignment=assignment, item=item, evaluation=pb.EvaluationReport(member=member))


def done(assignment=1):
    result = pb.AssignmentResult(train=pb.TrainResult())
    return pb.Report(assignment=assignment, item="result", result=result)


def failed(cause, assignment=1):
    result = pb.AssignmentResult(failure=pb.AssignmentFailure(cause=cause))
    return pb.Report(assignment=assignment, item="result", result=result)


def assigned(number):
    return pb.WorkResponse(assignment=pb.Assignment(id=number))


class Orchestrator(pb_grpc.RunServiceServicer):
    """Serves each stream, after its hello, with ``script(number of the stream from 1, requests, context)``."""

    def __init__(self, script):
        self.script, self.dials = script, 0

    async def Work(self, requests, context):
        assert (await anext(requests)).HasField("hello")
        self.dials += 1
        async for response in self.script(self.dials, requests, context):
            yield response


@asynccontextmanager
async def serving(script, *, redial_seconds=60.0) -> AsyncIterator[tuple[Orchestrator, WorkStream]]:
    server = grpc.aio.server()
    orchestrator = Orchestrator(script)
    pb_grpc.add_RunServiceServicer_to_server(orchestrator, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield orchestrator, WorkStream(address=f"127.0.0.1:{port}", hello=HELLO, redial_seconds=redial_seconds)
    finally:
        await server.stop(0)


@pytest.fixture
def ceilings(monkeypatch):
    """The upper limit of each pause, in seconds; the pauses themselves are a tenth of it."""
    seen = []

    def uniform(low, high):
        seen.append(high)
        return high / 10

    monkeypatch.setattr(random, "uniform", uniform)
    return seen


@pytest.fixture
def clock(monkeypatch):
    """The trainer's clock; it stands still until a test moves ``now``, in seconds."""
    fake = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(trainer_work, "time", SimpleNamespace(monotonic=lambda: fake.now), raising=False)
    return fake


async def test_a_report_that_always_fails_is_repeated_with_growing_pauses(ceilings, clock):
    async def script(dial, requests, context):
        yield WELCOME
        await anext(requests)
        clock.now += 10.0
        await context.abort(grpc.StatusCode.INTERNAL, "the report cannot be recorded")

    async with serving(script, redial_seconds=75.0) as (orchestrator, work):
        work.report(evaluation())
        with pytest.raises(Unavailable, match="INTERNAL"):
            await asyncio.wait_for(work.run(), 20)
    assert orchestrator.dials == 8
    assert ceilings[:7] == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0])


async def test_a_cut_right_after_each_welcome_ends_the_trainer(ceilings, clock):
    async def script(dial, requests, context):
        yield WELCOME
        clock.now += 1.0
        await context.abort(grpc.StatusCode.UNAVAILABLE, "restarting")

    async with serving(script, redial_seconds=3.5) as (orchestrator, work):
        with pytest.raises(Unavailable):
            await asyncio.wait_for(work.run(), 20)
    assert orchestrator.dials == 4


async def test_a_missing_welcome_ends_the_trainer(ceilings):
    async def script(dial, requests, context):
        await asyncio.sleep(60)
        yield WELCOME

    async with serving(script, redial_seconds=0.5) as (_, work):
        with pytest.raises(Unavailable, match="does not answer"):
            await asyncio.wait_for(work.run(), 20)


async def test_an_accepted_report_resets_the_pause_and_the_clock(ceilings, clock):
    async def script(dial, requests, context):
        yield WELCOME
        report = (await anext(requests)).report
        clock.now += 10.0
        if dial in (4, 8):
            yield accepted(report)
        if dial == 8:
            yield NO_MORE_WORK
        await context.abort(grpc.StatusCode.UNKNOWN, "cut")

    # Forty seconds until the first is accepted, thirty more until the last cut.
    async with serving(script, redial_seconds=45.0) as (_, work):
        work.report(evaluation("a"))
        work.report(evaluation("b"))
        await asyncio.wait_for(work.run(), 20)
    assert ceilings == pytest.approx([0.2, 0.4, 0.8, 0.2, 0.4, 0.8, 1.6])


async def test_a_long_idle_stream_counts_as_a_good_one(ceilings, clock):
    async def script(dial, requests, context):
        yield WELCOME
        if dial == 1:
            await until(lambda: work._line.welcomed)
            clock.now += 1000.0
            await context.abort(grpc.StatusCode.UNAVAILABLE, "restarting")
        yield NO_MORE_WORK

    async with serving(script, redial_seconds=45.0) as (_, work):
        await asyncio.wait_for(work.run(), 20)
    assert len(ceilings) == 1, "one redial, and the orchestrator was not given up"


async def test_a_report_after_a_silence_starts_the_clock(ceilings, clock):
    async def script(dial, requests, context):
        yield WELCOME
        if dial == 1:
            await until(lambda: work._line.welcomed)
            clock.now += 1000.0
            work.report(evaluation())
        report = (await anext(requests)).report
        if dial == 1:
            clock.now += 30.0
            await context.abort(grpc.StatusCode.UNAVAILABLE, "restarting")
        yield accepted(report)
        yield NO_MORE_WORK

    async with serving(script, redial_seconds=45.0) as (_, work):
        await asyncio.wait_for(work.run(), 20)
    assert len(ceilings) == 1, "one redial, and the orchestrator was not given up"


async def test_reports_before_the_welcome_wait_and_keep_their_order():
    dialled, go = asyncio.Event(), asyncio.Event()
    early, received = [], []

    async def script(dial, requests, context):
        if dial == 1:
            yield WELCOME
            await anext(requests)
            await context.abort(grpc.StatusCode.UNAVAILABLE, "cut before it was accepted")
        dialled.set()
        following = asyncio.ensure_future(anext(requests))
        await go.wait()
        early.append(following.done())
        yield WELCOME
        for _ in range(3):
            request = await following
            received.append(request.report.WhichOneof("body") or request.WhichOneof("message"))
            if request.HasField("report"):
                yield accepted(request.report)
            else:
                yield pb.WorkResponse(transfer_grants=pb.TransferGrants(id=request.transfer_request.id))
            following = asyncio.ensure_future(anext(requests))
        following.cancel()
        yield NO_MORE_WORK

    async with serving(script) as (_, work):
        work.report(evaluation())
        running = asyncio.create_task(work.run())
        await asyncio.wait_for(dialled.wait(), 20)
        work.report(done())
        granted = asyncio.create_task(work.grants(1, get=["k"]))
        await asyncio.sleep(0.3)
        go.set()
        await asyncio.wait_for(running, 20)
        assert await granted == {}
    assert early == [False]
    assert received == ["evaluation", "result", "transfer_request"]


async def test_a_full_backlog_and_a_transfer_request_fit_one_stream(monkeypatch):
    monkeypatch.setattr(trainer_work, "_MAX_UNACCEPTED", 3)

    async def script(dial, requests, context):
        yield WELCOME
        for _ in range(3):
            yield accepted((await anext(requests)).report)
        request = (await anext(requests)).transfer_request
        yield pb.WorkResponse(transfer_grants=pb.TransferGrants(id=request.id))
        yield NO_MORE_WORK

    async with serving(script) as (_, work):
        for member in "abc":
            work.report(evaluation(member))
        granted = asyncio.create_task(work.grants(1, get=["k"]))
        await asyncio.sleep(0)
        await asyncio.wait_for(work.run(), 20)
        assert await asyncio.wait_for(granted, 20) == {}


async def test_a_stream_that_was_cut_leaves_no_task_behind(ceilings):
    async def script(dial, requests, context):
        yield WELCOME
        if dial <= 5:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "restarting")
        yield NO_MORE_WORK

    async with serving(script) as (_, work):
        await asyncio.wait_for(work.run(), 20)
        consumers = lambda: [t for t in asyncio.all_tasks() if "_consume_request_iterator" in repr(t.get_coro())]  # noqa: E731
        await until(lambda: not consumers())


async def test_a_repeated_assignment_is_taken_once_and_a_cut_loses_none():
    async def script(dial, requests, context):
        yield WELCOME
        yield assigned(1)
        if dial == 1:
            await until(work.assignments.qsize)
            await context.abort(grpc.StatusCode.UNAVAILABLE, "restarting")
        yield assigned(2)
        yield NO_MORE_WORK

    async with serving(script) as (_, work):
        await asyncio.wait_for(work.run(), 20)
        got = [work.assignments.get_nowait() for _ in range(work.assignments.qsize())]
    assert [assignment and assignment.id for assignment in got] == [1, 2, None]


@pytest.mark.parametrize(
    ("result", "again"),
    [
        (done(), False),
        (failed(pb.AssignmentFailure.CAUSE_GENERATED_CODE), False),
        (failed(pb.AssignmentFailure.CAUSE_INFRASTRUCTURE), True),
    ],
)
async def test_only_an_assignment_that_failed_on_the_machine_is_taken_again(result, again):
    async def script(dial, requests, context):
        yield WELCOME
        yield assigned(1)
        report = (await anext(requests)).report
        yield assigned(1)  # before the report is recorded
        yield accepted(report)
        yield assigned(1)
        yield NO_MORE_WORK

    async with serving(script) as (_, work):
        work.report(result)
        await asyncio.wait_for(work.run(), 20)
        got = [work.assignments.get_nowait() for _ in range(work.assignments.qsize())]
    assert [assignment and assignment.id for assignment in got] == [1, *([1] if again else []), None]


async def test_reports_of_a_cancelled_assignment_are_dropped_and_others_are_not():
    received = []

    async def script(dial, requests, context):
        yield WELCOME
        if dial == 1:
            yield pb.WorkResponse(cancel_assignment=pb.CancelAssignment(assignment=1, reason="superseded"))
            await until(work.cancellation(1).is_set)
            await context.abort(grpc.StatusCode.UNAVAILABLE, "restarting")
        for _ in range(1):
            report = (await anext(requests)).report
            received.append((report.assignment, report.item))
            yield accepted(report)
        yield NO_MORE_WORK

    async with serving(script) as (_, work):
        work.report(evaluation("a", assignment=1))
        work.report(evaluation("b", assignment=2))
        first, second = work.cancellation(1), work.cancellation(2)
        running = asyncio.create_task(work.run())
        await asyncio.wait_for(first.wait(), 20)
        assert not second.is_set()
        await asyncio.wait_for(running, 20)
        assert await work.drain(1)
    assert received == [(2, "evaluation/b/64")]


async def test_a_stop_cancels_current_and_later_assignments():
    async def script(dial, requests, context):
        yield WELCOME
        yield pb.WorkResponse(stop=pb.Stop(reason="superseded"))
        await asyncio.sleep(60)

    async with serving(script) as (_, work):
        current = work.cancellation(1)
        running = asyncio.create_task(work.run())
        await asyncio.wait_for(work.stopped.wait(), 20)
        assert current.is_set() and work.cancellation(2).is_set() and work.stop_reason == "superseded"
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def ended_early(number):
    task = pb.TrainAssignment(final_steps={"a": 64})
    return pb.WorkResponse(assignment=pb.Assignment(id=number, train=task))


@pytest.mark.parametrize("begun", [True, False])
async def test_a_training_that_ends_by_itself_just_then_is_taken_again(begun):
    stream = WorkStream(address="127.0.0.1:1", hello=HELLO, redial_seconds=1.0)
    stream._receive(assigned(1))
    assert (await stream.assignments.get()).id == 1
    early_end = stream.early_end(1)
    stream._receive(ended_early(1))
    stream._receive(ended_early(1))  # once more, after a redial
    assert early_end.requested.is_set() and dict(early_end.final_steps) == {"a": 64} and stream.assignments.empty()
    early_end.begun = begun
    stream.forget(1)
    assert stream.assignments.empty() == begun
    if not begun:
        assert dict((await stream.assignments.get()).train.final_steps) == {"a": 64}


async def test_a_decision_after_the_result_is_taken_as_work():
    stream = WorkStream(address="127.0.0.1:1", hello=HELLO, redial_seconds=1.0)
    stream._receive(assigned(1))
    await stream.assignments.get()
    stream.early_end(1)
    stream.forget(1)
    stream._receive(ended_early(1))
    assert dict((await stream.assignments.get()).train.final_steps) == {"a": 64}
    assert stream.assignments.empty()
