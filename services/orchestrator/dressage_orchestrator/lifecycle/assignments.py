"""Work of trainers: asked for, waited for, accounted.

Waiting is no step: it is a loop of looking (a step) and waiting for a change.
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
    """Work that goes with an assignment while it is waited for."""

    def look(self) -> Json:
        """What a look records. In a step."""
        ...

    def advance(self, seen: Json) -> bool:
        """Acts on what a look recorded; whether nothing is left to do. Outside of steps."""
        ...


def assign(
    context: SessionContext, number: int, ident: str, task: work.Assignment, *, members: Sequence[v1.Member] = ()
) -> str:
    """Has an assignment of that id exist and a trainer work on it; returns its full name.

    One that exists is attached to; one that an earlier epoch left failed or cancelled continues from its checkpoint.

    :param task: the work; its name and cores are set here.
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
    context: SessionContext, name: str, *, kind: str = "", companion: BackgroundWork | None = None
) -> AssignmentRow:
    """Waits until the assignment has ended; the assignment with its members and candidates.

    :param kind: what its speed is kept under, for estimates; empty: it is not kept.
    :param companion: also waited for.
    :raises Exhausted: when the session's wall-clock time is used up; the assignment is cancelled then.
    """
    parts = resource_names.parse_assignment(name)
    tag = f"{parts.iteration}:{parts.assignment}"
    looks = 0
    _wait_for_news(context, name)
    while True:
        looks += 1
        seen = context.step(f"look:{tag}:{looks}", lambda: _look(context, name, companion))
        if seen["late"]:
            context.step(f"stop:{tag}", lambda: _cancel(context, name))
            raise Exhausted("the session's wall-clock time is used up", kind="wall_time")
        if (companion is None or companion.advance(seen["companion"])) and seen["ended"]:
            break
        context.wait(seen["patience"])
    context.step(f"account:{tag}", lambda: _account(context, name, kind))
    # What its rows say no longer changes once it has ended, so reading them here is the same each time.
    return context.store.assignment(name)


def _wait_for_news(context: SessionContext, name: str) -> None:
    """Waits before the first look, which would find nothing: a trivial candidate's result is there with one look less.

    These reads are no steps: they decide how long is waited, never the course.
    """
    if not context.store.assignment(name).ended:
        context.wait(_patience(context, context.store.get()))


def _patience(context: SessionContext, session: v1.Session) -> float:
    """Seconds until the next look, unless something changes: at the latest when the session's wall-clock time is used up."""
    patience, end = context.engine.settings.wait_seconds, wall_time_deadline(session)
    return patience if end is None else min(patience, max(0.1, end - context.store.now().timestamp()))


def _cancel(context: SessionContext, name: str) -> None:
    context.call(context.engine.controller.cancel_assignment(name))


def _look(context: SessionContext, name: str, companion: BackgroundWork | None) -> Json:
    row, session = context.store.assignment(name), context.store.get()
    followed = companion.look() if companion is not None else None
    now = context.store.now()
    late = not row.ended and wall_time_exhausted(session, now=now)
    if not row.ended and not late:
        # Also starts a trainer for an assignment that should have one and, for whatever reason, has none.
        context.call(context.engine.controller.ensure(context.session))
    patience = _patience(context, session)
    return {"ended": row.ended, "late": late, "patience": patience, "companion": followed}


def _account(context: SessionContext, name: str, kind: str) -> None:
    found = context.store.assignment(name).assignment
    context.store.count_env_steps()
    if not context.store.mark(f"account/{name}"):
        return
    pool = context.spec.pool
    steps = sum(member.env_steps for member in found.members)
    metrics.ENV_STEPS.labels(pool, context.environment).inc(steps)
    seconds = (found.end_time.ToMicroseconds() - found.start_time.ToMicroseconds()) / 1e6
    if kind and found.state == v1.ASSIGNMENT_STATE_SUCCEEDED and steps and seconds > 0 and not found.failures:
        context.store.record_speed(kind, pool, steps / seconds)
