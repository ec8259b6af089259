"""Assignments: units of a session's work, with their members, candidates and results.

An assignment is created once under its name, served to the session's run, and ends in one state. Trainers identify it by its
number in the session. A reopened assignment gets a new number, so that a trainer does not confuse it with the earlier one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from dressage.api.internal.v1 import run_service_pb2 as work
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import InvalidArgument, NotFound

from dressage_orchestrator import resource_names
from dressage_orchestrator.clock import micros, timestamp
from dressage_orchestrator.database import events, pages
from dressage_orchestrator.database.engine import ReadTransaction, Transaction
from dressage_orchestrator.database.pages import Page
from dressage_orchestrator.database.tables import ASSIGNMENTS, CANDIDATES, MEMBERS, REPORTS, RUNS, SESSIONS
from dressage_orchestrator.database.transactions import swap

ENDED = frozenset(
    {v1.ASSIGNMENT_STATE_SUCCEEDED, v1.ASSIGNMENT_STATE_FAILED, v1.ASSIGNMENT_STATE_CANCELLED},
)
"""Final states; only `reopen` leaves them."""

OPEN = frozenset({v1.ASSIGNMENT_STATE_PENDING, v1.ASSIGNMENT_STATE_RUNNING})
"""States of an assignment that has or needs a trainer."""


# Built once: to build a statement takes longer than to execute it.
_OF_SESSION = ASSIGNMENTS.c.session == sa.bindparam("session")
_FIND = sa.select(ASSIGNMENTS).where(ASSIGNMENTS.c.name == sa.bindparam("name"))
_STATE = sa.select(ASSIGNMENTS.c.state).where(ASSIGNMENTS.c.name == sa.bindparam("name"))
_BY_ID = sa.select(ASSIGNMENTS).where(_OF_SESSION, ASSIGNMENTS.c.id == sa.bindparam("number"))
_LAST_ID = sa.select(sa.func.max(ASSIGNMENTS.c.id)).where(_OF_SESSION)
_OPEN_OF = sa.select(ASSIGNMENTS).where(_OF_SESSION, ASSIGNMENTS.c.state.in_(sorted(OPEN))).order_by(ASSIGNMENTS.c.id)
_MEMBERS = sa.select(MEMBERS.c.data).where(MEMBERS.c.assignment == sa.bindparam("name")).order_by(MEMBERS.c.position)
_MEMBERS_SIZE = (
    sa.select(sa.func.coalesce(sa.func.sum(sa.func.length(MEMBERS.c.data)), 0))
    .where(MEMBERS.c.assignment == ASSIGNMENTS.c.name)
    .scalar_subquery()
)
_SIZE = sa.func.length(ASSIGNMENTS.c.data) + _MEMBERS_SIZE
_CANDIDATES = sa.select(CANDIDATES.c.id, CANDIDATES.c.data).where(CANDIDATES.c.assignment == sa.bindparam("name"))
_INSERT, _INSERT_CANDIDATE = sa.insert(ASSIGNMENTS), sa.insert(CANDIDATES)
_COUNT_STEPS = (
    sa.update(ASSIGNMENTS)
    .where(ASSIGNMENTS.c.name == sa.bindparam("of"))
    .values(env_steps=ASSIGNMENTS.c.env_steps + sa.bindparam("more", type_=sa.BigInteger))
)
_CLAIM_RUN = sa.update(RUNS).where(RUNS.c.session == sa.bindparam("of")).values(idle_micros=0, release=False)
_TRAINED = sa.select(MEMBERS.c.data).join(ASSIGNMENTS, ASSIGNMENTS.c.name == MEMBERS.c.assignment).where(_OF_SESSION)
_EVALUATED_STEPS = sa.select(sa.func.sum(ASSIGNMENTS.c.env_steps)).where(_OF_SESSION)


@dataclass(frozen=True)
class AssignmentRow:
    """An assignment with its internal columns.

    :param assignment: the message; with members and candidates only if documented at the function.
    :param id: number in the session.
    :param checkpoint: key of the newest checkpoint, relative to the assignment; empty: none.
    :param work: the request, as given to `create`.
    """

    assignment: v1.Assignment
    session: str
    iteration: int
    id: int
    checkpoint: str
    work: work.Assignment

    @property
    def ended(self) -> bool:
        """Whether the state is final."""
        return self.assignment.state in ENDED

    @property
    def name(self) -> str:
        """Full name."""
        return self.assignment.name


def _row(row: Any) -> AssignmentRow:
    return AssignmentRow(
        assignment=v1.Assignment.FromString(row.data),
        session=row.session,
        iteration=row.iteration,
        id=row.id,
        checkpoint=row.checkpoint,
        work=work.Assignment.FromString(row.work),
    )


def create(tx: Transaction, task: work.Assignment, members: Sequence[v1.Member] = ()) -> AssignmentRow:
    """Store a new assignment, PENDING, unless one of that name exists.

    :param task: name, cores and work; the number is assigned here.
    :param members: members to train or score, with names below the assignment's.
    :return: the new or existing assignment.
    :raises InvalidArgument: when the name or the work is missing.
    :raises NotFound: when the session does not exist.
    """
    parts = resource_names.parse_assignment(task.name)
    kind = task.WhichOneof("work")
    if kind is None:
        raise InvalidArgument(field="work", value=None, expected="train, score, evaluate or search")
    lock(tx, task.name)
    existing = find(tx, task.name)
    if existing is not None:
        return existing
    assignment = v1.Assignment(name=task.name, kind=kind, state=v1.ASSIGNMENT_STATE_PENDING)
    assignment.create_time.CopyFrom(timestamp(tx.now))
    if task.train.granted_steps:
        assignment.max_steps_per_member = task.train.max_steps_per_member
    numbered = work.Assignment()
    numbered.CopyFrom(task)
    numbered.id = _next_id(tx, parts.session)
    key = {"name": task.name, "session": parts.session, "iteration": parts.iteration, "id": numbered.id}
    row = {"data": assignment.SerializeToString(), "work": numbered.SerializeToString(), "state": assignment.state}
    rest = {
        "failures": 0,
        "checkpoint": "",
        "generated_code": False,
        "env_steps": 0,
        "progress_micros": 0,
        "version": 1,
    }
    tx.execute(_INSERT, {**key, **row, **rest, "create_micros": micros(tx.now)})
    for position, member in enumerate(members):
        ids = {"assignment": task.name, "id": member.name.rpartition("/")[2], "position": position}
        tx.execute(sa.insert(MEMBERS).values(**ids, data=member.SerializeToString()))
    # In this transaction: a run that is released at the same moment cannot miss the assignment (decision 0032).
    _claim_run(tx, parts.session)
    _append_event(tx, parts, assignment)
    return AssignmentRow(assignment, parts.session, parts.iteration, numbered.id, "", numbered)


def _next_id(tx: ReadTransaction, session: str) -> int:
    return (tx.execute(_LAST_ID, {"session": session}).scalar_one() or 0) + 1


def _claim_run(tx: Transaction, session: str) -> None:
    """Mark the session's run as no longer idle."""
    tx.execute(_CLAIM_RUN, {"of": session})


def find(tx: ReadTransaction, name: str) -> AssignmentRow | None:
    """Read an assignment without members and candidates; None if there is none."""
    row = tx.execute(_FIND, {"name": name}).one_or_none()
    return None if row is None else _row(row)


def by_id(tx: ReadTransaction, session: str, number: int) -> AssignmentRow | None:
    """Read the session's assignment of that number, without members and candidates; None if there is none."""
    row = tx.execute(_BY_ID, {"session": session, "number": number}).one_or_none()
    return None if row is None else _row(row)


def get(tx: ReadTransaction, name: str) -> AssignmentRow:
    """Read an assignment with its members, and with its candidates in the order of the request.

    :raises NotFound: when there is none.
    """
    row = find(tx, name)
    if row is None:
        raise _missing(name)
    row.assignment.members.extend(members(tx, name))
    if row.work.HasField("evaluate"):
        results = candidates(tx, name)
        ids = [entry.id for entry in row.work.evaluate.candidates]
        row.assignment.candidates.extend(results[ident] for ident in ids if ident in results)
    return row


def state(tx: ReadTransaction, name: str) -> int:
    """Read an assignment's state.

    :raises NotFound: when there is none.
    """
    value = tx.execute(_STATE, {"name": name}).scalar_one_or_none()
    if value is None:
        raise _missing(name)
    return int(value)


def members(tx: ReadTransaction, name: str) -> list[v1.Member]:
    """Read an assignment's members in order."""
    return [v1.Member.FromString(row.data) for row in tx.execute(_MEMBERS, {"name": name})]


def change_member(tx: Transaction, name: str, member: str, edit: Callable[[v1.Member], None]) -> v1.Member:
    """Change a member.

    :param member: its id.
    :raises NotFound: when there is none.
    """
    lock(tx, name)
    match = (MEMBERS.c.assignment == name, MEMBERS.c.id == member)
    row = tx.execute(sa.select(MEMBERS.c.data).where(*match)).one_or_none()
    if row is None:
        raise NotFound(f"assignment {name!r} has no member {member!r}", reason="MEMBER_NOT_FOUND")
    message = v1.Member.FromString(row.data)
    edit(message)
    tx.execute(sa.update(MEMBERS).where(*match).values(data=message.SerializeToString()))
    return message


def show_video(tx: Transaction, member: str, *, rollout: str, video: str) -> bool:
    """Record a rollout's video in its member.

    :param member: its full name, ``…/members/{member}``.
    :return: whether the member has the rollout and did not have this video.
    :raises NotFound: when there is no such member.
    """
    assignment, _, ident = member.rpartition("/members/")
    changes: list[v1.Rollout] = []

    def show(entry: v1.Member) -> None:
        rollouts = [each for evaluation in entry.evaluations for each in evaluation.rollouts]
        changes.extend(each for each in rollouts if each.artifact == rollout and each.video != video)
        for each in changes:
            each.video = video

    change_member(tx, assignment, ident, show)
    return bool(changes)


def candidates(tx: ReadTransaction, name: str) -> dict[str, v1.CandidateResult]:
    """Read the results of an assignment's candidates by id."""
    rows = tx.execute(_CANDIDATES, {"name": name})
    return {row.id: v1.CandidateResult.FromString(row.data) for row in rows}


def add_candidate(tx: Transaction, name: str, result: v1.CandidateResult) -> None:
    """Store the result of a candidate and count its environment steps."""
    row = {"assignment": name, "id": result.id, "data": result.SerializeToString()}
    tx.execute(_INSERT_CANDIDATE, row)
    tx.execute(_COUNT_STEPS, {"of": name, "more": sum(result.lengths)})


def page(
    tx: ReadTransaction, session: str, *, iteration: int | None, after: tuple[int, str] | None, limit: int
) -> Page[tuple[v1.Assignment, tuple[int, str]]]:
    """List a session's assignments, oldest first, each with its position, with members and without candidates.

    :param iteration: list only those of this iteration.
    :param after: position after which the page begins.
    """
    query = sa.select(ASSIGNMENTS.c.data, ASSIGNMENTS.c.name, ASSIGNMENTS.c.create_micros)
    query = query.where(ASSIGNMENTS.c.session == session)
    if iteration is not None:
        query = query.where(ASSIGNMENTS.c.iteration == iteration)
    if after is not None:
        later = sa.and_(ASSIGNMENTS.c.create_micros == after[0], ASSIGNMENTS.c.name > after[1])
        query = query.where(sa.or_(ASSIGNMENTS.c.create_micros > after[0], later))
    oldest_first = query.order_by(ASSIGNMENTS.c.create_micros, ASSIGNMENTS.c.name)
    rows, more = pages.read(tx, oldest_first, _SIZE, limit=limit)
    entries = []
    for row in rows:
        message = v1.Assignment.FromString(row.data)
        message.members.extend(members(tx, row.name))
        entries.append((message, (row.create_micros, row.name)))
    return Page(entries, more)


def open_of(tx: ReadTransaction, session: str) -> list[AssignmentRow]:
    """List a session's open assignments in the order in which they are served."""
    return [_row(row) for row in tx.execute(_OPEN_OF, {"session": session})]


def live(tx: ReadTransaction) -> list[AssignmentRow]:
    """List the open assignments of all sessions, oldest first."""
    query = sa.select(ASSIGNMENTS).where(ASSIGNMENTS.c.state.in_(sorted(OPEN)))
    return [_row(row) for row in tx.execute(query.order_by(ASSIGNMENTS.c.create_micros, ASSIGNMENTS.c.name))]


def at_work(tx: ReadTransaction) -> list[tuple[v1.Assignment, str]]:
    """List the open assignments that a run has, without members and candidates, each with the name of its environment."""
    query = sa.select(ASSIGNMENTS.c.data, SESSIONS.c.summary).join(SESSIONS, SESSIONS.c.id == ASSIGNMENTS.c.session)
    entries = []
    for row in tx.execute(query.where(ASSIGNMENTS.c.state.in_(sorted(OPEN)))):
        assignment = v1.Assignment.FromString(row.data)
        if assignment.run:
            entries.append((assignment, v1.Session.FromString(row.summary).spec.environment))
    return entries


def waiting_sessions(tx: ReadTransaction, run_states: frozenset[int]) -> list[str]:
    """List sessions with open assignments and without a run in any of the states."""
    served = sa.select(RUNS.c.session).where(RUNS.c.state.in_(sorted(run_states)))
    match = (ASSIGNMENTS.c.state.in_(sorted(OPEN)), ASSIGNMENTS.c.session.not_in(served))
    query = sa.select(ASSIGNMENTS.c.session).where(*match).distinct().order_by(ASSIGNMENTS.c.session)
    return [row.session for row in tx.execute(query)]


def change(tx: Transaction, name: str, edit: Callable[[v1.Assignment], dict[str, Any] | None]) -> v1.Assignment:
    """Change an assignment by compare-and-swap; a change of state or failures appends its event.

    :param edit: changes the message, except members and candidates; may return further columns to write.
    :raises NotFound: when there is none.
    """
    lock(tx, name)
    before = v1.Assignment()
    extra: dict[str, Any] = {}

    def apply(message: v1.Assignment) -> None:
        before.CopyFrom(message)
        extra.clear()
        extra.update(edit(message) or {})

    def columns(message: v1.Assignment) -> dict[str, Any]:
        fault = message.generated_code_fault
        return {"state": message.state, "failures": message.failures, "generated_code": fault, **extra}

    swapped = swap(tx, ASSIGNMENTS, {"name": name}, v1.Assignment, apply, columns)
    if swapped is None:
        raise _missing(name)
    message = swapped[0]
    if (message.state, message.failures) != (before.state, before.failures):
        _append_event(tx, resource_names.parse_assignment(name), message)
    tx.touch(name)
    return message


def begin(tx: Transaction, name: str, run: str) -> None:
    """Record that the run's trainer executes the assignment, unless it has ended."""

    def edit(assignment: v1.Assignment) -> None:
        if assignment.state not in OPEN:
            return
        assignment.state = v1.ASSIGNMENT_STATE_RUNNING
        assignment.run = run
        if not assignment.HasField("start_time"):
            assignment.start_time.CopyFrom(timestamp(tx.now))

    change(tx, name, edit)


def interrupt(tx: Transaction, name: str) -> None:
    """Return a running assignment to PENDING for the next trainer."""

    def edit(assignment: v1.Assignment) -> None:
        if assignment.state == v1.ASSIGNMENT_STATE_RUNNING:
            assignment.state = v1.ASSIGNMENT_STATE_PENDING

    change(tx, name, edit)


def count_failure(tx: Transaction, name: str, failure: v1.Failure, *, limit: int) -> bool:
    """Count a failure of an open assignment; beyond ``limit`` the assignment fails.

    :return: whether the assignment failed.
    """

    lock(tx, name)
    row = find(tx, name)
    if row is None or row.ended:
        return False
    if row.assignment.failures >= limit:
        end(tx, name, v1.ASSIGNMENT_STATE_FAILED, failure)
        return True

    def repeat(assignment: v1.Assignment) -> None:
        assignment.failures += 1
        assignment.state = v1.ASSIGNMENT_STATE_PENDING

    change(tx, name, repeat)
    return False


def end(
    tx: Transaction,
    name: str,
    state: v1.AssignmentState.ValueType,
    failure: v1.Failure | None = None,
    *,
    generated_code: bool = False,
) -> None:
    """End an assignment, unless it has ended.

    :param generated_code: whether generated code caused the failure.
    """

    def edit(assignment: v1.Assignment) -> None:
        if assignment.state in ENDED:
            return
        assignment.state = state
        assignment.generated_code_fault = generated_code
        assignment.end_time.CopyFrom(timestamp(tx.now))
        if failure is not None:
            assignment.failure.CopyFrom(failure)

    change(tx, name, edit)


def reopen(tx: Transaction, name: str) -> bool:
    """Reopen a FAILED or CANCELLED assignment, with its items and its checkpoint.

    Its failures are counted from 0. If all members had failed, their training continues.

    :return: whether this call reopened it.
    :raises NotFound: when there is none.
    """
    lock(tx, name)
    row = find(tx, name)
    if row is None:
        raise _missing(name)
    if row.assignment.state not in (v1.ASSIGNMENT_STATE_FAILED, v1.ASSIGNMENT_STATE_CANCELLED):
        return False
    task = work.Assignment()
    task.CopyFrom(row.work)
    # A trainer that still has the old number takes it for another assignment; its late reports are dropped (decision 0032).
    task.id = _next_id(tx, row.session)

    def edit(assignment: v1.Assignment) -> dict[str, Any]:
        assignment.state = v1.ASSIGNMENT_STATE_PENDING
        assignment.failures = 0
        assignment.generated_code_fault = False
        assignment.ClearField("failure")
        assignment.ClearField("end_time")
        return {"id": task.id, "work": task.SerializeToString()}

    change(tx, name, edit)
    existing = members(tx, name)
    if existing and all(member.HasField("failure") for member in existing):
        for member in existing:
            ident = member.name.rpartition("/")[2]
            change_member(tx, name, ident, lambda message: message.ClearField("failure"))
            ended = (REPORTS.c.assignment == name, REPORTS.c.item == f"member/{ident}")
            # Otherwise the member's next end would be ignored as a repetition of an accepted item.
            tx.execute(sa.delete(REPORTS).where(*ended))
    _claim_run(tx, row.session)
    return True


def env_steps(tx: ReadTransaction, session: str) -> int:
    """Sum the environment steps of a session's members, candidates and searches."""
    trained = sum(v1.Member.FromString(row.data).env_steps for row in tx.execute(_TRAINED, {"session": session}))
    evaluated = tx.execute(_EVALUATED_STEPS, {"session": session}).scalar_one()
    return trained + int(evaluated or 0)


def environment_of(task: work.Assignment) -> str:
    """The environment of an assignment of any kind; empty if it has none."""
    kind = task.WhichOneof("work")
    return str(getattr(task, kind).environment) if kind is not None else ""


def lock(tx: Transaction, name: str) -> None:
    """Lock the assignment's session against concurrent transactions."""
    tx.lock(resource_names.session_name(resource_names.parse_assignment(name).session))


def topic(session: str) -> str:
    """The topic of state changes of the session's assignments."""
    return f"{resource_names.session_name(session)}/assignments"


def _missing(name: str) -> NotFound:
    return NotFound(f"no assignment {name!r}", reason="ASSIGNMENT_NOT_FOUND", metadata={"assignment": name})


def _append_event(tx: Transaction, parts: resource_names.AssignmentParts, assignment: v1.Assignment) -> None:
    changed = ev.AssignmentChanged(assignment=assignment.name, state=assignment.state, run=assignment.run)
    changed.failures = assignment.failures
    if assignment.HasField("failure"):
        changed.failure.CopyFrom(assignment.failure)
    events.append(tx, parts.session, ev.Event(assignment_changed=changed), iteration=parts.iteration)
    tx.touch(topic(parts.session))
