"""Records about trainings: the decisions to end one or to let it continue, and speeds, from which estimates are made."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from dressage.api.internal.v1 import run_service_pb2 as work
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1

from dressage_orchestrator import resource_names
from dressage_orchestrator.database import events
from dressage_orchestrator.database.assignments import change, change_member, find, lock, members, topic
from dressage_orchestrator.database.engine import ReadTransaction, Transaction
from dressage_orchestrator.database.tables import SPEEDS


def end_early(
    tx: Transaction, name: str, final_steps: Mapping[str, int], decision: v1.EarlyStop
) -> v1.EarlyStop | None:
    """Record that a training ends early, with uploaded policies as its final ones; later evaluations are dropped.

    :param final_steps: environment steps of each member's final policy, by its id.
    :param decision: without the saved steps, which are counted here.
    :return: the decision; None if the training has ended or is about to end by itself.
    """
    lock(tx, name)
    row = find(tx, name)
    trained = members(tx, name)
    if row is not None and row.work.train.final_steps:
        return row.assignment.early_stop  # an earlier call recorded it
    # One that has done all its steps saves nothing by an early end (decision 0048).
    if row is None or row.ended or any(_is_trained(member, row.work.train) for member in trained):
        return None
    stopped = v1.EarlyStop()
    stopped.CopyFrom(decision)
    stopped.env_step = max(final_steps.values())
    # A restarted trainer may not have reported yet that it is as far again.
    expected, reached = row.work.train.steps_per_member, stopped.env_step
    stopped.env_steps_saved = sum(max(0, expected - max(member.env_steps, reached)) for member in trained)

    def edit(assignment: v1.Assignment) -> dict[str, Any]:
        assignment.early_stop.CopyFrom(stopped)
        row.work.train.final_steps.update(final_steps)
        return {"work": row.work.SerializeToString()}

    change(tx, name, edit)
    for ident, step in final_steps.items():
        change_member(tx, name, ident, functools.partial(drop_evaluations, after=step))
    parts = resource_names.parse_assignment(name)
    # The trainer's stream waits for this topic, and sends it the assignment again (decision 0048).
    tx.touch(topic(parts.session))
    event = ev.Event(training_stopped=ev.TrainingStopped(assignment=name, early_stop=stopped))
    events.append(tx, parts.session, event, iteration=parts.iteration)
    return stopped


def extend(tx: Transaction, name: str, decision: v1.Extension) -> bool:
    """Record that a training may continue until a number of environment steps, unless it may already or ends.

    :return: whether this call recorded it.
    """
    lock(tx, name)
    row = find(tx, name)
    if row is None or row.ended or row.work.train.final_steps:
        return False
    if decision.env_steps <= row.work.train.granted_steps:
        return False

    def edit(assignment: v1.Assignment) -> dict[str, Any]:
        assignment.extensions.append(decision)
        row.work.train.granted_steps = decision.env_steps
        return {"work": row.work.SerializeToString()}

    def raise_target(member: v1.Member) -> None:
        member.target_env_steps = decision.env_steps

    change(tx, name, edit)
    for member in members(tx, name):
        change_member(tx, name, member.name.rpartition("/")[2], raise_target)
    parts = resource_names.parse_assignment(name)
    # The learner waits for the steps: the stream sends the assignment again (decision 0050).
    tx.touch(topic(parts.session))
    event = ev.Event(training_extended=ev.TrainingExtended(assignment=name, extension=decision))
    events.append(tx, parts.session, event, iteration=parts.iteration)
    return True


def _is_trained(member: v1.Member, task: work.TrainAssignment) -> bool:
    most = task.max_steps_per_member or task.steps_per_member
    return bool(member.policy) or (member.env_steps >= most and not member.HasField("failure"))


def drop_evaluations(member: v1.Member, *, after: int) -> None:
    """Drop a member's evaluations after a step."""
    earlier = [entry for entry in member.evaluations if entry.env_step <= after]
    member.ClearField("evaluations")
    member.evaluations.extend(earlier)


_SPEED_WEIGHT = 0.3
"""Weight of the latest training."""


def record_speed(tx: Transaction, kind: str, pool: str, steps_per_second: float) -> None:
    """Update the running mean of the speed of a kind of training (`estimates.kind_of_run`), for estimates."""
    tx.lock("speeds")
    match = (SPEEDS.c.environment == kind, SPEEDS.c.pool == pool)
    old = tx.execute(sa.select(SPEEDS.c.steps_per_second).where(*match)).one_or_none()
    if old is None:
        row = {"environment": kind, "pool": pool, "steps_per_second": steps_per_second}
        tx.execute(sa.insert(SPEEDS).values(**row))
        return
    blended = (1 - _SPEED_WEIGHT) * old.steps_per_second + _SPEED_WEIGHT * steps_per_second
    tx.execute(sa.update(SPEEDS).where(*match).values(steps_per_second=blended))


def first_speed(tx: ReadTransaction, keys: Sequence[str], pool: str) -> float | None:
    """Read the mean environment steps per second under the first key that has a record; None if none has.

    :param keys: kinds of training, the best one first.
    """
    match = (SPEEDS.c.environment.in_(keys), SPEEDS.c.pool == pool)
    rates = {row.environment: row.steps_per_second for row in tx.execute(sa.select(SPEEDS).where(*match))}
    return next((float(rates[key]) for key in keys if key in rates), None)
