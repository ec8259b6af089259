"""Judging checkpoints while their training runs.

The session's workflow, waiting for its training, starts a child workflow for what was evaluated since the last look:
one child at a time, so that judging never takes more than one place while training runs, and what arrives meanwhile
is the next child's. A child judges by code alone; video is for what decides, at the end. A checkpoint that cannot be
judged becomes a warning: the last one, which decides, is judged by the session itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import DressageError

from dressage_orchestrator import resource_names
from dressage_orchestrator.lifecycle import aggregate, judging
from dressage_orchestrator.lifecycle.context import Json, SessionContext
from dressage_orchestrator.lifecycle.outcome import Cancelled

CHECKPOINTS = "checkpoints"
"""Kind of the child workflow."""

_MAX_CHECKPOINTS = 16


class CheckpointJudging:
    """What the waiting workflow knows of its training's checkpoints; rebuilt from recorded looks (see `assignments.BackgroundWork`).

    :param judge_source: for the children.
    """

    def __init__(self, context: SessionContext, number: int, assignment: str, judge_source: str) -> None:
        self._context = context
        self._number = number
        self._assignment = assignment
        self._source = judge_source
        self._begun: set[tuple[str, int]] = set()
        self._batches = 0
        self._child = ""

    def look(self) -> Json:
        """Checkpoints that were evaluated, and whether the child under way has ended."""
        # A child that ended without a result (its server met a fault) must not be waited for.
        done = not self._child or self._context.store.done(self._child) or self._context.child_ended(self._child)
        found = evaluated(self._context.store.members(self._assignment))
        fresh = [entry for entry in found if entry not in self._begun]
        return {"fresh": [list(entry) for entry in fresh[:_MAX_CHECKPOINTS]], "done": done}

    def advance(self, seen: Json) -> bool:
        """Starts a child where there is something to judge; whether all that was seen is judged."""
        if not seen["done"]:
            return False
        self._child = ""
        if not seen["fresh"]:
            return True
        self._batches += 1
        ident = f"judge-{self._number}-{resource_names.parse_assignment(self._assignment).assignment}-{self._batches}"
        self._begun |= {(member, step) for member, step in seen["fresh"]}
        batch = {
            "id": ident,
            "number": self._number,
            "assignment": self._assignment,
            "judge": self._source,
            "checkpoints": seen["fresh"],
        }
        self._child = ident
        self._context.start_child(CHECKPOINTS, ident, batch)
        return False


def evaluated(members: Sequence[v1.Member]) -> list[tuple[str, int]]:
    """Checkpoints that are neither judged nor the last ones, in order of steps: (member id, env step)."""
    found = [
        (member.name.rpartition("/")[2], entry.env_step)
        for member in members
        for entry in member.evaluations
        if entry.rollouts and entry.env_step < member.target_env_steps and aggregate.checkpoint_score(entry) is None
    ]
    return sorted(found, key=lambda entry: (entry[1], entry[0]))


def judge_batch(context: SessionContext, batch: Json) -> None:
    """The child workflow's work: judges a batch of checkpoints and stores the verdicts."""
    ident, number, assignment = batch["id"], batch["number"], batch["assignment"]

    def judge() -> None:
        members = {m.name.rpartition("/")[2]: m for m in context.store.members(assignment)}
        wanted = {(member, step): _rollouts(members, member, step) for member, step in batch["checkpoints"]}
        keys = [key for group in wanted.values() for key in group]
        try:
            found = judging.judge_by_code(context, assignment, keys, batch["judge"]) if keys else []
        except DressageError as error:
            message = f"checkpoints could not be judged while training runs: {error.message}"
            context.store.warn("CHECKPOINTS_NOT_JUDGED", message, iteration=number, key=ident)
        else:
            _announce(context, number, found, set(wanted))
        context.store.mark(ident)

    try:
        context.step(f"checkpoints:{ident}", judge)
    except Cancelled:
        context.log.info("checkpoints stay unjudged: the session is cancelled", batch=ident)


def _rollouts(members: Mapping[str, v1.Member], member: str, step: int) -> list[str]:
    if member not in members:
        return []
    return [r.artifact for e in members[member].evaluations if e.env_step == step for r in e.rollouts]


def _announce(context: SessionContext, number: int, members: Sequence[v1.Member], wanted: set[tuple[str, int]]) -> None:
    for member in members:
        for evaluation in member.evaluations:
            if (member.name.rpartition("/")[2], evaluation.env_step) not in wanted:
                continue
            scored = [r.judgment for r in evaluation.rollouts if aggregate.is_judged(r)]
            if scored:
                pooled = aggregate.pooled(scored, threshold=context.spec.pass_threshold)
                judged = ev.Judged(subject=member.name, judgment=pooled, env_step=evaluation.env_step)
                key = f"judged/{member.name}@{evaluation.env_step}"
                context.store.emit(ev.Event(judged=judged), iteration=number, key=key)
