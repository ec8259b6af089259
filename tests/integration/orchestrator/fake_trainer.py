"""A trainer that trains nothing: it speaks `Work` as a real one does, and behaves as comments in the reward tell it.

``good`` in the reward scores 0.9, otherwise 0.3. ``# crash-code`` exits 42, ``# crash`` exits 1, ``# crash-once`` exits 1
in the first attempt, ``# silent`` never says hello, ``# slow`` trains until the file $DRESSAGE_TRAINER_GO exists,
``# wild`` reports that the assignment failed, ``# lucky`` trains well and fails confirmation, ``score=X`` scores X, ``curve=X``
is evaluated at half its steps, too, and scores X there.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import queue
import re
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
from dressage.api.internal.v1 import run_service_pb2 as work
from dressage.api.internal.v1 import run_service_pb2_grpc as rpc
from dressage.api.v1 import session_pb2 as v1
from dressage.artifacts import Grant, upload

LABELS = ("p10", "median", "p90")


class Trainer:
    def __init__(self, options: argparse.Namespace, token: str) -> None:
        self.attempt = options.attempt
        self.outgoing: queue.Queue[work.WorkRequest | None] = queue.Queue()
        hello = work.Hello(run=options.run, attempt=options.attempt, token=token, version="fake")
        hello.sandbox_capabilities.extend(["landlock-5", "seccomp"])
        self.outgoing.put(work.WorkRequest(hello=hello))
        self.incoming = rpc.RunServiceStub(grpc.insecure_channel(options.address)).Work(self._said())
        self.sequence = 0
        self.heard: dict[str, work.WorkResponse] = {}
        self.folder = Path(tempfile.mkdtemp())

    def _said(self) -> Iterator[work.WorkRequest]:
        while (said := self.outgoing.get()) is not None:
            yield said

    def hear(self, kind: str) -> work.WorkResponse:
        if kind in self.heard:
            return self.heard.pop(kind)
        for answer in self.incoming:
            if answer.WhichOneof("message") == kind:
                return answer
            self.heard[answer.WhichOneof("message")] = answer
            if answer.HasField("stop"):
                print("told to stop:", answer.stop.reason, flush=True)
                sys.exit(0)
        sys.exit(1)

    def report(self, **body: object) -> None:
        self.sequence += 1
        report = work.Report(sequence=self.sequence, assignment=1, **body)
        # Each report is said twice, as after a redial: nothing may be counted twice.
        self.outgoing.put(work.WorkRequest(report=report))
        self.outgoing.put(work.WorkRequest(report=report))
        self.hear("report_accepted")
        self.hear("report_accepted")

    def put(self, keys: dict[str, bytes]) -> None:
        self.outgoing.put(work.WorkRequest(transfer_request=work.TransferRequest(id=1, put=list(keys))))
        for grant in self.hear("transfer_grants").transfer_grants.grants:
            path = self.folder / "file"
            path.write_bytes(keys[grant.key])
            upload(Grant(grant.url, dict(grant.headers)), path)

    def evaluate(self, member: str, step: int, score: float, seed: int, episodes: int) -> None:
        keys = {f"members/{member}/rollouts/{step}_{label}.npz": str(score).encode() for label in LABELS}
        self.put(keys)
        evaluation = v1.Evaluation(env_step=step, returns=[100 * score] * episodes, lengths=[1000] * episodes)
        evaluation.speeds.extend([10 * score] * episodes)
        for key, label in zip(keys, LABELS, strict=True):
            evaluation.rollouts.add(artifact=key, label=label, seed=seed, **{"return": 100 * score})
        self.report(evaluation=work.EvaluationReport(member=member, evaluation=evaluation))

    def train(self, told: work.TrainAssignment) -> None:
        source = told.reward_source
        if "# crash-code" in source:
            print("ZeroDivisionError in term speed", flush=True)
            sys.exit(42)
        if ("# crash-once" in source and self.attempt == 1) or "# crash\n" in source:
            print("out of luck", flush=True)
            sys.exit(1)
        if "# wild" in source:
            failure = v1.Failure(
                reason="DIVERGED", message="the loss is not a number", remedy="lower the learning rate"
            )
            self.report(failed=failure)
            sys.exit(1)
        print("begins at checkpoint", repr(told.checkpoint), flush=True)
        for member in told.members:
            self.report(progress=progress(member.id, told.steps_per_member // 2))
        self.put({"checkpoints/5.safetensors": b"half"})
        self.report(checkpoint=work.CheckpointReport(key="checkpoints/5.safetensors", update=5))
        while "# slow" in source and not Path(os.environ["DRESSAGE_TRAINER_GO"]).exists():
            self.report(progress=progress(told.members[0].id, told.steps_per_member // 2))
            time.sleep(0.1)
        score = number(source, "score", 0.9 if "good" in source or "# lucky" in source else 0.3)
        half = told.steps_per_member // 2
        for member in told.members if "curve=" in source else ():
            self.evaluate(member.id, half, number(source, "curve", 0.0), told.evaluation_seed, told.evaluation_episodes)
        for member in told.members:
            self.evaluate(member.id, told.steps_per_member, score, told.evaluation_seed, told.evaluation_episodes)
            self.put({f"members/{member.id}/policy/policy.safetensors": b"weights"})
            done = work.MemberReport(
                member=member.id, env_step=told.steps_per_member, policy=f"members/{member.id}/policy"
            )
            self.report(member=done)
        self.report(done=work.AssignmentDone(env_steps=told.steps_per_member))

    def score(self, told: work.ScoreAssignment) -> None:
        value = number(told.reward_source, "score", 0.85 if "good" in told.reward_source else 0.4)
        for policy in told.policies:
            self.evaluate(policy.member, policy.env_step, value, told.seed, told.episodes)
        self.report(done=work.AssignmentDone())


def number(source: str, name: str, default: float) -> float:
    found = re.search(rf"\b{name}=([0-9.]+)", source)
    return float(found[1]) if found else default


def progress(member: str, step: int) -> work.ProgressReport:
    entry = work.MemberProgress(member=member, env_step=step, metrics={"episode_return": 1.0})
    return work.ProgressReport(members=[entry], steps_per_second=1000.0)


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("address", "run"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("attempt", "parent-pid"):
        parser.add_argument(f"--{name}", required=True, type=int)
    options = parser.parse_args()
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != options.parent_pid:
        sys.exit(1)
    assert "OPENAI_API_KEY" not in os.environ
    if os.environ.get("DRESSAGE_TRAINER_SILENT"):
        time.sleep(600)
    trainer = Trainer(options, os.environ.pop("DRESSAGE_RUN_TOKEN"))
    trainer.hear("welcome")
    assignment = trainer.hear("assignment").assignment
    getattr(trainer, assignment.WhichOneof("work"))(getattr(assignment, assignment.WhichOneof("work")))
    trainer.hear("no_more_work")
    trainer.outgoing.put(None)


main()
