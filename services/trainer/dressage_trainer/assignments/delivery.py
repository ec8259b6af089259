"""Upload the results of a training, then report them: policies, evaluations with their rollouts, checkpoints, metrics.

A report names only what is in the store already, so a reader of the report can read the files.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.api.v1 import session_pb2
from dressage.errors import DressageError, FailedPrecondition, NotFound
from dressage.limits import CHECKPOINT_INDEX, CHECKPOINTS_INDEXED
from dressage.policies import CARD_FILE, WEIGHTS_FILE, PolicyCard, load, save_bundle, to_onnx
from dressage.training.eventfile import FILE_NAME

from dressage_trainer.assignments.context import AssignmentContext
from dressage_trainer.evaluation.rollouts import Episode, evaluation, labelled
from dressage_trainer.lease.files import copy_from_sandbox, get_file, put_files
from dressage_trainer.messages import CheckpointMessage, MemberPolicy, MemberStoppedMessage, WarningMessage

_ONNX_FILE = "policy.onnx"
_RECORDS = ("metrics.jsonl", f"tb/{FILE_NAME}")
"""Files of each member, below its folder. Others, whatever their names, are not read."""
_MAX_RECORD_BYTES = 1 << 28
_MAX_WARNINGS = 200


def policy_item(reference: pb.PolicyRef) -> str:
    """Return the item of a policy that was uploaded."""
    return f"policy/{reference.member}/{reference.env_step}"


def evaluation_item(reference: pb.PolicyRef) -> str:
    """Return the item of a policy's evaluation."""
    return f"evaluation/{reference.member}/{reference.env_step}"


def episode_seeds(task: pb.TrainAssignment, member: str, *, final: bool) -> list[int]:
    """Return the seeds of the episodes of a member's evaluation.

    All members have the same episodes in the last evaluation. The few of a checkpoint are some of those, different ones for
    each member: if all had the same, which may begin easily, their mean would say less about the score of the last evaluation.
    They stay the same at all checkpoints of a member, so that its scores can be compared.

    :param member: id of a member of the task.
    """
    every = max(1, task.evaluation_episodes)
    count = every if final else task.checkpoint_episodes or every
    first = 0 if final else count * [entry.id for entry in task.members].index(member)
    return [task.evaluation_seed + (first + index) % max(every, count) for index in range(count)]


def final_item(reference: pb.PolicyRef) -> str:
    """Return the item of the last evaluation of a training that ends early: its policy was evaluated as a checkpoint before."""
    return f"final/{reference.member}/{reference.env_step}"


def member_item(member: str) -> str:
    """Return the item of a member that has ended."""
    return f"member/{member}"


def bundle_prefix(member: str, env_step: int) -> str:
    """Return the prefix of a policy's bundle at a mark."""
    return f"members/{member}/policies/{env_step}"


@dataclass(frozen=True)
class StagedCheckpoint:
    """A checkpoint that waits for its upload."""

    folder: Path
    """Contains all the copies, and nothing else."""
    path: Path
    records: dict[str, Path]
    """Metrics and TensorBoard files by key, as they were when it was staged."""
    message: CheckpointMessage

    def discard(self) -> None:
        """Remove the copies."""
        shutil.rmtree(self.folder)


class Delivery:
    """Uploads and reports for one assignment. Files wait in a folder that no sandboxed process can reach."""

    def __init__(self, context: AssignmentContext) -> None:
        self._context = context
        self._staging = context.scratch / "staging"
        self._checkpoint_keys: list[str] = []
        self._numbers = itertools.count()
        earlier = [item for item in context.assignment.finished_items if item.startswith("warning/")]
        # Numbers continue those of earlier attempts: an item is accepted once.
        self._warnings = itertools.count(1 + max((int(item.rpartition("/")[2]) for item in earlier), default=0))

    def continue_from(self, keys: Sequence[str]) -> None:
        """Set the checkpoints that an earlier attempt stored, the newest first."""
        self._checkpoint_keys = list(keys)

    def warn(self, message: WarningMessage) -> None:
        """Report a warning; after 200 of an assignment, further ones are dropped."""
        number = next(self._warnings)
        if number > _MAX_WARNINGS:
            return
        warning = pb.WarningReport(reason=message.reason[:100], message=message.message[:4000], member=message.member)
        self._context.report(f"warning/{number}", warning=warning)

    def report_stopped(self, message: MemberStoppedMessage) -> None:
        """Report a member that cannot continue."""
        failure = session_pb2.Failure(reason=message.reason, message=message.message)
        member = pb.MemberReport(member=message.member, env_step=message.env_step, failure=failure)
        self._context.report(member_item(message.member), member=member)

    def stage_policy(self, policy: MemberPolicy) -> pb.PolicyRef:
        """Write a policy's bundle to where `policy` and `load_policy` read it.

        :raises InvalidArgument: if its weights do not match its card.
        """
        prefix = bundle_prefix(policy.member, policy.env_step)
        save_bundle(self._staging / prefix, weights=policy.weights, card=PolicyCard.from_dict(policy.card))
        return pb.PolicyRef(member=policy.member, bundle=prefix, env_step=policy.env_step)

    async def policy(self, reference: pb.PolicyRef) -> None:
        """Upload the bundle of a staged policy, and report it."""
        await self._upload_bundle(reference, reference.bundle, (WEIGHTS_FILE, CARD_FILE))
        self._context.report(policy_item(reference), policy=pb.PolicyReport(policy=reference))

    async def fetch_policy(self, reference: pb.PolicyRef) -> None:
        """Download a bundle to where `load_policy` reads it, unless it is there.

        :raises NotFound: if the store has none.
        """
        for name in (WEIGHTS_FILE, CARD_FILE):
            path = self._bundle(reference) / name
            if not path.is_file():
                await get_file(self._context, f"{reference.bundle.rstrip('/')}/{name}", path)

    def load_policy(self, reference: pb.PolicyRef) -> MemberPolicy:
        """Return a policy that was staged or fetched, from its bundle."""
        policy = load(self._bundle(reference))
        return MemberPolicy(reference.member, reference.env_step, policy.card, policy.weights)

    def discard_policy(self, reference: pb.PolicyRef) -> None:
        """Remove the local copy of a bundle."""
        shutil.rmtree(self._bundle(reference), ignore_errors=True)

    async def evaluation(
        self, reference: pb.PolicyRef, episodes: Sequence[Episode], *, again: bool = False, every_rollout: bool = False
    ) -> None:
        """Upload the p10, median and p90 rollouts, or all, and report the evaluation.

        :param again: whether the policy was evaluated as a checkpoint before; its rollouts get other keys, as they may be read.
        """
        chosen = labelled([episode.stock_return for episode in episodes], every=every_rollout)
        folder, part = f"members/{reference.member}/rollouts", "_final" if again else ""
        keys = {label: f"{folder}/{reference.env_step}{part}_{label}.npz" for label in chosen}
        files = {}
        for label, index in chosen.items():
            path = self._staging / keys[label]
            path.parent.mkdir(parents=True, exist_ok=True)
            await asyncio.to_thread(episodes[index].trajectory.save, path)
            files[keys[label]] = path
        await put_files(self._context, files)
        message = evaluation(episodes, env_step=reference.env_step, keys=keys)
        report = pb.EvaluationReport(member=reference.member, evaluation=message)
        self._context.report(final_item(reference) if again else evaluation_item(reference), evaluation=report)
        for path in files.values():
            path.unlink(missing_ok=True)

    async def member(self, reference: pb.PolicyRef) -> None:
        """Upload a staged or fetched policy as the member's own, with an ONNX file, and report that the member has ended."""
        folder, prefix = self._bundle(reference), f"members/{reference.member}/policy"
        await asyncio.to_thread(lambda: to_onnx(load(folder), folder / _ONNX_FILE))
        await self._upload_bundle(reference, prefix, (WEIGHTS_FILE, CARD_FILE, _ONNX_FILE))
        digest = hashlib.sha256((folder / WEIGHTS_FILE).read_bytes()).hexdigest()
        report = pb.MemberReport(
            member=reference.member, env_step=reference.env_step, policy=prefix, policy_sha256=digest
        )
        self._context.report(member_item(reference.member), member=report)

    def stage_records(self, members: Sequence[str], sandbox: Path, folder: Path | None = None) -> dict[str, Path]:
        """Copy the members' metrics and TensorBoard files out of the learner's folder; by key.

        :param folder: where to; a new one if None.
        """
        staged, folder = {}, folder or self._folder()
        for member in members:
            for name in _RECORDS:
                key = f"members/{member}/{name}"
                try:
                    staged[key] = copy_from_sandbox(sandbox / key, sandbox, folder / key, max_bytes=_MAX_RECORD_BYTES)
                except NotFound:
                    continue
        return staged

    def stage_checkpoint(
        self, message: CheckpointMessage, members: Sequence[str], sandbox: Path, *, max_bytes: int
    ) -> StagedCheckpoint:
        """Copy a checkpoint and its records out of the learner's folder, before the learner deletes it for the next one.

        :raises NotFound: if the learner has done so already.
        :raises FailedPrecondition: if it is larger than ``max_bytes``, is no file of the learner's folder, or does not fit
            on the disk.
        """
        folder = self._folder()
        # The path's own name is the sandboxed process's choice and is not used.
        target = folder / "checkpoint" / f"{message.update}.safetensors"
        try:
            path = copy_from_sandbox(sandbox / message.path, sandbox, target, max_bytes=max_bytes)
            return StagedCheckpoint(folder, path, self.stage_records(members, sandbox, folder / "records"), message)
        except DressageError:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise FailedPrecondition(f"it cannot be copied: {error.strerror}", reason="CHECKPOINT_NOT_COPIED") from None

    async def checkpoint(self, staged: StagedCheckpoint) -> None:
        """Upload a staged checkpoint with its records, and report it."""
        key, message = f"checkpoints/{staged.path.name}", staged.message
        # Written before the report: a reader of the report can find the checkpoints before this one.
        keys = [key, *(earlier for earlier in self._checkpoint_keys if earlier != key)][:CHECKPOINTS_INDEXED]
        index = self._staging / CHECKPOINT_INDEX
        index.parent.mkdir(parents=True, exist_ok=True)
        index.write_text(json.dumps(keys))
        await put_files(self._context, {**staged.records, key: staged.path, CHECKPOINT_INDEX: index})
        self._checkpoint_keys = keys
        report = pb.CheckpointReport(key=key, update=message.update, env_step=message.env_step)
        self._context.report(f"checkpoint/{key}", checkpoint=report)
        staged.discard()

    async def records(self, records: dict[str, Path]) -> None:
        """Upload staged records."""
        await put_files(self._context, records)

    async def _upload_bundle(self, reference: pb.PolicyRef, prefix: str, names: Sequence[str]) -> None:
        folder = self._bundle(reference)
        await put_files(self._context, {f"{prefix}/{name}": folder / name for name in names})

    def _bundle(self, reference: pb.PolicyRef) -> Path:
        return self._staging / bundle_prefix(reference.member, reference.env_step)

    def _folder(self) -> Path:
        """Return a new folder to stage in, so that files which wait for their upload are not overwritten."""
        return self._staging / "staged" / str(next(self._numbers))
