"""The supervisor's life: assignments one after another, each with its result, and the exit codes at its end."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "fakes"))

from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.errors import Unavailable
from dressage_trainer import supervisor
from dressage_trainer.assignments.context import AssignmentContext
from dressage_trainer.settings import TrainerSettings
from run_service import RUN, FakeRunService

Failure = pb.AssignmentFailure
Work = Callable[[AssignmentContext], Awaitable[pb.AssignmentResult | None]]


def assignments(count: int) -> list[pb.Assignment]:
    return [pb.Assignment(id=number, score=pb.ScoreAssignment()) for number in range(1, count + 1)]


async def done(_: AssignmentContext) -> pb.AssignmentResult:
    return pb.AssignmentResult(score=pb.ScoreResult(episodes=1))


def raising(error: Exception) -> Work:
    async def work(_: AssignmentContext) -> None:
        raise error

    return work


async def until_ended(context: AssignmentContext) -> None:
    await supervisor.first_of(context.cancelled, context.terminate)


@pytest.fixture
def lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a supervisor in this process that does one work after the other."""
    contexts: list[AssignmentContext] = []

    async def run(service: FakeRunService, *works: Work, **more: Any) -> Any:
        left = iter(works)

        async def perform(context: AssignmentContext, kind: str | None) -> Any:
            assert context.scratch.is_dir() and not list(context.scratch.iterdir())
            (context.scratch / "left").write_text("x")
            contexts.append(context)
            return await next(left)(context)

        monkeypatch.setattr(supervisor, "_perform", perform)
        settings = TrainerSettings(
            address=service.address, run=RUN, token="token", compiled_cache=tmp_path / "compiled", **more
        )  # type: ignore[call-arg]
        began = time.monotonic()
        code = await asyncio.wait_for(supervisor.supervise(settings, tmp_path / "scratch", began=began), 30)
        return code

    (tmp_path / "scratch").mkdir()
    run.contexts = contexts  # type: ignore[attr-defined]
    return run


async def test_assignments_are_done_in_sequence_until_there_are_none(lease: Any, tmp_path: Path):
    with FakeRunService(tmp_path / "store", *assignments(3)) as service:
        assert await lease(service, done, done, done) == 0
        assert {number: result.score.episodes for number, result in service.results().items()} == {1: 1, 2: 1, 3: 1}
    assert [context.assignment.id for context in lease.contexts] == [1, 2, 3]
    assert not list((tmp_path / "scratch").glob("assignment-*"))


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "p10.npz"), "OUT_OF_DISK"),
        (OSError(errno.EIO, "Input/output error"), "TRAINER_IO"),
        (Unavailable("the store is away", reason="STORE_AWAY"), "STORE_AWAY"),
        (ZeroDivisionError("a defect"), "TRAINER_FAILED"),
    ],
)
async def test_an_error_is_the_assignments_result_and_the_next_one_is_done(
    lease: Any, tmp_path: Path, error: Exception, reason: str
):
    with FakeRunService(tmp_path / "store", *assignments(2)) as service:
        assert await lease(service, raising(error), done) == 0
        results = service.results()
    failure = results[1].failure
    assert (failure.cause, failure.failure.reason) == (Failure.CAUSE_INFRASTRUCTURE, reason)
    assert str(error) in failure.failure.message
    assert results[2].HasField("score")


async def test_work_that_is_not_known_is_refused(tmp_path: Path):
    result = await supervisor._perform(None, None)  # type: ignore[arg-type]
    assert result is not None and result.failure.cause == Failure.CAUSE_ASSIGNMENT
    assert result.failure.failure.reason == "ASSIGNMENT_UNKNOWN"


async def test_a_cancelled_assignment_has_no_result_and_the_next_one_is_done(lease: Any, tmp_path: Path):
    with FakeRunService(tmp_path / "store", *assignments(2)) as service:

        async def cancelled(context: AssignmentContext) -> pb.AssignmentResult:
            service.cancel(1)
            await context.cancelled.wait()
            context.report("warning/1", warning=pb.WarningReport(reason="LATE"))
            return pb.AssignmentResult(score=pb.ScoreResult(episodes=7))

        assert await lease(service, cancelled, done) == 0
        reports = [report for _, report in service.reports.queue]
    assert [(report.assignment, report.item) for report in reports] == [(2, "result")]


@pytest.mark.parametrize("during", ["an assignment", "a wait"])
async def test_sigterm_ends_with_75(lease: Any, tmp_path: Path, during: str):
    with FakeRunService(tmp_path / "store", *assignments(1), keep=True) as service:

        async def work(context: AssignmentContext) -> pb.AssignmentResult | None:
            asyncio.get_running_loop().call_later(0.3, os.kill, os.getpid(), signal.SIGTERM)
            return await done(context) if during == "a wait" else await until_ended(context)

        assert await lease(service, work) == 75
        assert bool(service.results()) == (during == "a wait")


@pytest.mark.parametrize("during", ["an assignment", "a wait"])
async def test_the_deadline_counts_from_the_start_and_ends_with_75(lease: Any, tmp_path: Path, during: str):
    began = time.monotonic()
    with FakeRunService(tmp_path / "store", *assignments(1), keep=True) as service:
        work = done if during == "a wait" else until_ended
        assert await lease(service, work, deadline_seconds=4.0) == 75
        assert bool(service.results()) == (during == "a wait")
    # A tenth is left for the checkpoint.
    assert 3.5 < time.monotonic() - began < 20.0


async def test_the_margin_before_the_deadline_is_bounded(monkeypatch: pytest.MonkeyPatch):
    delays = []
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "call_later", lambda delay, *_: delays.append(delay))
    now = time.monotonic()
    for seconds, began in ((0.0, now), (100.0, now), (36_000.0, now - 1_000.0), (10.0, now - 60.0)):
        supervisor._watch_deadline(seconds, began, asyncio.Event())
    assert delays == pytest.approx([90.0, 36_000.0 - 60.0 - 1_000.0, 0.0], abs=1.0)


async def test_a_stop_ends_with_0_and_takes_no_more(lease: Any, tmp_path: Path):
    with FakeRunService(tmp_path / "store", *assignments(2)) as service:

        async def stopped(context: AssignmentContext) -> None:
            service.send(pb.WorkResponse(stop=pb.Stop(reason="superseded")))
            await context.cancelled.wait()

        assert await lease(service, stopped) == 0
        assert not service.results()


async def test_without_an_orchestrator_it_fails(lease: Any, tmp_path: Path):
    with FakeRunService(tmp_path / "store") as service:
        pass
    assert await lease(service, redial_seconds=0.5) == 1


async def test_processes_are_started_ahead_in_a_wait_and_not_between_assignments(
    lease: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(supervisor, "_IDLE_SECONDS", 2.0)
    refills: list[float] = []
    monkeypatch.setattr(supervisor.Sandboxes, "refill", lambda _: refills.append(time.monotonic()))
    ended: list[float] = []

    async def last(context: AssignmentContext) -> pb.AssignmentResult:
        assert not refills
        ended.append(time.monotonic())
        asyncio.get_running_loop().call_later(4.0, os.kill, os.getpid(), signal.SIGTERM)
        return await done(context)

    with FakeRunService(tmp_path / "store", *assignments(3), keep=True) as service:
        assert await lease(service, done, done, last) == 75
    assert len(refills) == 1 and refills[0] - ended[0] > 1.9


async def test_the_next_trainer_gets_what_was_finished(lease: Any, tmp_path: Path):
    with FakeRunService(tmp_path / "store", *assignments(1)) as service:

        async def interrupted(context: AssignmentContext) -> None:
            context.report("warning/1", warning=pb.WarningReport(reason="ONE"))
            os.kill(os.getpid(), signal.SIGTERM)
            await context.terminate.wait()

        assert await lease(service, interrupted) == 75

        async def resumed(context: AssignmentContext) -> pb.AssignmentResult:
            assert context.finished("warning/1") and not context.finished("warning/2")
            return await done(context)

        assert await lease(service, resumed) == 0
        assert service.repeated == []
