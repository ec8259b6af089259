"""Applies each report of a trainer once.

A report is numbered in its attempt and sent again until it is accepted, so the last number of each attempt is stored.
Results that count once over all attempts are items of an assignment: the first report of an item is stored, later ones are
ignored. Reports are accepted only from the newest attempt of a live run, until its failure is counted. Progress updates the
rows of members and is not stored itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import sqlalchemy as sa
from dressage.api.internal.v1 import run_service_pb2 as work
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1

from dressage_orchestrator import resource_names
from dressage_orchestrator.clock import micros, timestamp
from dressage_orchestrator.database import assignments, events, runs
from dressage_orchestrator.database.assignments import AssignmentRow
from dressage_orchestrator.database.engine import ReadTransaction, Transaction
from dressage_orchestrator.database.runs import RunRow
from dressage_orchestrator.database.tables import ASSIGNMENTS, REPORT_SEQUENCES, REPORTS

_MAX_CONDITIONS = 50
_MAX_METRICS = 256
_MESSAGE_LIMIT = 2000


# Built once: to build a statement takes longer than to execute it.
_ATTEMPT = (REPORT_SEQUENCES.c.run == sa.bindparam("of_run"), REPORT_SEQUENCES.c.attempt == sa.bindparam("of_attempt"))
_LAST_SEQUENCE = sa.select(REPORT_SEQUENCES.c.sequence).where(*_ATTEMPT)
_SET_SEQUENCE = (
    sa.update(REPORT_SEQUENCES).where(*_ATTEMPT).values(sequence=sa.bindparam("number", type_=sa.BigInteger))
)
_COUNT_ITEM = sa.update(REPORT_SEQUENCES).where(*_ATTEMPT).values(kept=REPORT_SEQUENCES.c.kept + 1)
_ITEM = sa.select(REPORTS.c.attempt).where(
    REPORTS.c.assignment == sa.bindparam("assignment"), REPORTS.c.item == sa.bindparam("item")
)
_INSERT = sa.insert(REPORTS)
_ITEMS = sa.select(REPORTS.c.item).where(REPORTS.c.assignment == sa.bindparam("assignment")).order_by(REPORTS.c.item)


class Fence(Enum):
    """Whether an attempt's reports are accepted, or why not; the values are the reasons of `Stop`."""

    OPEN = ""
    SUPERSEDED = "superseded"
    CANCELLED = "cancelled"
    FAILED = "failed"
    DONE = "done"


@dataclass(frozen=True)
class Limits:
    """How reports are applied.

    :param progress_seconds: minimum seconds between two progress events of an assignment.
    :param max_failures: number of failures after which an assignment is retried.
    """

    progress_seconds: float
    max_failures: int


def fence(row: RunRow | None, attempt: int) -> Fence:
    """Check that the attempt is the newest of a live run and has not failed."""
    if row is None or row.run.attempt != attempt:
        return Fence.SUPERSEDED
    ended = {
        v1.RUN_STATE_CANCELLED: Fence.CANCELLED,
        v1.RUN_STATE_FAILED: Fence.FAILED,
        v1.RUN_STATE_SUCCEEDED: Fence.DONE,
    }
    if row.run.state in ended:
        return ended[row.run.state]
    # If the attempt has reported a failure of its machine, another one retries the assignment.
    return Fence.SUPERSEDED if attempt <= row.counted_attempt else Fence.OPEN


def hello(tx: Transaction, run: str, attempt: int) -> tuple[Fence, RunRow | None]:
    """Record that a trainer has connected: its run is RUNNING if the attempt is the current one or a later one.

    A launcher may itself restart an interrupted attempt; the run's attempt is then set to the trainer's.
    """
    runs.lock(tx, run)
    row = runs.find(tx, run)
    if row is not None and not row.ended and attempt > row.run.attempt > 0:

        def advance(message: v1.Run) -> None:
            message.attempt = max(message.attempt, attempt)

        runs.change(tx, run, advance)
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


def record(tx: Transaction, run: str, attempt: int, report: work.Report, limits: Limits) -> Fence:
    """Apply a report once.

    :return: OPEN if it was applied, now or earlier, or if its assignment has ended; otherwise why the attempt's reports are
        rejected.
    :raises NotFound: when the assignment does not have the report's member.
    """
    runs.lock(tx, run)
    row = runs.find(tx, run)
    closed = fence(row, attempt)
    if closed is not Fence.OPEN or row is None:
        return closed
    if not _next_in_sequence(tx, run, attempt, report.sequence):
        return Fence.OPEN
    about = assignments.by_id(tx, row.session, report.assignment) if report.assignment else None
    # Acknowledged nevertheless: the trainer repeats a report until it is.
    if about is None or about.ended:
        return Fence.OPEN
    kind = report.WhichOneof("body")
    if about.work.train.final_steps and _is_superseded(tx, about, report):
        return Fence.OPEN
    if kind == "progress":
        _progress(tx, about, report.progress, limits.progress_seconds)
    elif kind == "checkpoint":
        # No item: the newest checkpoint replaces the earlier ones (decision 0032).
        assignments.change(tx, about.name, lambda _: {"checkpoint": report.checkpoint.key})
        _count_item(tx, run, attempt)
    elif kind == "result":
        _result(tx, row, about, report, limits)
    elif kind is not None and _first_of_item(tx, about.name, run, attempt, report):
        _APPLY[kind](tx, about, report)
    return Fence.OPEN


def _is_superseded(tx: Transaction, row: AssignmentRow, report: work.Report) -> bool:
    """Whether a report is of what a training did after the checkpoint with which it ends early: it was sent before it knew."""
    steps = row.work.train.final_steps
    match report.WhichOneof("body"):
        case "evaluation":
            done = report.evaluation
            return done.evaluation.env_step > steps.get(done.member, 0) or (
                done.evaluation.env_step == steps.get(done.member, 0) and not report.item.startswith("final/")
            )
        case "member":
            return bool(report.member.policy) and report.member.env_step != steps.get(report.member.member, 0)
        case "result":
            without_result = [
                m for m in assignments.members(tx, row.name) if not m.policy and not m.HasField("failure")
            ]
            return report.result.HasField("train") and bool(without_result)
    return False


def finished_items(tx: ReadTransaction, assignment: str) -> list[str]:
    """List the accepted items of an assignment, ordered by name."""
    return [row.item for row in tx.execute(_ITEMS, {"assignment": assignment})]


def pending_evaluations(tx: ReadTransaction, assignment: str, stopped: frozenset[str]) -> list[work.PolicyRef]:
    """List policies that were uploaded and not evaluated, ordered by environment step and member.

    :param stopped: ids of members whose policies are not evaluated.
    """
    policies: dict[tuple[int, str], work.PolicyRef] = {}
    evaluated = set()
    for (data,) in tx.execute(sa.select(REPORTS.c.data).where(REPORTS.c.assignment == assignment)):
        report = work.Report.FromString(data)
        if report.HasField("policy"):
            policy = report.policy.policy
            policies[policy.env_step, policy.member] = policy
        elif report.HasField("evaluation"):
            evaluated.add((report.evaluation.evaluation.env_step, report.evaluation.member))
    return [policies[key] for key in sorted(policies.keys() - evaluated) if key[1] not in stopped]


def made_progress(tx: ReadTransaction, run: str, first: int, last: int) -> bool:
    """Whether an item or a checkpoint of these attempts was accepted."""
    match = (
        REPORT_SEQUENCES.c.run == run,
        REPORT_SEQUENCES.c.attempt >= first,
        REPORT_SEQUENCES.c.attempt <= last,
        REPORT_SEQUENCES.c.kept > 0,
    )
    return tx.execute(sa.select(REPORT_SEQUENCES.c.attempt).where(*match).limit(1)).one_or_none() is not None


def last_sequence(tx: ReadTransaction, run: str, attempt: int) -> int:
    """Return the number of the attempt's newest report, by whichever server it came; 0: none."""
    return int(tx.execute(_LAST_SEQUENCE, {"of_run": run, "of_attempt": attempt}).scalar_one_or_none() or 0)


def _next_in_sequence(tx: Transaction, run: str, attempt: int, sequence: int) -> bool:
    """Record a report's number; False if it was accepted before."""
    this = {"of_run": run, "of_attempt": attempt}
    last = tx.execute(_LAST_SEQUENCE, this).scalar_one_or_none()
    if last is None:
        row = {"run": run, "attempt": attempt, "sequence": sequence, "kept": 0}
        tx.execute(sa.insert(REPORT_SEQUENCES).values(**row))
        return True
    if sequence <= last:
        return False
    tx.execute(_SET_SEQUENCE, {**this, "number": sequence})
    return True


def _first_of_item(tx: Transaction, assignment: str, run: str, attempt: int, report: work.Report) -> bool:
    """Store the first report of an item; whether it was stored. A report without an item is not stored."""
    if not report.item:
        return True
    if tx.execute(_ITEM, {"assignment": assignment, "item": report.item}).one_or_none() is not None:
        return False
    row = {"assignment": assignment, "item": report.item, "run": run, "attempt": attempt}
    tx.execute(_INSERT, {**row, "data": report.SerializeToString()})
    _count_item(tx, run, attempt)
    return True


def _count_item(tx: Transaction, run: str, attempt: int) -> None:
    tx.execute(_COUNT_ITEM, {"of_run": run, "of_attempt": attempt})


def _progress(tx: Transaction, row: AssignmentRow, report: work.ProgressReport, seconds: float) -> None:
    changed = []
    moved = False
    for entry in report.members:

        def edit(member: v1.Member, entry: work.MemberProgress = entry) -> None:
            nonlocal moved
            moved = moved or member.env_steps != entry.env_step
            member.env_steps = entry.env_step
            if len(member.metrics.keys() | entry.metrics.keys()) > _MAX_METRICS:
                member.metrics.clear()  # names that differ in each report must not add up
            for name, value in entry.metrics.items():
                member.metrics[name] = value

        changed.append(assignments.change_member(tx, row.name, entry.member, edit))
    now = micros(tx.now)
    last = tx.execute(sa.select(ASSIGNMENTS.c.progress_micros).where(ASSIGNMENTS.c.name == row.name)).scalar_one()
    remaining = sum(
        max(0, member.target_env_steps - member.env_steps)
        for member in assignments.members(tx, row.name)
        if not member.HasField("failure")
    )
    complete = moved and remaining == 0  # this report is always an event, so that curves reach their ends
    if now - last < seconds * 1e6 and not complete:
        return

    def speed(assignment: v1.Assignment) -> dict[str, object]:
        assignment.steps_per_second = report.steps_per_second
        assignment.candidates_per_second = report.candidates_per_second
        return {"progress_micros": now}

    assignments.change(tx, row.name, speed)
    # An evaluation has an event of its own; each progress would repeat all of them.
    for member in changed:
        member.ClearField("evaluations")
    progress = ev.Progress(assignment=row.name, members=changed, steps_per_second=report.steps_per_second)
    progress.activity, progress.evaluated = report.activity, report.evaluated
    progress.candidates_per_second = report.candidates_per_second
    progress.seconds_left = remaining / report.steps_per_second if report.steps_per_second > 0 else 0.0
    events.append(tx, row.session, ev.Event(progress=progress), iteration=row.iteration)


def _policy(tx: Transaction, row: AssignmentRow, report: work.Report) -> None:
    """Do nothing: the report of a policy is stored until its evaluation arrives."""


def _evaluation(tx: Transaction, row: AssignmentRow, report: work.Report) -> None:
    evaluation = v1.Evaluation()
    evaluation.CopyFrom(report.evaluation.evaluation)
    for rollout in evaluation.rollouts:
        rollout.artifact = f"{row.name}/{rollout.artifact}"

    def edit(member: v1.Member) -> None:
        later = [entry for entry in member.evaluations if entry.env_step > evaluation.env_step]
        before = [entry for entry in member.evaluations if entry.env_step < evaluation.env_step]
        ordered = [*before, evaluation, *later]
        member.ClearField("evaluations")
        member.evaluations.extend(ordered)

    assignments.change_member(tx, row.name, report.evaluation.member, edit)
    name = resource_names.member_name(row.name, report.evaluation.member)
    finished = ev.EvaluationFinished(member=name, evaluation=evaluation)
    events.append(tx, row.session, ev.Event(evaluation_finished=finished), iteration=row.iteration)


def _member(tx: Transaction, row: AssignmentRow, report: work.Report) -> None:
    def edit(member: v1.Member) -> None:
        if row.work.HasField("train"):  # those of a policy that is scored were counted when it was trained
            member.env_steps = max(member.env_steps, report.member.env_step)
        if report.member.policy:
            member.policy = f"{row.name}/{report.member.policy}"
        if report.member.HasField("failure"):
            member.failure.CopyFrom(report.member.failure)

    assignments.change_member(tx, row.name, report.member.member, edit)
    if report.member.HasField("failure"):
        message = f"{report.member.member} was stopped: {report.member.failure.message}"[:_MESSAGE_LIMIT]
        warning = ev.Warning(reason="MEMBER_STOPPED", message=message)
        events.append(tx, row.session, ev.Event(warning=warning), iteration=row.iteration)


def _candidate(tx: Transaction, row: AssignmentRow, report: work.Report) -> None:
    result = v1.CandidateResult()
    result.CopyFrom(report.candidate)
    for rollout in result.rollouts:
        rollout.artifact = f"{row.name}/{rollout.artifact}"
    if result.policy:
        result.policy = f"{row.name}/{result.policy}"
    assignments.add_candidate(tx, row.name, result)
    evaluated = ev.CandidateEvaluated(assignment=row.name, result=result)
    events.append(tx, row.session, ev.Event(candidate_evaluated=evaluated), iteration=row.iteration)


def _improvement(tx: Transaction, row: AssignmentRow, report: work.Report) -> None:
    improvement = report.improvement.improvement

    def edit(assignment: v1.Assignment) -> None:
        search = assignment.search
        search.improvements.add(evaluated=improvement.evaluated, score=improvement.score)
        search.evaluated = max(search.evaluated, improvement.evaluated)
        search.best_score = improvement.score
        search.ClearField("best_parameters")
        search.best_parameters.extend(report.improvement.parameters.values)
        search.best_program = improvement.program

    assignments.change(tx, row.name, edit)
    improved = ev.SearchImproved(assignment=row.name, improvement=improvement)
    events.append(tx, row.session, ev.Event(search_improved=improved), iteration=row.iteration)


def _warning(tx: Transaction, row: AssignmentRow, report: work.Report) -> None:
    about = f"{report.warning.member}: " if report.warning.member else ""
    message = (about + report.warning.message)[:_MESSAGE_LIMIT]

    def edit(assignment: v1.Assignment) -> None:
        if len(assignment.conditions) < _MAX_CONDITIONS:
            assignment.conditions.add(type=report.warning.reason, message=message, time=timestamp(tx.now))

    assignments.change(tx, row.name, edit)
    warning = ev.Warning(reason=report.warning.reason, message=message)
    events.append(tx, row.session, ev.Event(warning=warning), iteration=row.iteration)


def _result(tx: Transaction, run: RunRow, row: AssignmentRow, report: work.Report, limits: Limits) -> None:
    if report.result.HasField("failure"):
        _apply_failure(tx, run, row, report.result.failure, limits)
    else:
        _first_of_item(tx, row.name, run.run.name, run.run.attempt, report)
        if report.result.HasField("search"):
            _apply_search(tx, row.name, report.result.search)
        assignments.end(tx, row.name, v1.ASSIGNMENT_STATE_SUCCEEDED)
    runs.set_assignment(tx, run.run.name, "")


def _apply_search(tx: Transaction, name: str, result: v1.SearchResult) -> None:
    def edit(assignment: v1.Assignment) -> dict[str, object]:
        improvements = list(assignment.search.improvements) or list(result.improvements)
        assignment.search.CopyFrom(result)
        assignment.search.ClearField("improvements")
        assignment.search.improvements.extend(improvements)
        return {"env_steps": result.env_steps}

    assignments.change(tx, name, edit)


def _apply_failure(
    tx: Transaction, run: RunRow, row: AssignmentRow, report: work.AssignmentFailure, limits: Limits
) -> None:
    failure = v1.Failure()
    failure.CopyFrom(report.failure)
    failure.message = failure.message[:_MESSAGE_LIMIT]
    if report.cause in (work.AssignmentFailure.CAUSE_GENERATED_CODE, work.AssignmentFailure.CAUSE_ASSIGNMENT):
        fault = report.cause == work.AssignmentFailure.CAUSE_GENERATED_CODE
        assignments.end(tx, row.name, v1.ASSIGNMENT_STATE_FAILED, failure, generated_code=fault)
        return
    # Another attempt retries it in a new process; the exit of this one is not counted as a further failure.
    assignments.count_failure(tx, row.name, failure, limit=limits.max_failures)
    attempt = run.run.attempt
    message = f"attempt {attempt} could not finish {row.name}: {failure.message}"
    runs.add_condition(tx, run.run.name, failure.reason, message)
    runs.change(tx, run.run.name, lambda _: {"counted_attempt": attempt})


_APPLY: dict[str, Callable[[Transaction, AssignmentRow, work.Report], None]] = {
    "policy": _policy,
    "evaluation": _evaluation,
    "member": _member,
    "candidate": _candidate,
    "improvement": _improvement,
    "warning": _warning,
}
