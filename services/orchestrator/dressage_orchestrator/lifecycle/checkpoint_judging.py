"""Judging checkpoints while their training runs.

While the session's workflow waits for its training, it starts a child workflow for the checkpoints that were evaluated
since the last poll. There is one child at a time, so that judging takes at most one slot of the judge; later checkpoints
are judged by the next child. A child uses only code; video is used for the deciding rollouts at the end. A checkpoint that
cannot be judged results in a warning, because the last checkpoint, which decides, is judged by the session itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import DressageError
from google.protobuf.json_format import MessageToDict, ParseDict

from dressage_orchestrator import metrics, resource_names
from dressage_orchestrator.database.assignments import AssignmentRow
from dressage_orchestrator.lifecycle import aggregate, board, budget, judging
from dressage_orchestrator.lifecycle.context import Json, SessionContext
from dressage_orchestrator.lifecycle.outcome import Cancelled

CHECKPOINTS = "checkpoints"
"""Kind of the child workflow."""

# A child keeps one sandbox of the judge; what is evaluated meanwhile forms the next batch (decision 0027).
_MAX_CHECKPOINTS = 16


@dataclass(frozen=True)
class EarlyEnd:
    """How a training ends at a checkpoint.

    :param final_steps: environment steps of each member's final policy, by its id.
    :param decision: the reason and the scores; the store counts the saved steps.
    """

    final_steps: dict[str, int]
    decision: v1.EarlyStop

    def to_json(self) -> Json:
        """Return what a step can record."""
        return {"final_steps": self.final_steps, "decision": MessageToDict(self.decision)}

    @classmethod
    def from_json(cls, data: Json) -> EarlyEnd:
        """Return the inverse of `to_json`."""
        return cls(dict(data["final_steps"]), ParseDict(data["decision"], v1.EarlyStop()))


@dataclass(frozen=True)
class Decision:
    """What the judgments so far decide: the end of the training, or until when it may continue; or neither."""

    end: EarlyEnd | None = None
    extension: v1.Extension | None = None


class Decider(Protocol):
    """Decides when a training ends."""

    def decide(self, members: Sequence[v1.Member]) -> Decision:
        """Return what the judgments so far decide. Pure."""
        ...

    def affordable(self, members: Sequence[v1.Member], extension: v1.Extension, *, pace: float, seconds: float) -> bool:
        """Whether the wall-clock budget suffices to continue.

        :param pace: seconds per environment step of each member so far.
        :param seconds: left of the budget.
        """
        ...

    def end_at_last_checkpoint(self, members: Sequence[v1.Member], reason: v1.StopReason.ValueType) -> EarlyEnd | None:
        """Return the end of a training that cannot continue, at the last checkpoint that all members have."""
        ...


class CheckpointJudging:
    """Judges the checkpoints of a training in child workflows (see `assignments.BackgroundWork`).

    The state is rebuilt from recorded polls.

    :param judge_source: source of the judge.
    :param most: largest number of environment steps of a member: its last checkpoint is judged by the session itself.
    :param deciding: decides when the training ends; None: it does all its steps.
    """

    def __init__(
        self,
        context: SessionContext,
        number: int,
        assignment: str,
        judge_source: str,
        *,
        most: int,
        deciding: Decider | None = None,
    ) -> None:
        self._context = context
        self._number = number
        self._assignment = assignment
        self._source = judge_source
        self._most = most
        self._started: set[tuple[str, int]] = set()
        self._batches = 0
        self._child = ""
        self._deciding = deciding
        self._decided = False
        self._granted = 0

    def poll(self) -> Json:
        """List new checkpoints, and whether the current child has ended and the training is to end or may continue."""
        # A child may end without a result because of an internal error.
        done = not self._child or self._context.store.done(self._child) or self._context.child_ended(self._child)
        row = self._context.store.assignment(self._assignment)
        members = list(row.assignment.members)
        new = [entry for entry in unjudged_checkpoints(members, self._most) if entry not in self._started]
        decision = self._decision(row, waiting=bool(new) or not done)
        end, extension = decision.end, decision.extension
        if extension is not None and extension.env_steps <= self._granted:
            extension = None
        # Of a training that ends early only the last checkpoint is left to be judged, by the session itself.
        over = self._decided or end is not None
        listed = [] if over else [list(entry) for entry in new[:_MAX_CHECKPOINTS]]
        return {
            "new": listed,
            "done": done,
            "end": None if end is None else end.to_json(),
            "extension": None if extension is None else MessageToDict(extension),
        }

    def _decision(self, row: AssignmentRow, *, waiting: bool) -> Decision:
        """Return what the judgments and the budget decide.

        :param waiting: whether checkpoints are being judged or will be.
        """
        deciding, members = self._deciding, list(row.assignment.members)
        if deciding is None or self._decided or row.ended:
            return Decision()
        decision = deciding.decide(members)
        granted = row.work.train.granted_steps
        # A fixed length: there is nothing to extend.
        if not granted or decision.end is not None:
            return decision
        extension = decision.extension
        if extension is not None and extension.env_steps > granted:
            if self._affordable(row, extension):
                return decision
            # It may still do the steps that it has.
            ends = _all_wait(members, granted)
            return Decision(end=deciding.end_at_last_checkpoint(members, v1.STOP_REASON_BUDGET) if ends else None)
        if not waiting and _all_wait(members, granted):
            # All that was evaluated was given to a judge, and nothing follows from it.
            return Decision(end=deciding.end_at_last_checkpoint(members, v1.STOP_REASON_NOT_JUDGED))
        return decision

    def _affordable(self, row: AssignmentRow, extension: v1.Extension) -> bool:
        assert self._deciding is not None
        now, members = self._context.store.now().timestamp(), list(row.assignment.members)
        deadline = budget.wall_time_deadline(self._context.store.get())
        done = max((member.env_steps for member in members), default=0)
        if deadline is None or not done:
            return True
        pace = (now - row.assignment.start_time.ToMicroseconds() / 1e6) / done
        return self._deciding.affordable(members, extension, pace=pace, seconds=deadline - now)

    def advance(self, state: Json) -> bool:
        """End the training or let it continue if that was decided; start a child if there are new checkpoints.

        :return: whether all checkpoints are judged.
        """
        tag = f"{self._number}:{resource_names.parse_assignment(self._assignment).assignment}"
        if state["end"] is not None:
            end = EarlyEnd.from_json(state["end"])
            # A step of its own, after the recorded poll: repeating it changes nothing (decision 0048).
            self._decided = self._context.step(f"early-stop:{tag}", lambda: self._end_early(end))
            self._deciding = None  # a training that ends by itself just now is not asked again
        elif state["extension"] is not None:
            extension = ParseDict(state["extension"], v1.Extension())
            self._granted = extension.env_steps
            name = f"extend:{tag}:{extension.env_steps}"
            self._context.step(name, lambda: self._context.store.extend_training(self._assignment, extension))
        if not state["done"]:
            return False
        self._child = ""
        if not state["new"]:
            return True
        self._batches += 1
        # A fixed name: after a restart DBOS finds the child instead of starting a second one (decision 0027).
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
        stopped = self._context.store.end_training_early(self._assignment, end.final_steps, end.decision)
        if stopped is not None and self._context.store.mark(f"saved/steps/{self._assignment}"):
            metrics.ENV_STEPS_SAVED.labels(self._context.environment).inc(stopped.env_steps_saved)
        return stopped is not None


def _all_wait(members: Sequence[v1.Member], granted: int) -> bool:
    """Whether every member was evaluated at the steps until which it may continue; one that failed does not count."""
    alive = [member for member in members if not member.HasField("failure")]
    return bool(alive) and all(any(e.env_step >= granted for e in member.evaluations) for member in alive)


def unjudged_checkpoints(members: Sequence[v1.Member], most: int) -> list[tuple[str, int]]:
    """List checkpoints that are neither judged nor the last ones, in order of steps: (member id, env step).

    :param most: largest number of environment steps of a member.
    """
    checkpoints = [
        (member.name.rpartition("/")[2], entry.env_step)
        for member in members
        for entry in member.evaluations
        if entry.rollouts and entry.env_step < most and aggregate.checkpoint_score(entry) is None
    ]
    # Early marks first: a training's end is decided from the first mark on (decision 0048).
    return sorted(checkpoints, key=lambda entry: (entry[1], entry[0]))


def judge_batch(context: SessionContext, batch: Json) -> None:
    """Judge a batch of checkpoints and store the verdicts: the work of the child workflow."""
    ident, number, assignment = batch["id"], batch["number"], batch["assignment"]

    def judge() -> None:
        members = {m.name.rpartition("/")[2]: m for m in context.store.members(assignment)}
        rollouts = {(member, step): _rollouts(members, member, step) for member, step in batch["checkpoints"]}
        keys = [key for group in rollouts.values() for key in group]
        try:
            judged_members = judging.judge_by_code(context, assignment, keys, batch["judge"]) if keys else []
        except DressageError as error:
            message = f"checkpoints could not be judged during training: {error.message}"
            # Once for a training: a judge that fails on one batch fails on the next.
            key = f"checkpoints-not-judged/{assignment}"
            context.store.warn("CHECKPOINTS_NOT_JUDGED", message, iteration=number, key=key)
        else:
            _emit_judgments(context, number, judged_members, set(rollouts))
            board.write(context, judged_members)
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
                event = ev.Judged(subject=member.name, judgment=pooled, env_step=evaluation.env_step)
                key = f"judged/{member.name}@{evaluation.env_step}"
                context.store.emit(ev.Event(judged=event), iteration=number, key=key)
