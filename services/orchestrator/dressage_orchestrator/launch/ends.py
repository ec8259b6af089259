"""What the end of an attempt means for its run and the assignment that it worked on.

Failures count per assignment: the one under way, or, where the trainer never began one, the oldest that waits. Each attempt's
failure counts once, whether a notice, the trainer's own report or its end says it first.
"""

from __future__ import annotations

import structlog
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1

from dressage_orchestrator import metrics
from dressage_orchestrator.database import assignments, events, reports, runs
from dressage_orchestrator.database.engine import Transaction
from dressage_orchestrator.database.runs import RunRow
from dressage_orchestrator.launch.protocol import Ended, ExitKind, Notice

_FAILURES = {
    ExitKind.NO_HELLO: ("TRAINER_SILENT", "the trainer never reported", "see the run's log"),
    ExitKind.DONE: ("TRAINER_LEFT_EARLY", "the trainer ended before its work was done", "see the run's log"),
}
_OTHER_FAILURE = ("TRAINER_FAILED", "the trainer failed", "see the run's log; if memory ran out, train fewer members")
_log = structlog.get_logger("dressage.runs")


def apply_end(tx: Transaction, ended: Ended, *, max_failures: int) -> bool:
    """Apply the end of an attempt's trainer.

    :param max_failures: failures of an assignment that are repeated.
    :return: whether the run needs another attempt.
    """
    runs.lock(tx, ended.run)
    row = runs.find(tx, ended.run)
    if row is None or row.ended or not ended.of(row.run.attempt):
        return False
    failure = _failure(ended)
    has_work = bool(assignments.open_of(tx, row.session))
    if ended.final:
        for waiting in assignments.open_of(tx, row.session):
            assignments.end(tx, waiting.name, v1.ASSIGNMENT_STATE_FAILED, failure)
        metrics.RUN_FAILURES.labels(failure.reason).inc()
    elif _interrupted(tx, ended):
        interrupt(tx, row)
    elif has_work or ended.kind is not ExitKind.DONE:
        attempt = max(row.run.attempt, ended.attempt, ended.last_attempt)
        if ended.counted or attempt <= row.counted_attempt:
            interrupt(tx, row)
        else:
            metrics.RUN_FAILURES.labels(failure.reason).inc()
            _count(tx, row, attempt, failure, max_failures=max_failures)
    if not assignments.open_of(tx, row.session):
        given_back = ended.kind in (ExitKind.DONE, ExitKind.CHECKPOINTED)
        state = v1.RUN_STATE_SUCCEEDED if given_back else v1.RUN_STATE_FAILED
        runs.end(tx, ended.run, state, None if given_back else failure)
        return False
    return True


def apply_notice(tx: Transaction, notice: Notice, *, max_failures: int) -> bool:
    """Apply a notice: it becomes a condition of the run and a warning of its session, once.

    :return: whether the run has ended by it, so that its trainer is to be stopped.
    """
    runs.lock(tx, notice.run)  # other servers may have noticed the same
    row = runs.find(tx, notice.run)
    if row is None or row.ended:
        return False
    begin = f"attempt {notice.attempt}: "
    known = [entry for entry in row.run.conditions if entry.type == notice.type]
    if not any(entry.message.startswith(begin) for entry in known):
        _add_condition(tx, row, notice, begin)
    if not notice.over:
        return False
    failure = v1.Failure(reason=notice.type, message=notice.message, remedy=notice.remedy)
    if notice.counts:
        _count(tx, row, notice.attempt, failure, max_failures=max_failures)
    if row.run.attempt > notice.attempt:
        return False  # the next attempt has begun
    if not assignments.open_of(tx, row.session):
        state = v1.RUN_STATE_FAILED if notice.counts else v1.RUN_STATE_SUCCEEDED
        runs.end(tx, notice.run, state, failure if notice.counts else None)
        return True
    interrupt(tx, row)
    return False


def interrupt(tx: Transaction, row: RunRow) -> None:
    """Have the run and its assignment wait for the next trainer."""
    if row.run.assignment:
        assignments.interrupt(tx, row.run.assignment)

    def between(run: v1.Run) -> None:
        run.assignment = ""
        if run.state in (v1.RUN_STATE_STARTING, v1.RUN_STATE_RUNNING):
            run.state = v1.RUN_STATE_QUEUED

    runs.change(tx, row.run.name, between)


def _interrupted(tx: Transaction, ended: Ended) -> bool:
    """Whether the attempt was ended from outside and may be repeated without counting."""
    if ended.kind is ExitKind.CHECKPOINTED:
        return True
    # A deadline that leaves no time for a single item or checkpoint would be repeated for ever.
    last = max(ended.attempt, ended.last_attempt)
    return ended.kind is ExitKind.DEADLINE and reports.made_progress(tx, ended.run, ended.attempt, last)


def _count(tx: Transaction, row: RunRow, attempt: int, failure: v1.Failure, *, max_failures: int) -> None:
    """Count the failure of an attempt on the assignment that it worked on, unless it was counted before."""
    open_ = [entry.name for entry in assignments.open_of(tx, row.session)]
    if attempt > row.counted_attempt and open_:
        name = row.run.assignment if row.run.assignment in open_ else open_[0]
        failed = assignments.count_failure(tx, name, failure, limit=max_failures)
        after = "failed" if failed else "is repeated"
        message = f"attempt {attempt} failed, {name} {after}: {failure.message}"
        known = any(entry.message.startswith(f"attempt {attempt}: ") for entry in row.run.conditions)
        if not known:
            runs.add_condition(tx, row.run.name, failure.reason, message)
        runs.change(tx, row.run.name, lambda _: {"counted_attempt": attempt})
        _log.warning("attempt failed", run=row.run.name, attempt=attempt, assignment=name, reason=failure.reason)
    interrupt(tx, runs.get(tx, row.run.name))


def _add_condition(tx: Transaction, row: RunRow, notice: Notice, begin: str) -> None:
    message = f"{begin}{notice.message}; {notice.remedy}"
    runs.add_condition(tx, notice.run, notice.type, message)
    working = assignments.find(tx, row.run.assignment) if row.run.assignment else None
    warning = ev.Event(warning=ev.Warning(reason=notice.type, message=message))
    events.append(tx, row.session, warning, iteration=working.iteration if working else 0)
    if notice.counts:
        metrics.RUN_FAILURES.labels(notice.type).inc()
    log = _log.warning if notice.counts else _log.info
    log("run condition", run=notice.run, attempt=notice.attempt, type=notice.type, message=notice.message)


def _failure(ended: Ended) -> v1.Failure:
    """Why the attempt failed, by how it ended."""
    if ended.reason:
        return v1.Failure(reason=ended.reason, message=ended.message, remedy=ended.remedy)
    reason, what, remedy = _FAILURES.get(ended.kind, _OTHER_FAILURE)
    return v1.Failure(reason=reason, message=f"{what}: {ended.message}", remedy=remedy)
