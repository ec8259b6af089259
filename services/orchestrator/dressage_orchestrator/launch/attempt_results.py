"""Applies the result of an attempt to its run and assignment.

Failures are counted for each assignment: the current one or, if the trainer started none, the oldest pending one. The failure
of an attempt counts once, whether a notice, a report of the trainer or its exit arrives first.
"""

from __future__ import annotations

import structlog
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1

from dressage_orchestrator import metrics
from dressage_orchestrator.database import assignments, events, reports, runs
from dressage_orchestrator.database.engine import Transaction
from dressage_orchestrator.database.runs import RunRow
from dressage_orchestrator.launch.protocol import TRAINER_SILENT, AttemptResult, ExitKind, Notice

_FAILURES = {
    ExitKind.NO_HELLO: ("TRAINER_UNRESPONSIVE", "the trainer did not connect", "see the run's log"),
    ExitKind.DONE: ("TRAINER_EXITED_EARLY", "the trainer exited before its assignments ended", "see the run's log"),
}
_OTHER_FAILURE = ("TRAINER_FAILED", "the trainer failed", "see the run's log; if memory ran out, train fewer members")
_log = structlog.get_logger("dressage.runs")


def apply_result(tx: Transaction, ended: AttemptResult, *, max_failures: int) -> bool:
    """Apply the exit of an attempt's trainer.

    :param max_failures: number of failures after which an assignment is retried.
    :return: whether the run needs another attempt.
    """
    runs.lock(tx, ended.run)
    row = runs.find(tx, ended.run)
    if row is None or row.ended or not ended.covers(row.run.attempt):
        return False
    failure = _failure(ended)
    has_work = bool(assignments.open_of(tx, row.session))
    if ended.final:
        for waiting in assignments.open_of(tx, row.session):
            assignments.end(tx, waiting.name, v1.ASSIGNMENT_STATE_FAILED, failure)
        metrics.RUN_FAILURES.labels(failure.reason).inc()
    elif _is_interrupted(tx, ended):
        interrupt(tx, row)
    elif has_work or ended.kind is not ExitKind.DONE:
        attempt = max(row.run.attempt, ended.attempt, ended.last_attempt)
        if ended.counted or attempt <= row.counted_attempt:
            interrupt(tx, row)
        else:
            metrics.RUN_FAILURES.labels(failure.reason).inc()
            _count(tx, row, attempt, failure, max_failures=max_failures)
    if not assignments.open_of(tx, row.session):
        released = ended.kind in (ExitKind.DONE, ExitKind.CHECKPOINTED)
        state = v1.RUN_STATE_SUCCEEDED if released else v1.RUN_STATE_FAILED
        runs.end(tx, ended.run, state, None if released else failure)
        return False
    return True


def apply_notice(tx: Transaction, notice: Notice, *, max_failures: int) -> bool:
    """Apply a notice: add it once as a condition of the run and a warning of its session.

    :return: whether the notice ended the run, so that its trainer has to be stopped.
    """
    runs.lock(tx, notice.run)  # other servers may apply the same notice
    row = runs.find(tx, notice.run)
    if row is None or row.ended:
        return False
    if not any((entry.type, entry.attempt) == (notice.type, notice.attempt) for entry in row.run.conditions):
        _add_condition(tx, row, notice)
    if not notice.attempt_ended:
        return False
    failure = v1.Failure(reason=notice.type, message=notice.message, remedy=notice.remedy)
    if notice.counts:
        _count(tx, row, notice.attempt, failure, max_failures=max_failures)
    if row.run.attempt > notice.attempt:
        return False  # the next attempt has started
    if not assignments.open_of(tx, row.session):
        state = v1.RUN_STATE_FAILED if notice.counts else v1.RUN_STATE_SUCCEEDED
        runs.end(tx, notice.run, state, failure if notice.counts else None)
        return True
    interrupt(tx, row)
    return False


def interrupt(tx: Transaction, row: RunRow) -> None:
    """Return the run and its assignment to the queue for the next trainer."""
    if row.run.assignment:
        assignments.interrupt(tx, row.run.assignment)

    def requeue(run: v1.Run) -> None:
        run.assignment = ""
        if run.state in (v1.RUN_STATE_STARTING, v1.RUN_STATE_RUNNING):
            run.state = v1.RUN_STATE_QUEUED

    runs.change(tx, row.run.name, requeue)


def _is_interrupted(tx: Transaction, ended: AttemptResult) -> bool:
    """Whether the attempt was interrupted from outside and may be retried without counting a failure."""
    if ended.kind is ExitKind.CHECKPOINTED:
        return True  # exit 75 is never counted (decision 0032)
    # An attempt without a single item or checkpoint before its deadline would be retried forever.
    last = max(ended.attempt, ended.last_attempt)
    return ended.kind is ExitKind.DEADLINE and reports.made_progress(tx, ended.run, ended.attempt, last)


def _count(tx: Transaction, row: RunRow, attempt: int, failure: v1.Failure, *, max_failures: int) -> None:
    """Count the failure of an attempt for its assignment, unless it was counted before."""
    open_ = [entry.name for entry in assignments.open_of(tx, row.session)]
    if attempt > row.counted_attempt and open_:
        name = row.run.assignment if row.run.assignment in open_ else open_[0]
        failed = assignments.count_failure(tx, name, failure, limit=max_failures)
        after = "failed" if failed else "is retried"
        message = f"attempt {attempt} failed, {name} {after}: {failure.message}"
        # A silence is not the cause of a failure.
        if not any(entry.attempt == attempt and entry.type != TRAINER_SILENT for entry in row.run.conditions):
            runs.add_condition(tx, row.run.name, failure.reason, message)
        runs.change(tx, row.run.name, lambda _: {"counted_attempt": attempt})
        _log.warning("attempt failed", run=row.run.name, attempt=attempt, assignment=name, reason=failure.reason)
    interrupt(tx, runs.get(tx, row.run.name))


def _add_condition(tx: Transaction, row: RunRow, notice: Notice) -> None:
    message = f"attempt {notice.attempt}: {notice.message}; {notice.remedy}"
    runs.add_condition(tx, notice.run, notice.type, message, attempt=notice.attempt)
    working = assignments.find(tx, row.run.assignment) if row.run.assignment else None
    warning = ev.Event(warning=ev.Warning(reason=notice.type, message=message))
    events.append(tx, row.session, warning, iteration=working.iteration if working else 0)
    if notice.counts:
        metrics.RUN_FAILURES.labels(notice.type).inc()
    log = _log.warning if notice.counts else _log.info
    log("run condition", run=notice.run, attempt=notice.attempt, type=notice.type, message=notice.message)


def _failure(ended: AttemptResult) -> v1.Failure:
    """The failure of an attempt, from its exit."""
    if ended.reason:
        return v1.Failure(reason=ended.reason, message=ended.message, remedy=ended.remedy)
    reason, what, remedy = _FAILURES.get(ended.kind, _OTHER_FAILURE)
    return v1.Failure(reason=reason, message=f"{what}: {ended.message}", remedy=remedy)
