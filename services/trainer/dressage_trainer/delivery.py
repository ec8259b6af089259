"""What leaves a training: evaluations with their rollouts, checkpoints, metrics, policy bundles — uploaded, then reported.

A report names only what is in the store already, so whoever reads the report can read the files.
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
from dressage.policies import WEIGHTS_FILE, PolicyCard, load, save_bundle, to_onnx

from dressage_trainer import unfinished
from dressage_trainer.messages import CheckpointMessage, EvaluateMessage, MemberPolicy, MemberStoppedMessage
from dressage_trainer.rollouts import LABELS, Episode, evaluation, representative
from dressage_trainer.uploads import copy_from_sandbox, put_files
from dressage_trainer.work import WorkStream

_ONNX_FILE = "policy.onnx"
_MAX_TENSORBOARD_FILES = 50


@dataclass(frozen=True)
class StagedCheckpoint:
    """A checkpoint that waits for its upload."""

    folder: Path
    """Of its own, with all the copies."""
    path: Path
    records: dict[str, Path]
    """Metrics and TensorBoard files by key, as they were when it was staged."""
    message: CheckpointMessage

    def discard(self) -> None:
        """Removes the copies."""
        shutil.rmtree(self.folder)


class Delivery:
    """Uploads and reports for one assignment.

    :param staging: folder of the supervisor's own, which no sandboxed process can reach.
    """

    def __init__(self, *, work: WorkStream, assignment: int, staging: Path) -> None:
        self._work = work
        self._assignment = assignment
        self._staging = staging
        self._stored: list[str] = []
        self._numbers = itertools.count()

    def continue_from(self, stored: Sequence[str]) -> None:
        """Takes note of the checkpoints that an earlier attempt stored, the newest first."""
        self._stored = list(stored)

    async def evaluation(self, member: str, env_step: int, episodes: Sequence[Episode]) -> None:
        """Uploads the p10, median and p90 rollouts and reports the evaluation."""
        chosen = representative([episode.own_return for episode in episodes])
        keys = {label: f"members/{member}/rollouts/{env_step}_{label}.npz" for label in LABELS}
        files = {}
        for label, index in chosen.items():
            path = self._staging / keys[label]
            path.parent.mkdir(parents=True, exist_ok=True)
            episodes[index].trajectory.save(path)
            files[keys[label]] = path
        await put_files(self._work, files)
        message = evaluation(episodes, env_step=env_step, keys=keys)
        self.report(pb.Report(evaluation=pb.EvaluationReport(member=member, evaluation=message)))
        for path in files.values():
            path.unlink(missing_ok=True)

    def stopped(self, message: MemberStoppedMessage) -> None:
        """Reports a member that cannot go on."""
        failure = session_pb2.Failure(reason=message.reason, message=message.message)
        member = pb.MemberReport(member=message.member, env_step=message.env_step, failure=failure)
        self.report(pb.Report(member=member))

    async def policy(self, policy: MemberPolicy) -> pb.MemberReport:
        """Writes and uploads the bundle, and returns the report of a member that has ended, without sending it."""
        prefix = f"members/{policy.member}/policy"
        folder = self._staging / prefix
        save_bundle(folder, weights=policy.weights, card=PolicyCard.from_dict(policy.card))
        to_onnx(load(folder), folder / _ONNX_FILE)
        await put_files(self._work, {f"{prefix}/{path.name}": path for path in sorted(folder.iterdir())})
        digest = hashlib.sha256((folder / WEIGHTS_FILE).read_bytes()).hexdigest()
        return pb.MemberReport(member=policy.member, env_step=policy.env_step, policy=prefix, policy_sha256=digest)

    def stage_records(self, members: Sequence[str], sandbox: Path, folder: Path | None = None) -> dict[str, Path]:
        """Copies the members' metrics and TensorBoard files out of the learner's folder; by key.

        :param folder: where to; a new one if None.
        """
        staged, folder = {}, folder or self._folder()
        for member in members:
            base = sandbox / "members" / member
            names = [base / "metrics.jsonl", *sorted((base / "tb").glob("*"))[:_MAX_TENSORBOARD_FILES]]
            for path in names:
                key = str(path.relative_to(sandbox))
                try:
                    staged[key] = copy_from_sandbox(path, sandbox, folder / key)
                except NotFound:
                    continue
        return staged

    def stage_checkpoint(
        self, message: CheckpointMessage, members: Sequence[str], sandbox: Path, *, max_bytes: int
    ) -> StagedCheckpoint:
        """Copies a checkpoint and its records out of the learner's folder, before the learner makes room for the next one.

        :raises NotFound: if the learner has done so already.
        :raises FailedPrecondition: if it is larger than ``max_bytes``, no file of the learner's folder, or has no place.
        """
        folder = self._folder()
        target = folder / "checkpoint" / Path(message.path).name
        try:
            path = copy_from_sandbox(sandbox / message.path, sandbox, target, max_bytes=max_bytes)
            return StagedCheckpoint(folder, path, self.stage_records(members, sandbox, folder / "records"), message)
        except DressageError:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise FailedPrecondition(f"it cannot be copied: {error.strerror}", reason="CHECKPOINT_NOT_COPIED") from None

    async def checkpoint(self, staged: StagedCheckpoint, undone: Sequence[EvaluateMessage] = ()) -> None:
        """Uploads a staged checkpoint with its records, and reports it.

        :param undone: evaluations before it that its next attempt has to do.
        """
        key, message = f"checkpoints/{staged.path.name}", staged.message
        # Written before the report: whoever is told of this checkpoint can find the ones before it.
        stored = [key, *(known for known in self._stored if known != key)][:CHECKPOINTS_INDEXED]
        index = self._staging / CHECKPOINT_INDEX
        index.parent.mkdir(parents=True, exist_ok=True)
        index.write_text(json.dumps(stored))
        files = {**staged.records, key: staged.path, CHECKPOINT_INDEX: index}
        if undone:
            path = staged.folder / "unfinished"
            await asyncio.to_thread(unfinished.write, path, undone)
            files = {unfinished.key_beside(key): path, **files}
        await put_files(self._work, files)
        self._stored = stored
        report = pb.CheckpointReport(key=key, update=message.update, env_step=message.env_step)
        self.report(pb.Report(checkpoint=report))
        staged.discard()

    async def records(self, records: dict[str, Path]) -> None:
        """Uploads staged records."""
        await put_files(self._work, records)

    def _folder(self) -> Path:
        """A new folder to stage in: what waits for its upload is not written again meanwhile."""
        return self._staging / "staged" / str(next(self._numbers))

    def report(self, report: pb.Report) -> None:
        """Sends a report about this assignment."""
        report.assignment = self._assignment
        self._work.report(report)
