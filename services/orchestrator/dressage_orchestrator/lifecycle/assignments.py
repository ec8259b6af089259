"""Creates assignments, waits for them, and counts their environment steps.

A wait is not a durable step but a loop of polls, which are steps, and waits for a change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dressage.api.internal.v1 import run_service_pb2 as work
from dressage.api.v1 import session_pb2 as v1

from dressage_orchestrator import metrics, resource_names
from dressage_orchestrator.database.assignments import AssignmentRow
from dressage_orchestrator.lifecycle.budget import wall_time_deadline, wall_time_exhausted
from dressage_orchestrator.lifecycle.context import Json, SessionContext
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
    name = resource_names.assignment_name(context.session, number, ident)
    controller = context.engine.controller

    def start() -> None:
        task.name, task.cores = name, controller.cores(context.spec.pool)
        context.store.create_assignment(number, task, members)
        context.put_json(number, f"assignments/{ident}/spec.json", task)
        if context.epoch > 0:
            context.store.reopen_assignment(name)
        context.call(controller.ensure(context.session))

    context.step(f"start:{number}:{ident}", start)
    return name


def wait(
    context: SessionContext, name: str, *, kind: str = "", background: BackgroundWork | None = None
) -> AssignmentRow:
    """Wait until the assignment and the background work have ended.

    :param kind: kind of training under which its speed is recorded, for estimates; empty: not recorded.
    :return: the assignment with its members and candidates.
    :raises Exhausted: when the session's wall-clock budget is exhausted; the assignment is then cancelled.
    """
    parts = resource_names.parse_assignment(name)
    tag = f"{parts.iteration}:{parts.assignment}"
    polls = 0
    _wait_before_first_poll(context, name)
    while True:
        polls += 1
        state = context.step(f"poll:{tag}:{polls}", lambda: _poll(context, name, background))
        if state["late"]:
            context.step(f"stop:{tag}", lambda: _cancel(context, name))
            raise Exhausted("the session's wall-clock budget is exhausted", kind="wall_time")
        if (background is None or background.advance(state["background"])) and state["ended"]:
            break
        context.wait(state["patience"])
    context.step(f"account:{tag}", lambda: _account(context, name, kind))
    # The rows of an ended assignment do not change, so this read is deterministic.
    return context.store.assignment(name)


def _wait_before_first_poll(context: SessionContext, name: str) -> None:
    """Wait before the first poll, which would otherwise be too early and cost an additional step for short assignments.

    These reads are not steps: they determine the duration of the wait, but not the course of the workflow.
    """
    if not context.store.assignment(name).ended:
        context.wait(_patience(context, context.store.get()))


def _patience(context: SessionContext, session: v1.Session) -> float:
    """Seconds until the next poll without a change: at the latest at the session's wall-clock deadline."""
    patience, end = context.engine.settings.wait_seconds, wall_time_deadline(session)
    return patience if end is None else min(patience, max(0.1, end - context.store.now().timestamp()))


def _cancel(context: SessionContext, name: str) -> None:
    context.call(context.engine.controller.cancel_assignment(name))


def _poll(context: SessionContext, name: str, background: BackgroundWork | None) -> Json:
    row, session = context.store.assignment(name), context.store.get()
    background_state = background.poll() if background is not None else None
    now = context.store.now()
    late = not row.ended and wall_time_exhausted(session, now=now)
    if not row.ended and not late:
        # Also starts a trainer for an assignment that has lost it for any reason.
        context.call(context.engine.controller.ensure(context.session))
    patience = _patience(context, session)
    return {"ended": row.ended, "late": late, "patience": patience, "background": background_state}


def _account(context: SessionContext, name: str, kind: str) -> None:
    assignment = context.store.assignment(name).assignment
    context.store.count_env_steps()
    if not context.store.mark(f"account/{name}"):
        return
    pool = context.spec.pool
    steps = sum(member.env_steps for member in assignment.members)
    metrics.ENV_STEPS.labels(pool, context.environment).inc(steps)
    seconds = (assignment.end_time.ToMicroseconds() - assignment.start_time.ToMicroseconds()) / 1e6
    if kind and assignment.state == v1.ASSIGNMENT_STATE_SUCCEEDED and steps and seconds > 0 and not assignment.failures:
        context.store.record_speed(kind, pool, steps / seconds)
