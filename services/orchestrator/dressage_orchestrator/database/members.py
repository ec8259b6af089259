"""The part of a session's store about members of assignments: judgments, and the checkpoint that is delivered."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from dressage.api.v1 import session_pb2 as v1

from dressage_orchestrator.database import assignments
from dressage_orchestrator.database.engine import Transaction
from dressage_orchestrator.database.transactions import Transactions


class MemberRecords(Transactions):
    """Members of assignments of any session, by the assignment's name."""

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

    def choose_checkpoint(self, assignment: str, member: str, evaluation: v1.Evaluation, *, policy: str) -> None:
        """Deliver a checkpoint of a member instead of its last one.

        :param evaluation: its evaluation, which replaces that of the same step.
        :param policy: artifact prefix of its bundle.
        """

        def choose(entry: v1.Member) -> None:
            for place, known in enumerate(entry.evaluations):
                if known.env_step == evaluation.env_step:
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
