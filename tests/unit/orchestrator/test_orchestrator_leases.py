"""Rules of leases: when a run begins, and whom a failure is counted on."""

from __future__ import annotations

import asyncio
import time

import pytest
from dressage.api.internal.v1 import run_service_pb2 as work
from dressage.api.v1 import session_pb2 as v1
from dressage_orchestrator.api.runs import LeaseState
from dressage_orchestrator.database import assignments, runs, sessions
from dressage_orchestrator.database.engine import Database
from dressage_orchestrator.database.reports import Fence
from dressage_orchestrator.launch.controller import RunController
from dressage_orchestrator.launch.protocol import AttemptResult, ExitKind

from tests.unit.orchestrator.leases import (
    FIRST,
    R1,
    SECOND,
    Recorder,
    add,
    begun,
    done,
    failed,
    gone,
    make_controller,
    next_work,
    report,
    run_state,
    say_hello,
    state_of,
)

# Beginning


async def test_a_run_is_created_once_and_only_for_open_assignments(
    database: Database, controller: RunController, launcher: Recorder
) -> None:
    await controller.ensure("s")
    assert launcher.started == []
    add(database, "first")
    await asyncio.gather(*(controller.ensure("s") for _ in range(8)))
    assert launcher.started == [("r1", 1)]
    launch = launcher.launches[0]
    assert (launch.run, launch.pool, launch.address) == (R1, "cpu", "orchestrator:1")
    add(database, "second")
    await controller.ensure("s")  # a live run takes the second as well
    assert launcher.started == [("r1", 1)]


async def test_an_attempt_before_its_launch_is_not_repeated(
    database: Database, controller: RunController, launcher: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(database, "first")
    begin = controller._next_attempt

    def slow(name: str, seen: int) -> int | None:
        attempt = begin(name, seen)
        time.sleep(0.3)  # the row says attempt 1; the launcher does not know of it yet
        return attempt

    monkeypatch.setattr(controller, "_next_attempt", slow)
    first = asyncio.create_task(controller.ensure("s"))
    await asyncio.sleep(0.15)
    await asyncio.gather(first, controller.ensure("s"))
    assert launcher.started == [("r1", 1)]


@pytest.mark.parametrize("ended", [True, False])
async def test_an_ended_or_cancelled_session_gets_no_trainer(
    database: Database, controller: RunController, launcher: Recorder, ended: bool
) -> None:
    add(database, "first")
    with database.begin() as tx:
        if ended:
            sessions.change(tx, "s", lambda s: setattr(s, "state", v1.SESSION_STATE_FAILED))
        else:
            sessions.request_cancel(tx, "s", "enough")
    await controller.ensure("s")
    await controller.reconcile()
    assert launcher.started == []


async def test_assignments_without_a_run_are_found_by_reconcile(
    database: Database, controller: RunController, launcher: Recorder
) -> None:
    add(database, "first")  # and its server died before `ensure`
    await controller.reconcile()
    assert launcher.started == [("r1", 1)]
    again = Recorder()
    assert await make_controller(database, again).recover() == 1 and again.started == [("r1", 2)]


async def test_a_run_cancelled_in_the_queue_starts_no_trainer(
    database: Database, controller: RunController, launcher: Recorder
) -> None:
    name = add(database, "first")
    await controller.ensure("s")
    await controller.cancel_assignment(name)
    assert not await launcher.starting[R1]()
    assert run_state(database, R1) == "succeeded" and state_of(database, name) == ("cancelled", 0)


# Serving


async def test_assignments_are_served_one_after_another(database: Database, controller: RunController) -> None:
    add(database, "first")
    add(database, "second")
    await begun(database, controller)
    task = next_work(database, controller).assignment
    assert task is not None and (task.id, task.name) == (1, FIRST)
    with database.begin() as tx:
        assert runs.get(tx, R1).run.assignment == FIRST and assignments.get(tx, FIRST).assignment.run == R1
    assert state_of(database, FIRST) == ("running", 0) and state_of(database, SECOND) == ("pending", 0)
    assert next_work(database, controller, served=(1,)) == LeaseState(Fence.OPEN)
    # After a reconnect the assignment is sent again, because the trainer may not have received it.
    assert next_work(database, controller).assignment == task
    done(database, 1, 1)
    then = next_work(database, controller, served=(1,))
    assert then.assignment is not None and then.assignment.name == SECOND and then.cancelled == ()


async def test_the_next_attempt_gets_what_earlier_ones_did(
    database: Database, controller: RunController, launcher: Recorder
) -> None:
    add(database, "first")
    await begun(database, controller)
    first = next_work(database, controller).assignment
    assert first is not None and not first.finished_items and not first.checkpoint and not first.stopped
    failure = v1.Failure(reason="REWARD_NOT_FINITE", message="the term cost is not finite")
    refs = [work.PolicyRef(member=m, bundle=f"members/{m}/policies/50", env_step=50) for m in ("a", "b")]
    for sequence, ref in enumerate(refs, start=1):
        body = work.PolicyReport(policy=ref)
        report(database, sequence, 1, item=f"policy/{ref.member}/50", policy=body)
    evaluation = work.EvaluationReport(member="a", evaluation=v1.Evaluation(env_step=50))
    report(database, 3, 1, item="evaluation/a/50", evaluation=evaluation)
    checkpoint = work.CheckpointReport(key="checkpoints/7.safetensors")
    report(database, 4, 1, item="checkpoint/checkpoints/7.safetensors", checkpoint=checkpoint)
    gone(launcher)
    await controller.handle_result(AttemptResult(R1, 1, ExitKind.CHECKPOINTED, "exit code 75"))
    assert launcher.started == [("r1", 1), ("r1", 2)] and state_of(database, FIRST) == ("pending", 0)
    assert say_hello(database, R1, 2) is Fence.OPEN
    then = next_work(database, controller, 2).assignment
    assert then is not None and then.checkpoint == "checkpoints/7.safetensors"
    assert list(then.finished_items) == ["evaluation/a/50", "policy/a/50", "policy/b/50"]
    assert [entry.member for entry in then.pending_evaluations] == ["b"]
    stopped = work.MemberReport(member="b", failure=failure)
    report(database, 1, 1, attempt=2, item="member/b", member=stopped)
    last = next_work(database, controller, 2).assignment
    assert last is not None and dict(last.stopped) == {"b": failure} and not last.pending_evaluations


async def test_a_cancelled_assignment_is_cancelled_on_the_live_stream(
    database: Database, controller: RunController
) -> None:
    add(database, "first")
    await begun(database, controller)
    next_work(database, controller)
    await controller.cancel_assignment(FIRST)
    after = next_work(database, controller, served=(1,))
    assert (after.fence, after.cancelled, after.assignment) == (Fence.OPEN, (1,), None)
    with database.begin() as tx:
        assert assignments.reopen(tx, FIRST)
    again = next_work(database, controller, served=(1,))
    assert again.cancelled == (1,) and again.assignment is not None
    assert (again.assignment.id, again.assignment.name) == (2, FIRST)


# Failures


async def test_a_failed_attempt_counts_for_its_assignment(
    database: Database, controller: RunController, launcher: Recorder
) -> None:
    add(database, "first")
    add(database, "second")
    await begun(database, controller)
    next_work(database, controller)
    notified: list[str] = []
    controller.notify = notified.append
    for attempt in (1, 2):
        gone(launcher, attempt)
        await controller.handle_result(
            AttemptResult(R1, attempt, ExitKind.FAILED, "exit code 1; its log ends with:\nwhy")
        )
        if attempt == 1:
            assert state_of(database, FIRST) == ("pending", 1) and launcher.started[-1] == ("r1", 2)
            say_hello(database, R1, 2)
            next_work(database, controller, 2)
    assert state_of(database, FIRST) == ("failed", 1) and state_of(database, SECOND) == ("pending", 0)
    with database.begin() as tx:
        stored = assignments.get(tx, FIRST).assignment
        assert stored.failure.reason == "TRAINER_FAILED" and stored.failure.message.endswith("why")
        assert not stored.generated_code_fault
    assert launcher.started[-1] == ("r1", 3) and notified == ["s", "s"]  # the run lives on for the second


async def test_a_failure_counts_for_the_current_assignment_not_the_oldest(
    database: Database, controller: RunController, launcher: Recorder
) -> None:
    for name in ("first", "second"):
        add(database, name)
    await begun(database, controller)
    with database.begin() as tx:
        assignments.begin(tx, SECOND, R1)
        runs.set_assignment(tx, R1, SECOND)
    gone(launcher)
    await controller.handle_result(AttemptResult(R1, 1, ExitKind.FAILED, "exit code 1"))
    assert state_of(database, FIRST) == ("pending", 0) and state_of(database, SECOND) == ("pending", 1)


async def test_a_run_without_hello_counts_for_the_oldest_assignment(
    database: Database, controller: RunController, launcher: Recorder
) -> None:
    add(database, "first")
    await controller.ensure("s")
    await controller.starting(R1, 1)
    for attempt in (1, 2):
        gone(launcher, attempt)
        await controller.handle_result(AttemptResult(R1, attempt, ExitKind.NO_HELLO, "no hello within 60 s"))
    assert state_of(database, FIRST) == ("failed", 1) and run_state(database, R1) == "failed"
    assert launcher.started == [("r1", 1), ("r1", 2)]
    with database.begin() as tx:
        assert assignments.get(tx, FIRST).assignment.failure.reason == "TRAINER_UNRESPONSIVE"
        assert runs.get(tx, R1).run.failure.reason == "TRAINER_UNRESPONSIVE"
    add(database, "second")
    await controller.ensure("s")
    assert launcher.started[-1] == ("r2", 1)


async def test_a_reported_infrastructure_failure_is_counted_once(
    database: Database, controller: RunController, launcher: Recorder
) -> None:
    add(database, "first")
    await begun(database, controller)
    next_work(database, controller)
    fault = failed("OUT_OF_DISK", work.AssignmentFailure.CAUSE_INFRASTRUCTURE)
    assert report(database, 1, 1, item="result", result=fault) is Fence.OPEN
    assert next_work(database, controller, served=(1,)).fence is Fence.SUPERSEDED
    assert say_hello(database, R1, 1) is Fence.SUPERSEDED  # nor on another stream
    gone(launcher)
    await controller.handle_result(AttemptResult(R1, 1, ExitKind.FAILED, "exit code 1"))
    assert state_of(database, FIRST) == ("pending", 1) and launcher.started[-1] == ("r1", 2)
    assert say_hello(database, R1, 2) is Fence.OPEN and next_work(database, controller, 2).assignment is not None
    report(database, 1, 1, attempt=2, item="result", result=fault)
    assert state_of(database, FIRST) == ("failed", 1)
    with database.begin() as tx:
        assert assignments.get(tx, FIRST).assignment.failure.message == "OUT_OF_DISK in the trainer's words"


async def test_an_error_of_generated_code_fails_only_the_assignment(
    database: Database, controller: RunController, launcher: Recorder
) -> None:
    add(database, "first")
    add(database, "second")
    await begun(database, controller)
    next_work(database, controller)
    report(database, 1, 1, item="result", result=failed("REWARD_RAISED", work.AssignmentFailure.CAUSE_GENERATED_CODE))
    assert state_of(database, FIRST) == ("failed", 0)
    then = next_work(database, controller, served=(1,))
    assert then.fence is Fence.OPEN and then.assignment is not None and then.assignment.name == SECOND
    assert launcher.started == [("r1", 1)]


async def test_a_trainer_that_exits_early_is_counted(
    database: Database, controller: RunController, launcher: Recorder
) -> None:
    add(database, "first")
    await begun(database, controller)
    next_work(database, controller)
    gone(launcher)
    await controller.handle_result(AttemptResult(R1, 1, ExitKind.DONE, "exit code 0"))
    assert state_of(database, FIRST) == ("pending", 1) and launcher.started[-1] == ("r1", 2)


@pytest.mark.parametrize("progressed", [True, False])
async def test_a_deadline_counts_only_without_progress(
    database: Database, controller: RunController, launcher: Recorder, progressed: bool
) -> None:
    add(database, "first")
    await begun(database, controller)
    next_work(database, controller)
    if progressed:
        report(database, 1, 1, checkpoint=work.CheckpointReport(key="checkpoints/1.safetensors"))
    gone(launcher)
    await controller.handle_result(AttemptResult(R1, 1, ExitKind.DEADLINE, "m", reason="DEADLINE_EXCEEDED", remedy="r"))
    assert state_of(database, FIRST) == ("pending", 0 if progressed else 1)
    assert launcher.started[-1] == ("r1", 2)


async def test_a_final_result_fails_all_open_assignments(
    database: Database, controller: RunController, launcher: Recorder
) -> None:
    add(database, "first")
    add(database, "second")
    await controller.ensure("s")
    gone(launcher)
    await controller.handle_result(
        AttemptResult(R1, 1, ExitKind.FAILED, "no pool", final=True, reason="POOL_UNKNOWN", remedy="r")
    )
    assert state_of(database, FIRST)[0] == state_of(database, SECOND)[0] == run_state(database, R1) == "failed"
    assert launcher.started == [("r1", 1)]


async def test_an_end_counts_for_the_newest_attempt_only(
    database: Database, controller: RunController, launcher: Recorder
) -> None:
    add(database, "first")
    await begun(database, controller)
    gone(launcher)
    for _ in range(3):  # word of the same end may come again
        await controller.handle_result(AttemptResult(R1, 1, ExitKind.FAILED, "exit code 1"))
    assert state_of(database, FIRST) == ("pending", 1) and launcher.started == [("r1", 1), ("r1", 2)]


async def test_a_trainer_that_dies_idle_ends_its_run(
    database: Database, controller: RunController, launcher: Recorder
) -> None:
    add(database, "first")
    await begun(database, controller)
    next_work(database, controller)
    done(database, 1, 1)
    gone(launcher)
    await controller.handle_result(AttemptResult(R1, 1, ExitKind.FAILED, "exit code 1"))
    assert run_state(database, R1) == "failed" and launcher.started == [("r1", 1)]
