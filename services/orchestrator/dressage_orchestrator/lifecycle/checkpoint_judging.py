"""Judging checkpoints while their training runs.

While the session's workflow waits for its training, it starts a child workflow for the checkpoints that were evaluated
since the last poll. There is one child at a time, so that judging takes at most one slot of the judge; later checkpoints
are judged by the next child. A child uses only code; video is used for the deciding rollouts at the end. A checkpoint that
cannot be judged results in a warning, because the last checkpoint, which decides, is judged by the session itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import DressageError

from dressage_orchestrator import metrics, resource_names
from dressage_orchestrator.lifecycle import aggregate, board, judging
from dressage_orchestrator.lifecycle.context import Json, SessionContext
from dressage_orchestrator.lifecycle.outcome import Cancelled

CHECKPOINTS = "checkpoints"
"""Kind of the child workflow."""

_MAX_CHECKPOINTS = 16


@dataclass(frozen=True)
class EarlyEnd:
    """A decision to end a training early.

    :param final_steps: environment steps of each member's final policy, by its id.
    :param score: lowest score of a member at the checkpoints that decided.
    :param required_score: the score that was required.
    """

    final_steps: dict[str, int]
    score: float
    required_score: float


Decide = Callable[[Sequence[v1.Member]], EarlyEnd | None]


class CheckpointJudging:
    """Judges the checkpoints of a training in child workflows (see `assignments.BackgroundWork`).

    The state is rebuilt from recorded polls.

    :param judge_source: source of the judge.
    :param decide: whether the training ends early, from its members with the judgments so far; None: it does not.
    """

    def __init__(
        self,
        context: SessionContext,
        number: int,
        assignment: str,
        judge_source: str,
        *,
        decide: Decide | None = None,
    ) -> None:
        self._context = context
        self._number = number
        self._assignment = assignment
        self._source = judge_source
        self._started: set[tuple[str, int]] = set()
        self._batches = 0
        self._child = ""
        self._decide = decide
        self._decided = False

    def poll(self) -> Json:
        """List new checkpoints, and whether the current child has ended and the training is to end early."""
        # A child may end without a result because of an internal error.
        done = not self._child or self._context.store.done(self._child) or self._context.child_ended(self._child)
        members = self._context.store.members(self._assignment)
        end = self._decide(members) if self._decide is not None and not self._decided else None
        # Of a training that ends early only the last checkpoint is left to be judged, by the session itself.
        over = self._decided or end is not None
        new = [] if over else [entry for entry in evaluated(members) if entry not in self._started]
        listed = [list(entry) for entry in new[:_MAX_CHECKPOINTS]]
        return {"new": listed, "done": done, "end": None if end is None else asdict(end)}

    def advance(self, state: Json) -> bool:
        """End the training early if that was decided; else start a child if there are new checkpoints.

        :return: whether all checkpoints are judged.
        """
        if state["end"] is not None:
            end = EarlyEnd(**state["end"])
            name = f"early-stop:{self._number}:{resource_names.parse_assignment(self._assignment).assignment}"
            self._decided = self._context.step(name, lambda: self._end_early(end))
            self._decide = None  # a training that ends by itself just now is not asked again
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

    def _end_early(self, end: EarlyEnd) -> bool:
        """Record the decision; whether the training ends early."""
        decision = v1.EarlyStop(score=end.score, required_score=end.required_score)
        stopped = self._context.store.end_training_early(self._assignment, end.final_steps, decision)
        if stopped is not None and self._context.store.mark(f"saved/steps/{self._assignment}"):
            metrics.ENV_STEPS_SAVED.labels(self._context.environment).inc(stopped.env_steps_saved)
        return stopped is not None


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
            # Once for a training: a judge that fails on one batch fails on the next.
            key = f"checkpoints-not-judged/{assignment}"
            context.store.warn("CHECKPOINTS_NOT_JUDGED", message, iteration=number, key=key)
        else:
            _emit_judgments(context, number, judged, set(rollouts))
            board.write(context, judged)
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
            if any(aggregate.is_judged(rollout) for rollout in evaluation.rollouts):
                pooled = aggregate.checkpoint_judgment(member, evaluation, threshold=context.spec.pass_threshold)
                judged = ev.Judged(subject=member.name, judgment=pooled, env_step=evaluation.env_step)
                key = f"judged/{member.name}@{evaluation.env_step}"
                context.store.emit(ev.Event(judged=judged), iteration=number, key=key)
