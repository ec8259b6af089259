"""Judging checkpoints while their training runs.

While the session's workflow waits for its training, it starts a child workflow for the checkpoints that were evaluated
since the last poll. There is one child at a time, so that judging takes at most one slot of the judge; later checkpoints
are judged by the next child. A child uses only code; video is used for the deciding rollouts at the end. A checkpoint that
cannot be judged results in a warning, because the last checkpoint, which decides, is judged by the session itself.
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
    """Judges the checkpoints of a training in child workflows (see `assignments.BackgroundWork`).

    The state is rebuilt from recorded polls.

    :param judge_source: source of the judge.
    """

    def __init__(self, context: SessionContext, number: int, assignment: str, judge_source: str) -> None:
        self._context = context
        self._number = number
        self._assignment = assignment
        self._source = judge_source
        self._started: set[tuple[str, int]] = set()
        self._batches = 0
        self._child = ""

    def poll(self) -> Json:
        """List new checkpoints, and whether the current child has ended."""
        # A child may end without a result because of an internal error.
        done = not self._child or self._context.store.done(self._child) or self._context.child_ended(self._child)
        checkpoints = evaluated(self._context.store.members(self._assignment))
        new = [entry for entry in checkpoints if entry not in self._started]
        return {"new": [list(entry) for entry in new[:_MAX_CHECKPOINTS]], "done": done}

    def advance(self, state: Json) -> bool:
        """Start a child if there are new checkpoints; whether all checkpoints are judged."""
        if not state["done"]:
            return False
        self._child = ""
        if not state["new"]:
            return True
        self._batches += 1
        ident = f"judge-{self._number}-{resource_names.parse_assignment(self._assignment).assignment}-{self._batches}"
        self._started |= {(member, step) for member, step in state["new"]}
        batch = {
            "id": ident,
            "number": self._number,
            "assignment": self._assignment,
            "judge": self._source,
            "checkpoints": state["new"],
        }
        self._child = ident
        self._context.start_child(CHECKPOINTS, ident, batch)
        return False


def evaluated(members: Sequence[v1.Member]) -> list[tuple[str, int]]:
    """List checkpoints that are neither judged nor the last ones, in order of steps: (member id, env step)."""
    checkpoints = [
        (member.name.rpartition("/")[2], entry.env_step)
        for member in members
        for entry in member.evaluations
        if entry.rollouts and entry.env_step < member.target_env_steps and aggregate.checkpoint_score(entry) is None
    ]
    return sorted(checkpoints, key=lambda entry: (entry[1], entry[0]))


def judge_batch(context: SessionContext, batch: Json) -> None:
    """Judge a batch of checkpoints and store the verdicts: the work of the child workflow."""
    ident, number, assignment = batch["id"], batch["number"], batch["assignment"]

    def judge() -> None:
        members = {m.name.rpartition("/")[2]: m for m in context.store.members(assignment)}
        rollouts = {(member, step): _rollouts(members, member, step) for member, step in batch["checkpoints"]}
        keys = [key for group in rollouts.values() for key in group]
        try:
            judged = judging.judge_by_code(context, assignment, keys, batch["judge"]) if keys else []
        except DressageError as error:
            message = f"checkpoints could not be judged during training: {error.message}"
            context.store.warn("CHECKPOINTS_NOT_JUDGED", message, iteration=number, key=ident)
        else:
            _emit_judgments(context, number, judged, set(rollouts))
        context.store.mark(ident)

    try:
        context.step(f"checkpoints:{ident}", judge)
    except Cancelled:
        context.log.info("checkpoints are not judged: the session is cancelled", batch=ident)


def _rollouts(members: Mapping[str, v1.Member], member: str, step: int) -> list[str]:
    if member not in members:
        return []
    return [r.artifact for e in members[member].evaluations if e.env_step == step for r in e.rollouts]


def _emit_judgments(
    context: SessionContext, number: int, members: Sequence[v1.Member], checkpoints: set[tuple[str, int]]
) -> None:
    for member in members:
        for evaluation in member.evaluations:
            if (member.name.rpartition("/")[2], evaluation.env_step) not in checkpoints:
                continue
            scored = [r.judgment for r in evaluation.rollouts if aggregate.is_judged(r)]
            if scored:
                pooled = aggregate.pooled(scored, threshold=context.spec.pass_threshold)
                judged = ev.Judged(subject=member.name, judgment=pooled, env_step=evaluation.env_step)
                key = f"judged/{member.name}@{evaluation.env_step}"
                context.store.emit(ev.Event(judged=judged), iteration=number, key=key)
