"""Starting a run and waiting for it. Waiting is no step: it is a loop of looking (a step) and receiving a message."""

from __future__ import annotations

from collections.abc import Sequence

from dressage.api.internal.v1 import run_service_pb2 as work
from dressage.api.v1 import session_pb2 as v1
from google.protobuf.json_format import MessageToDict

from dressage_orchestrator import metrics, names
from dressage_orchestrator.database import runs, sessions
from dressage_orchestrator.durations import kind_of_run
from dressage_orchestrator.workflow.budget import end_of_time, out_of_time
from dressage_orchestrator.workflow.flow import Flow, Json
from dressage_orchestrator.workflow.outcome import Exhausted
from dressage_orchestrator.workflow.streaming import Arrivals


def start_run(
    flow: Flow, number: int, run_id: str, members: Sequence[v1.Member], assignments: Sequence[work.Assignment]
) -> str:
    """Has a run of that name exist and be under way; returns its full name.

    One that exists is attached to; one that an earlier epoch left failed or cancelled goes on from its checkpoint.
    """
    name = names.run_name(flow.session, number, run_id)

    def start() -> Json:
        run = v1.Run(name=name, pool=flow.spec.pool, members=members)

        with flow.engine.database.begin() as tx:
            runs.create(tx, run, assignments)

            def list_run(iteration: v1.Iteration) -> None:
                if name not in iteration.runs:
                    iteration.runs.append(name)

            sessions.put_iteration(tx, flow.session, number, list_run)
        plain = [MessageToDict(entry, preserving_proto_field_name=True) for entry in assignments]
        flow.put_json(number, f"runs/{run_id}/spec.json", {"run": name, "pool": run.pool, "assignments": plain})
        if flow.epoch > 0:
            flow.engine.controller.reopen(name)
        flow.call(flow.engine.controller.ensure(name))
        return None

    flow.step(f"start:{number}:{run_id}", start)
    return name


def wait_run(flow: Flow, name: str, arrivals: Arrivals | None = None) -> runs.RunRow:
    """Waits until the run has ended; the run with its members.

    :param arrivals: judges checkpoints meanwhile; also waited for.
    :raises Exhausted: when the session's wall-clock time is used up; the run is cancelled then.
    """
    parts = names.parse_run(name)
    looks = 0
    while True:
        looks += 1
        seen = flow.step(f"look:{parts.iteration}:{parts.run}:{looks}", lambda: _look(flow, name, arrivals))
        if seen["late"]:
            flow.step(f"stop:{parts.iteration}:{parts.run}", lambda: flow.call(flow.engine.controller.cancel(name)))
            raise Exhausted("the session's wall-clock time is used up", kind="wall_time")
        judged = arrivals is None or arrivals.advance(seen["checkpoints"])
        if seen["ended"] and judged:
            break
        flow.receive(seen["patience"])
    flow.step(f"account:{parts.iteration}:{parts.run}", lambda: _account(flow, name))
    # What a run's rows say no longer changes once it has ended, so reading them here is the same each time.
    return flow.transact(lambda tx: runs.get(tx, name))


def _look(flow: Flow, name: str, arrivals: Arrivals | None) -> Json:
    with flow.engine.database.begin() as tx:
        row = runs.get(tx, name)
        checkpoints = arrivals.look(tx) if arrivals is not None else None
        session = sessions.get(tx, flow.session)
        now = tx.now
    late = not row.ended and out_of_time(session, now=now)
    patience = flow.engine.settings.wait_seconds
    if not row.ended and not late:
        # Also starts a trainer for a run that should have one and, for whatever reason, has none.
        flow.call(flow.engine.controller.ensure(name))
        end = end_of_time(session)
        if end is not None:
            patience = min(patience, max(0.1, end - now.timestamp()))
    seen = {"ended": row.ended, "late": late, "patience": patience}
    return seen if checkpoints is None else {**seen, "checkpoints": checkpoints}


def _account(flow: Flow, name: str) -> None:
    with flow.engine.database.begin() as tx:
        row = runs.get(tx, name)
        total = runs.env_steps(tx, flow.session)

        def count(session: v1.Session) -> None:
            session.env_steps = total

        flow.edit(tx, count)
        steps = sum(member.env_steps for member in row.run.members)
        seconds = (row.run.end_time.ToMicroseconds() - row.run.start_time.ToMicroseconds()) / 1e6
        if not flow.once(tx, f"account/{name}"):
            return
        metrics.ENV_STEPS.labels(row.run.pool, flow.environment).inc(steps)
        if row.run.state == v1.RUN_STATE_SUCCEEDED and steps and seconds > 0 and row.run.attempt == 1:
            runs.remember_speed(tx, kind_of_run(flow.spec), row.run.pool, steps / seconds)
