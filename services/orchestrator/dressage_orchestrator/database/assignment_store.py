"""The part of a session's store about assignments: trainings, members, judgments, and the checkpoint that is delivered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from dressage.api.internal.v1 import run_service_pb2 as work
from dressage.api.v1 import session_pb2 as v1

from dressage_orchestrator.database import assignments, idempotency, sessions, trainings
from dressage_orchestrator.database.assignments import AssignmentRow
from dressage_orchestrator.database.engine import Database, Transaction
from dressage_orchestrator.database.transactions import Retry, Transactions


class AssignmentStore(Transactions):
    """Assignments of one session in one epoch, by name. Members of assignments of any session can be read.

    :param retry: runs a transaction, with retries while the database is unavailable.
    """

    def __init__(self, database: Database, session: str, epoch: int, *, retry: Retry) -> None:  # type: ignore[type-arg]
        super().__init__(database, retry)
        self.session = session
        self.epoch = epoch

    def _first(self, tx: Transaction, key: str) -> bool:
        """Record a key in this epoch; whether it is new."""
        return idempotency.record(tx, self.session, f"{self.epoch}/{key}")

    def create_assignment(self, number: int, task: work.Assignment, members: Sequence[v1.Member] = ()) -> None:
        """Store an assignment of an iteration, unless one of that name exists."""

        def write(tx: Transaction) -> None:
            assignments.create(tx, task, members)

            def list_assignment(iteration: v1.Iteration) -> None:
                if task.name not in iteration.assignments:
                    iteration.assignments.append(task.name)

            sessions.upsert_iteration(tx, self.session, number, list_assignment)

        self._write(write)

    def reopen_assignment(self, name: str) -> None:
        """Reopen an assignment that failed or was cancelled in an earlier epoch."""
        self._write(lambda tx: assignments.reopen(tx, name))

    def assignment(self, name: str) -> AssignmentRow:
        """Read an assignment with its members and candidates."""
        return self._read(lambda tx: assignments.get(tx, name))

    def assignment_ended(self, name: str) -> bool:
        """Whether an assignment is in a final state.

        :raises NotFound: when there is none.
        """
        return self._read(lambda tx: assignments.state(tx, name)) in assignments.ENDED

    def extend_training(self, assignment: str, decision: v1.Extension) -> bool:
        """Record that a training may continue; whether this call recorded it."""
        return self._write(lambda tx: trainings.extend(tx, assignment, decision))

    def end_training_early(
        self, assignment: str, final_steps: Mapping[str, int], decision: v1.EarlyStop
    ) -> v1.EarlyStop | None:
        """Record that a training ends early, and count the saved steps once.

        :param final_steps: environment steps of each member's final policy, by its id.
        :return: the decision; None if the training ends by itself first.
        """

        def write(tx: Transaction) -> v1.EarlyStop | None:
            stopped = trainings.end_early(tx, assignment, final_steps, decision)
            if stopped is not None and self._first(tx, f"saved/{assignment}"):

                def add(session: v1.Session) -> None:
                    session.env_steps_saved += stopped.env_steps_saved

                sessions.change(tx, self.session, add)
            return stopped

        return self._write(write)

    def record_speed(self, kind: str, pool: str, steps_per_second: float) -> None:
        """Record the speed of a kind of training, for later estimates."""
        self._write(lambda tx: trainings.record_speed(tx, kind, pool, steps_per_second))

    def members(self, assignment: str) -> list[v1.Member]:
        """List an assignment's members, in order."""
        return self._read(lambda tx: assignments.members(tx, assignment))

    def record_verdicts(self, assignment: str, verdicts: Mapping[str, v1.Judgment]) -> list[v1.Member]:
        """Write judgments into rollouts, by artifact; people's verdicts are kept.

        :return: the assignment's members.
        """

        def keep(member: v1.Member) -> None:
            for evaluation in member.evaluations:
                for rollout in evaluation.rollouts:
                    if rollout.artifact in verdicts:
                        people = [entry for entry in rollout.judgment.verdicts if entry.kind == v1.JUDGE_KIND_HUMAN]
                        rollout.judgment.CopyFrom(verdicts[rollout.artifact])
                        rollout.judgment.verdicts.extend(people)

        def write(tx: Transaction) -> list[v1.Member]:
            ids = [member.name.rpartition("/")[2] for member in assignments.members(tx, assignment)]
            return [assignments.change_member(tx, assignment, ident, keep) for ident in ids]

        return self._write(write)

    def choose_checkpoint(
        self,
        assignment: str,
        member: str,
        evaluation: v1.Evaluation,
        comparison: v1.CheckpointComparison,
        *,
        policy: str,
    ) -> None:
        """Record the comparison of a checkpoint with a member's last one; if it was selected, deliver it instead.

        :param evaluation: its evaluation, which replaces that of the same step.
        :param policy: artifact prefix of its bundle.
        """

        def choose(entry: v1.Member) -> None:
            entry.comparison.CopyFrom(comparison)
            if not comparison.selected:
                return
            for place, earlier in enumerate(entry.evaluations):
                if earlier.env_step == evaluation.env_step:
                    entry.evaluations[place].CopyFrom(evaluation)
            entry.delivered_env_step, entry.policy = evaluation.env_step, policy

        self._write(lambda tx: assignments.change_member(tx, assignment, member, choose))

    def judge_members(self, assignment: str, judgments: Mapping[str, v1.Judgment]) -> list[v1.Member]:
        """Write members' judgments, by name; returns the members."""

        def write(tx: Transaction) -> list[v1.Member]:
            for name, judgment in judgments.items():
                keep = partial(_judge_member, judgment)
                assignments.change_member(tx, assignment, name.rpartition("/")[2], keep)
            return assignments.members(tx, assignment)

        return self._write(write)


def _judge_member(judgment: v1.Judgment, member: v1.Member) -> None:
    member.judgment.CopyFrom(judgment)
