"""Creates assignments, waits for them, and counts their environment steps.

A wait is not a durable step but a loop of polls, which are steps, and waits for a change.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from dressage.api.internal.v1 import run_service_pb2 as work
from dressage.api.v1 import session_pb2 as v1

from dressage_orchestrator import metrics, resource_names
from dressage_orchestrator.database.assignments import AssignmentRow
from dressage_orchestrator.lifecycle.budget import wall_time_deadline, wall_time_exhausted
from dressage_orchestrator.lifecycle.context import Json, SessionContext
from dressage_orchestrator.lifecycle.method import Load
from dressage_orchestrator.lifecycle.outcome import Exhausted


class BackgroundWork(Protocol):
    """Work that proceeds while the workflow waits for an assignment."""

    def poll(self) -> Json:
        """Read the state that a poll records. In a step."""
        ...

    def advance(self, state: Json) -> bool:
        """Act on the state of a poll; whether all work is done. Outside of steps."""
        ...


def assign(
    context: SessionContext, number: int, ident: str, task: work.Assignment, *, members: Sequence[v1.Member] = ()
) -> str:
    """Create an assignment and ensure that it has a trainer; returns its full name.

    An existing assignment is used. One that failed or was cancelled in an earlier epoch continues from its checkpoint.

    :param task: the work; name and cores are set here.
    """
    context.step(f"start:{number}:{ident}", lambda: start(context, number, ident, task, members=members))
    return resource_names.assignment_name(context.session, number, ident)


def start(
    context: SessionContext, number: int, ident: str, task: work.Assignment, *, members: Sequence[v1.Member] = ()
) -> None:
    """Create an assignment as `assign` does. Only inside a step, for methods that combine it with other work."""
    name = resource_names.assignment_name(context.session, number, ident)
    controller = context.engine.controller
    task.name, task.cores = name, controller.cores(context.spec.pool)
    context.store.create_assignment(number, task, members)
    # A copy for readers: the row has the task, so a power failure may lose this file (decision 0053).
    context.put_json(number, f"assignments/{ident}/spec.json", task, synced=False)
    # In the same epoch a failed assignment is a result: a repeated step must not open it again.
    if context.epoch > 0:
        context.store.reopen_assignment(name)
    context.call(controller.ensure(context.session))


def wait(
    context: SessionContext,
    name: str,
    *,
    kind: str = "",
    load: Load | None = None,
    background: BackgroundWork | None = None,
    within_wall_time: bool = True,
) -> AssignmentRow:
    """Wait until the assignment and the background work have ended.

    :param kind: kind of training under which its speed is recorded, for estimates; empty: not recorded.
    :param load: under which it is recorded too; None: its speed does not depend on it.
    :param within_wall_time: whether the session's wall-clock budget limits the wait; false for the report at the end.
    :return: the assignment with its members and candidates.
    :raises Exhausted: when the session's wall-clock budget is exhausted; the assignment is then cancelled.
    """
    parts = resource_names.parse_assignment(name)
    tag = f"{parts.iteration}:{parts.assignment}"
    polls = 0
    _wait_before_first_poll(context, name, within_wall_time=within_wall_time)
    while True:
        polls += 1
        state = context.step(
            f"poll:{tag}:{polls}", lambda: _poll(context, name, background, within_wall_time=within_wall_time)
        )
        if state["late"]:
            context.step(f"stop:{tag}", lambda: _cancel(context, name))
            raise _out_of_time()
        if (background is None or background.advance(state["background"])) and state["ended"]:
            break
        context.wait(state["patience"])
    context.step(f"account:{tag}", lambda: _account(context, context.store.assignment(name), kind, load))
    # The rows of an ended assignment do not change, so this read is deterministic.
    return context.store.assignment(name)


def _out_of_time() -> Exhausted:
    return Exhausted("the session's wall-clock budget is exhausted", v1.EXHAUSTION_REASON_WALL_TIME)


def finish(context: SessionContext, name: str, step: str, then: Callable[[AssignmentRow], Json]) -> Json:
    """Wait until an assignment has ended, and process its result in the step that finds the end.

    One step instead of three, for methods with many short assignments.

    :param step: name of the step; further polls add their number.
    :param then: processes the ended assignment, inside the step; may be repeated.
    :return: the result of ``then``.
    :raises Exhausted: when the session's wall-clock budget is exhausted; the assignment is then cancelled.
    """
    polls = 0
    while True:
        polls += 1
        _wait_until_ended(context, name)
        state = context.step(step if polls == 1 else f"{step}:{polls}", lambda: _poll_and_process(context, name, then))
        if state["late"]:
            context.step(f"stop:{step}", lambda: _cancel(context, name))
            raise _out_of_time()
        if "result" in state:  # not if it ended between the two reads of a poll: that is for the next one to process
            return state["result"]


def _poll_and_process(context: SessionContext, name: str, then: Callable[[AssignmentRow], Json]) -> Json:
    row = context.store.assignment(name)
    if not row.ended:
        return _poll(context, name, None)
    _account(context, row, "", None)
    return {"ended": True, "late": False, "result": then(row)}


def _wait_until_ended(context: SessionContext, name: str) -> None:
    """Wait until the assignment has ended, a poll is due or a cancellation is requested.

    As in `_wait_before_first_poll`, these reads are not steps: they determine the duration of the wait only.
    """
    end: float | None = None
    while not context.is_replay and not context.store.assignment_ended(name) and context.store.cancel_reason() is None:
        if end is None:
            # Once for all wake-ups: each one would otherwise postpone the poll that enforces the wall-clock budget.
            end = time.monotonic() + _patience(context, context.store.get())
        seconds = end - time.monotonic()
        if seconds <= 0:
            return
        context.wait(seconds)


def _wait_before_first_poll(context: SessionContext, name: str, *, within_wall_time: bool) -> None:
    """Wait before the first poll, which would otherwise be too early and cost an additional step for short assignments.

    These reads are not steps: they determine the duration of the wait, but not the course of the workflow.
    """
    if not context.store.assignment(name).ended:
        context.wait(_patience(context, context.store.get(), within_wall_time=within_wall_time))


def _patience(context: SessionContext, session: v1.Session, *, within_wall_time: bool = True) -> float:
    """Seconds until the next poll without a change: at the latest at the wall-clock deadline, if it limits the wait."""
    patience, end = context.engine.settings.wait_seconds, wall_time_deadline(session) if within_wall_time else None
    # Not 0 at the deadline: each poll is a recorded step.
    return patience if end is None else min(patience, max(0.1, end - context.store.now().timestamp()))


def _cancel(context: SessionContext, name: str) -> None:
    context.call(context.engine.controller.cancel_assignment(name))


def _poll(
    context: SessionContext, name: str, background: BackgroundWork | None, *, within_wall_time: bool = True
) -> Json:
    row, session = context.store.assignment(name), context.store.get()
    background_state = background.poll() if background is not None else None
    now = context.store.now()
    late = within_wall_time and not row.ended and wall_time_exhausted(session, now=now)
    if not row.ended and not late:
        # Also starts a trainer for an assignment that has lost it for any reason.
        context.call(context.engine.controller.ensure(context.session))
    patience = _patience(context, session, within_wall_time=within_wall_time)
    return {"ended": row.ended, "late": late, "patience": patience, "background": background_state}


def _account(context: SessionContext, row: AssignmentRow, kind: str, load: Load | None) -> None:
    """Count the environment steps of an ended assignment."""
    assignment = row.assignment

    def count() -> bool:
        context.store.count_env_steps()
        return context.store.mark(f"account/{row.name}")

    # Metrics and speeds are outside of the transaction; a repeated step must not count them twice.
    if not context.store.together(count):
        return
    pool = context.spec.pool
    steps = sum(member.env_steps for member in assignment.members) + assignment.search.env_steps
    steps += sum(sum(candidate.lengths) for candidate in assignment.candidates)
    metrics.ENV_STEPS.labels(pool, context.environment).inc(steps)
    seconds = (assignment.end_time.ToMicroseconds() - assignment.start_time.ToMicroseconds()) / 1e6
    # After a failure the time includes the lost attempt, and the speed would be too low for estimates.
    if kind and assignment.state == v1.ASSIGNMENT_STATE_SUCCEEDED and steps and seconds > 0 and not assignment.failures:
        for key in (kind, load.of_kind(kind)) if load else (kind,):
            context.store.record_speed(key, pool, steps / seconds)
