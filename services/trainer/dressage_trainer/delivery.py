"""What leaves a training: evaluations with their rollouts, checkpoints, metrics, policy bundles — uploaded, then reported.

A report names only what is in the store already, so whoever reads the report can read the files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.errors import NotFound
from dressage.policies import WEIGHTS_FILE, PolicyCard, load, save_bundle, to_onnx

from dressage_trainer.messages import MemberPolicy
from dressage_trainer.rollouts import LABELS, Episode, evaluation, representative
from dressage_trainer.uploads import copy_from_sandbox, put_files
from dressage_trainer.work import WorkStream

_ONNX_FILE = "policy.onnx"
_MAX_TENSORBOARD_FILES = 50
INDEX = "checkpoints/index.json"
"""Keys of the newest checkpoints, the newest first."""
_INDEXED = 3


class Delivery:
    """Uploads and reports for one assignment.

    :param staging: folder of the supervisor's own, which no sandboxed process can reach.
    """

    def __init__(self, *, work: WorkStream, assignment: int, staging: Path) -> None:
        self._work = work
        self._assignment = assignment
        self._staging = staging
        self._stored: list[str] = []

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

    async def policy(self, policy: MemberPolicy, env_step: int) -> pb.MemberReport:
        """Writes and uploads the bundle, and returns the report of a member that has ended, without sending it."""
        prefix = f"members/{policy.member}/policy"
        folder = self._staging / prefix
        save_bundle(folder, weights=policy.weights, card=PolicyCard.from_dict(policy.card))
        to_onnx(load(folder), folder / _ONNX_FILE)
        await put_files(self._work, {f"{prefix}/{path.name}": path for path in sorted(folder.iterdir())})
        digest = hashlib.sha256((folder / WEIGHTS_FILE).read_bytes()).hexdigest()
        return pb.MemberReport(member=policy.member, env_step=env_step, policy=prefix, policy_sha256=digest)

    def stage_records(self, members: Sequence[str], sandbox: Path) -> dict[str, Path]:
        """Copies the members' metrics and TensorBoard files out of the learner's folder; by key."""
        staged = {}
        for member in members:
            base = sandbox / "members" / member
            names = [base / "metrics.jsonl", *sorted((base / "tb").glob("*"))[:_MAX_TENSORBOARD_FILES]]
            for path in names:
                key = str(path.relative_to(sandbox))
                try:
                    staged[key] = copy_from_sandbox(path, sandbox, self._staging / "records" / key)
                except NotFound:
                    continue
        return staged

    def stage_checkpoint(self, relative: str, sandbox: Path) -> Path:
        """Copies a checkpoint out of the learner's folder, before the learner makes room for the next one."""
        return copy_from_sandbox(sandbox / relative, sandbox, self._staging / "checkpoints" / Path(relative).name)

    async def checkpoint(self, staged: Path, records: dict[str, Path], *, update: int, env_step: int) -> None:
        """Uploads a staged checkpoint and the records that belong to it, and reports it."""
        key = f"checkpoints/{staged.name}"
        # Written before the report: whoever is told of this checkpoint can find the ones before it.
        self._stored = [key, *(known for known in self._stored if known != key)][:_INDEXED]
        index = self._staging / INDEX
        index.parent.mkdir(parents=True, exist_ok=True)
        index.write_text(json.dumps(self._stored))
        await put_files(self._work, {**records, key: staged, INDEX: index})
        self.report(pb.Report(checkpoint=pb.CheckpointReport(key=key, update=update, env_step=env_step)))
        staged.unlink(missing_ok=True)

    async def records(self, records: dict[str, Path]) -> None:
        """Uploads staged records."""
        await put_files(self._work, records)

    def report(self, report: pb.Report) -> None:
        """Sends a report about this assignment."""
        report.assignment = self._assignment
        self._work.report(report)
