"""Rules of leases: when a run is given back, and the races between a release, new work and a cancellation."""

from __future__ import annotations

import asyncio

import pytest
from dressage.api.v1 import session_pb2 as v1
from dressage_orchestrator.database import assignments, events, runs
from dressage_orchestrator.database.engine import Database
from dressage_orchestrator.database.reports import Fence
from dressage_orchestrator.launch.controller import RunController
from dressage_orchestrator.launch.protocol import AttemptResult, ExitKind

from tests.unit.orchestrator.leases import (
    FIRST,
    R1,
    R2,
    SECOND,
    Recorder,
    add,
    add_session,
    begun,
    done,
    gone,
    make_controller,
    next_work,
    run_state,
    say_hello,
    state_of,
    take_up,
)

# Giving back


async def idle(database: Database, controller: RunController) -> None:
    add(database, "first")
    await begun(database, controller)
    next_work(database, controller)
    done(database, 1, 1)


async def test_an_idle_run_is_released_after_its_time(database: Database, launcher: Recorder) -> None:
    controller = make_controller(database, launcher, idle_seconds=0.3)
    await idle(database, controller)
    waiting = next_work(database, controller, served=(1,))
    assert waiting.fence is Fence.OPEN and 0 < waiting.patience <= 0.3
    await asyncio.sleep(waiting.patience)
    assert next_work(database, controller, served=(1,)).fence is Fence.DONE
    assert run_state(database, R1) == "succeeded"


async def test_an_idle_run_without_a_stream_is_released_by_reconcile(database: Database, launcher: Recorder) -> None:
    controller = make_controller(database, launcher, idle_seconds=0.0)
    await idle(database, controller)
    await controller.reconcile()
    assert run_state(database, R1) == "succeeded"


async def test_release_ends_an_idle_run_at_once(database: Database, controller: RunController) -> None:
    await idle(database, controller)
    assert next_work(database, controller, served=(1,)).fence is Fence.OPEN
    await controller.release("s")
    assert next_work(database, controller, served=(1,)).fence is Fence.DONE
    await controller.release("s")  # nothing to give back
    await controller.release("unknown")


async def test_release_waits_for_open_assignments_and_new_ones_revert_it(
    database: Database, controller: RunController
) -> None:
    add(database, "first")
    await begun(database, controller)
    next_work(database, controller)
    await controller.release("s")
    assert next_work(database, controller, served=(1,)).fence is Fence.OPEN and run_state(database, R1) == "running"
    add(database, "second")  # takes the release back
    done(database, 1, 1)
    next_work(database, controller, served=(1,))
    done(database, 2, 2)
    assert next_work(database, controller, served=(2,)).fence is Fence.OPEN
    add(database, "third")
    next_work(database, controller)
    await controller.release("s")
    done(database, 3, 3)
    assert next_work(database, controller, served=(3,)).fence is Fence.DONE


async def test_release_stops_a_trainer_that_has_not_connected(
    database: Database, controller: RunController, launcher: Recorder
) -> None:
    name = add(database, "first")
    await controller.ensure("s")
    await controller.cancel_assignment(name)
    await controller.release("s")
    assert run_state(database, R1) == "succeeded" and launcher.stopped == [R1]


async def test_another_queued_session_gets_the_place_of_an_idle_run(
    database: Database, controller: RunController
) -> None:
    await idle(database, controller)
    with database.begin() as tx:
        add_session(tx, "elsewhere", pool="gpu")
        add_session(tx, "other")
    add(database, "first", "elsewhere")
    await controller.ensure("elsewhere")
    assert next_work(database, controller, served=(1,)).fence is Fence.OPEN, "it waits for another pool"
    add(database, "first", "other")
    await controller.ensure("other")
    assert next_work(database, controller, served=(1,)).fence is Fence.DONE


async def test_a_busy_run_is_not_released_for_others(database: Database, controller: RunController) -> None:
    add(database, "first")
    await begun(database, controller)
    with database.begin() as tx:
        add_session(tx, "other")
    add(database, "first", "other")
    await controller.ensure("other")
    assert next_work(database, controller).assignment is not None
    await controller.reconcile()
    assert run_state(database, R1) == "running"


async def test_a_run_queued_within_its_time_releases_no_other(database: Database, launcher: Recorder) -> None:
    controller = make_controller(database, launcher)
    launcher.scheduling_seconds = 0.3
    await idle(database, controller)
    with database.begin() as tx:
        add_session(tx, "other")
    add(database, "first", "other")
    await controller.ensure("other")
    waiting = next_work(database, controller, served=(1,))
    assert waiting.fence is Fence.OPEN and waiting.patience <= 0.3
    await asyncio.sleep(waiting.patience)
    assert next_work(database, controller, served=(1,)).fence is Fence.DONE


@pytest.mark.parametrize("released_first", [True, False])
async def test_an_assignment_added_during_a_release_is_not_lost(
    database: Database, controller: RunController, launcher: Recorder, released_first: bool
) -> None:
    await idle(database, controller)
    if released_first:
        await controller.release("s")  # NoMoreWork is on its way
        add(database, "second")
        await controller.ensure("s")
        assert launcher.started == [("r1", 1), ("r2", 1)]
        assert next_work(database, controller, served=(1,)).fence is Fence.DONE
        gone(launcher)
        await controller.handle_result(AttemptResult(R1, 1, ExitKind.DONE, "exit code 0"))
        say_hello(database, R2, 1)
        task = next_work(database, controller, run=R2).assignment
    else:
        add(database, "second")
        await controller.release("s")
        task = next_work(database, controller, served=(1,)).assignment
        assert launcher.started == [("r1", 1)]
    assert task is not None and task.name == SECOND
    assert state_of(database, SECOND) == ("running", 0)


async def test_release_races_with_new_work_and_loses_none(
    database: Database, controller: RunController, launcher: Recorder
) -> None:
    await idle(database, controller)

    async def ask(number: int) -> None:
        await asyncio.to_thread(add, database, f"a{number}")
        await controller.ensure("s")

    await asyncio.gather(*(controller.release("s") for _ in range(6)), *(ask(number) for number in range(6)))
    with database.begin() as tx:
        live = runs.live(tx, "s")
        assert len(assignments.open_of(tx, "s")) == 6 and len(live) == 1
    assert launcher.has_trainer(live[0].run.name, live[0].run.attempt)


# Cancelling


async def test_cancel_ends_assignments_and_runs_and_stops_trainers(
    database: Database, controller: RunController, launcher: Recorder
) -> None:
    add(database, "first")
    add(database, "second")
    await begun(database, controller)
    take_up(database, R1)
    notified: list[str] = []
    controller.notify = notified.append
    await controller.cancel("s")
    assert state_of(database, FIRST)[0] == state_of(database, SECOND)[0] == run_state(database, R1) == "cancelled"
    assert launcher.stopped == [R1] and notified == ["s"]
    assert next_work(database, controller).fence is Fence.CANCELLED
    with database.begin() as tx:
        assert assignments.reopen(tx, FIRST)
    await controller.ensure("s")
    assert launcher.started[-1] == ("r2", 1)


async def test_events_describe_runs_and_assignments(database: Database, controller: RunController) -> None:
    await idle(database, controller)
    await controller.release("s")
    with database.begin() as tx:
        recorded = list(events.after(tx, "s", 0))
    changes = [
        v1.AssignmentState.Name(event.assignment_changed.state).removeprefix("ASSIGNMENT_STATE_")
        for event in recorded
        if event.HasField("assignment_changed")
    ]
    assert changes == ["PENDING", "RUNNING", "SUCCEEDED"]
    states = [
        v1.RunState.Name(event.run_changed.state).removeprefix("RUN_STATE_")
        for event in recorded
        if event.HasField("run_changed")
    ]
    assert states == ["QUEUED", "STARTING", "RUNNING", "SUCCEEDED"]
    assert all(event.iteration == 1 for event in recorded if event.HasField("assignment_changed"))
