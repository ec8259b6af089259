"""Work of trainers: asked for, waited for, accounted.

Waiting is no step: it is a loop of looking (a step) and waiting for a change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dressage.api.internal.v1 import run_service_pb2 as work
from dressage.api.v1 import session_pb2 as v1
from google.protobuf.json_format import MessageToDict

from dressage_orchestrator import metrics, names
from dressage_orchestrator.database.runs import RunRow
from dressage_orchestrator.lifecycle.budget import end_of_time, out_of_time
from dressage_orchestrator.lifecycle.context import Json, SessionContext
from dressage_orchestrator.lifecycle.outcome import Exhausted


class Companion(Protocol):
    """Work that goes with a run while it is waited for."""

    def look(self) -> Json:
        """What a look records. In a step."""
        ...

    def advance(self, seen: Json) -> bool:
        """Acts on what a look recorded; whether nothing is left to do. Outside of steps."""
        ...


def assign(
    context: SessionContext,
    number: int,
    run_id: str,
    *,
    members: Sequence[v1.Member],
    assignments: Sequence[work.Assignment],
) -> str:
    """Has a run of that id exist and be under way; returns its full name.

    One that exists is attached to; one that an earlier epoch left failed or cancelled continues from its checkpoint.
    """
    name = names.run_name(context.session, number, run_id)
    controller = context.engine.controller

    def start() -> None:
        run = v1.Run(name=name, pool=context.spec.pool, members=members)
        context.store.create_run(number, run, assignments)
        plain = [MessageToDict(entry, preserving_proto_field_name=True) for entry in assignments]
        context.put_json(number, f"runs/{run_id}/spec.json", {"run": name, "pool": run.pool, "assignments": plain})
        if context.epoch > 0:
            controller.reopen(name)
        context.call(controller.ensure(name))

    context.step(f"start:{number}:{run_id}", start)
    return name


def wait(context: SessionContext, name: str, *, kind: str = "", companion: Companion | None = None) -> RunRow:
    """Waits until the run has ended; the run with its members.

    :param kind: what its speed is kept under, for estimates; empty: it is not kept.
    :param companion: also waited for.
    :raises Exhausted: when the session's wall-clock time is used up; the run is cancelled then.
    """
    parts = names.parse_run(name)
    looks = 0
    while True:
        looks += 1
        seen = context.step(f"look:{parts.iteration}:{parts.run}:{looks}", lambda: _look(context, name, companion))
        if seen["late"]:
            context.step(f"stop:{parts.iteration}:{parts.run}", lambda: _cancel(context, name))
            raise Exhausted("the session's wall-clock time is used up", kind="wall_time")
        if (companion is None or companion.advance(seen["companion"])) and seen["ended"]:
            break
        context.wait(seen["patience"])
    context.step(f"account:{parts.iteration}:{parts.run}", lambda: _account(context, name, kind))
    # What a run's rows say no longer changes once it has ended, so reading them here is the same each time.
    return context.store.run(name)


def _cancel(context: SessionContext, name: str) -> None:
    context.call(context.engine.controller.cancel(name))


def _look(context: SessionContext, name: str, companion: Companion | None) -> Json:
    row, session = context.store.run(name), context.store.get()
    followed = companion.look() if companion is not None else None
    now = context.store.now()
    late = not row.ended and out_of_time(session, now=now)
    patience = context.engine.settings.wait_seconds
    if not row.ended and not late:
        # Also starts a trainer for a run that should have one and, for whatever reason, has none.
        context.call(context.engine.controller.ensure(name))
        end = end_of_time(session)
        if end is not None:
            patience = min(patience, max(0.1, end - now.timestamp()))
    return {"ended": row.ended, "late": late, "patience": patience, "companion": followed}


def _account(context: SessionContext, name: str, kind: str) -> None:
    row = context.store.run(name)
    context.store.count_env_steps()
    if not context.store.mark(f"account/{name}"):
        return
    steps = sum(member.env_steps for member in row.run.members)
    metrics.ENV_STEPS.labels(row.run.pool, context.environment).inc(steps)
    seconds = (row.run.end_time.ToMicroseconds() - row.run.start_time.ToMicroseconds()) / 1e6
    if kind and row.run.state == v1.RUN_STATE_SUCCEEDED and steps and seconds > 0 and row.run.attempt == 1:
        context.store.remember_speed(kind, row.run.pool, steps / seconds)
