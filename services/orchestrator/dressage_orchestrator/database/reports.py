"""What trainers report, applied once.

A report is keyed by (run, attempt, sequence), an evaluation besides by (run, member, env step); only the newest attempt
of a run that has not ended is heard. Progress changes the members' rows and is not kept itself.
"""

from __future__ import annotations

from enum import Enum

import sqlalchemy as sa
from dressage.api.internal.v1 import run_service_pb2 as work
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1

from dressage_orchestrator import names
from dressage_orchestrator.clock import micros, timestamp
from dressage_orchestrator.database import events, runs
from dressage_orchestrator.database.engine import Transaction
from dressage_orchestrator.database.runs import RunRow
from dressage_orchestrator.database.tables import REPORTS, RUNS

_MAX_CONDITIONS = 50
_MESSAGE_LIMIT = 2000


class Fence(Enum):
    """Whether an attempt's words count, and why not; the values are the reasons of `Stop`."""

    OPEN = ""
    SUPERSEDED = "superseded"
    CANCELLED = "cancelled"
    FAILED = "failed"
    DONE = "done"


def fence(row: RunRow | None, attempt: int) -> Fence:
    """Whether the attempt is the newest of a run that has not ended."""
    if row is None or row.run.attempt != attempt:
        return Fence.SUPERSEDED
    ended = {
        v1.RUN_STATE_CANCELLED: Fence.CANCELLED,
        v1.RUN_STATE_FAILED: Fence.FAILED,
        v1.RUN_STATE_SUCCEEDED: Fence.DONE,
    }
    return ended.get(row.run.state, Fence.OPEN)


def hello(tx: Transaction, run: str, attempt: int) -> tuple[Fence, RunRow | None]:
    """A trainer began: its run is RUNNING, if it is the one that was started, or a later one.

    A launcher may itself repeat an interrupted attempt; then the run's attempt follows the trainer's. One whose
    predecessor said that a repeat would fail alike is not heard.
    """
    tx.lock(names.session_name(names.parse_run(run).session))
    row = runs.find(tx, run)
    if row is not None and not row.ended and attempt > row.run.attempt > 0 and not row.run.HasField("failure"):

        def follow(message: v1.Run) -> None:
            message.attempt = max(message.attempt, attempt)

        runs.change(tx, run, follow)
        row = runs.find(tx, run)
    closed = fence(row, attempt)
    if closed is Fence.OPEN:

        def begin(message: v1.Run) -> None:
            message.state = v1.RUN_STATE_RUNNING
            if not message.HasField("start_time"):
                message.start_time.CopyFrom(timestamp(tx.now))

        runs.change(tx, run, begin)
        row = runs.find(tx, run)
    return closed, row


def record(tx: Transaction, run: str, attempt: int, report: work.Report, *, progress_seconds: float) -> Fence:
    """Applies a report once.

    :param progress_seconds: least time between two progress events of a run.
    :return: OPEN when it was applied, now or before; otherwise why the attempt is not heard.
    """
    tx.lock(names.session_name(names.parse_run(run).session))
    row = runs.find(tx, run)
    closed = fence(row, attempt)
    if closed is not Fence.OPEN or row is None:
        return closed
    kind = report.WhichOneof("body")
    if kind == "progress":
        _progress(tx, row, report.progress, progress_seconds)
    elif kind is not None and _keep(tx, run, attempt, report):
        _APPLY[kind](tx, row, report)
    return Fence.OPEN


def _keep(tx: Transaction, run: str, attempt: int, report: work.Report) -> bool:
    """Stores the report; False when it is there already, from this attempt or, an evaluation, from an earlier one."""
    same = sa.and_(REPORTS.c.attempt == attempt, REPORTS.c.sequence == report.sequence)
    key: dict[str, object] = {"run": run, "attempt": attempt, "sequence": report.sequence}
    if report.WhichOneof("body") == "evaluation":
        member, step = report.evaluation.member, report.evaluation.evaluation.env_step
        same = sa.or_(same, sa.and_(REPORTS.c.member == member, REPORTS.c.env_step == step))
        key.update(member=member, env_step=step)
    known = tx.execute(sa.select(REPORTS.c.sequence).where(REPORTS.c.run == run, same).limit(1)).one_or_none()
    if known is None:
        tx.execute(sa.insert(REPORTS).values(**key, data=report.SerializeToString()))
    return known is None


def _progress(tx: Transaction, row: RunRow, report: work.ProgressReport, seconds: float) -> None:
    left = 0
    changed = []
    for entry in report.members:

        def edit(member: v1.Member, entry: work.MemberProgress = entry) -> None:
            member.env_steps = entry.env_step
            for name, value in entry.metrics.items():
                member.metrics[name] = value

        changed.append(runs.change_member(tx, row.run.name, entry.member, edit))
    for member in runs.members(tx, row.run.name):
        if member.HasField("failure"):
            continue
        left += max(0, member.target_env_steps - member.env_steps)
    now = micros(tx.now)
    last = tx.execute(sa.select(RUNS.c.progress_micros).where(RUNS.c.name == row.run.name)).scalar_one()
    if now - last < seconds * 1e6:
        return

    def speed(run: v1.Run) -> dict[str, object]:
        run.steps_per_second = report.steps_per_second
        return {"progress_micros": now}

    runs.change(tx, row.run.name, speed)
    for member in changed:
        member.ClearField("evaluations")
    told = ev.Progress(run=row.run.name, members=changed, steps_per_second=report.steps_per_second)
    told.seconds_left = left / report.steps_per_second if report.steps_per_second > 0 else 0.0
    events.append(tx, row.session, ev.Event(progress=told), iteration=row.iteration)


def _evaluation(tx: Transaction, row: RunRow, report: work.Report) -> None:
    evaluation = v1.Evaluation()
    evaluation.CopyFrom(report.evaluation.evaluation)
    for rollout in evaluation.rollouts:
        rollout.artifact = f"{row.run.name}/{rollout.artifact}"

    def edit(member: v1.Member) -> None:
        later = [entry for entry in member.evaluations if entry.env_step > evaluation.env_step]
        before = [entry for entry in member.evaluations if entry.env_step < evaluation.env_step]
        ordered = [*before, evaluation, *later]
        member.ClearField("evaluations")
        member.evaluations.extend(ordered)

    runs.change_member(tx, row.run.name, report.evaluation.member, edit)
    name = names.member_name(row.run.name, report.evaluation.member)
    told = ev.EvaluationFinished(member=name, evaluation=evaluation)
    events.append(tx, row.session, ev.Event(evaluation_finished=told), iteration=row.iteration)


def _checkpoint(tx: Transaction, row: RunRow, report: work.Report) -> None:
    runs.change(tx, row.run.name, lambda _: {"checkpoint": report.checkpoint.key})


def _member(tx: Transaction, row: RunRow, report: work.Report) -> None:
    def edit(member: v1.Member) -> None:
        member.env_steps = max(member.env_steps, report.member.env_step)
        if report.member.policy:
            member.policy = f"{row.run.name}/{report.member.policy}"
        if report.member.HasField("failure"):
            member.failure.CopyFrom(report.member.failure)

    runs.change_member(tx, row.run.name, report.member.member, edit)
    if report.member.HasField("failure"):
        message = f"{report.member.member} was stopped: {report.member.failure.message}"[:_MESSAGE_LIMIT]
        told = ev.Warning(reason="MEMBER_STOPPED", message=message)
        events.append(tx, row.session, ev.Event(warning=told), iteration=row.iteration)


def _done(tx: Transaction, row: RunRow, report: work.Report) -> None:
    runs.finish_assignment(tx, row.run.name, report.assignment)
    if row.closed and not runs.open_assignments(tx, row.run.name):
        runs.end(tx, row.run.name, v1.RUN_STATE_SUCCEEDED)


def _failed(tx: Transaction, row: RunRow, report: work.Report) -> None:
    # The state follows when the process ends: its exit code says whether the generated code is to blame.
    def edit(run: v1.Run) -> None:
        run.failure.CopyFrom(report.failed)
        run.failure.message = run.failure.message[:_MESSAGE_LIMIT]

    runs.change(tx, row.run.name, edit)


def _warning(tx: Transaction, row: RunRow, report: work.Report) -> None:
    about = f"{report.warning.member}: " if report.warning.member else ""
    message = (about + report.warning.message)[:_MESSAGE_LIMIT]

    def edit(run: v1.Run) -> None:
        if len(run.conditions) < _MAX_CONDITIONS:
            run.conditions.add(type=report.warning.reason, message=message, time=timestamp(tx.now))

    runs.change(tx, row.run.name, edit)
    told = ev.Warning(reason=report.warning.reason, message=message)
    events.append(tx, row.session, ev.Event(warning=told), iteration=row.iteration)


_APPLY = {
    "evaluation": _evaluation,
    "checkpoint": _checkpoint,
    "member": _member,
    "done": _done,
    "failed": _failed,
    "warning": _warning,
}
