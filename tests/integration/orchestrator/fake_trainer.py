"""A trainer that trains nothing: it speaks `Work` as a real one does, and behaves as comments in the reward ask.

``good`` in the reward scores 0.9, otherwise 0.3. ``# crash-code`` reports a fault of generated code, ``# wild`` one of
the assignment, ``# dies`` the same after the first checkpoints, ``# no-disk`` one of the machine; ``# crash`` exits 1,
``# crash-once`` exits 1 in the first attempt; ``# deadline`` stores a checkpoint after the first member and exits 75 in
the first attempt; ``# slow`` trains until the file $DRESSAGE_TRAINER_GO exists or the assignment is cancelled; ``#
lucky`` trains well and fails confirmation; ``score=X`` scores X; ``curve=X`` is evaluated at half its steps, too, and
scores X there; with ``# gradual`` at each mark, and then it trains until the assignment is sent again to end early, or
until $DRESSAGE_TRAINER_GO exists; ``open=X,Y,…`` scores X at the first mark, Y at the second and so on, and waits where
it may not continue. With $DRESSAGE_TRAINER_UNRESPONSIVE it does not connect. On a device, ``# looks at a value`` fails
as what cannot be compiled for it.
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
from collections import defaultdict, deque
from collections.abc import Iterator
from pathlib import Path

import grpc
from dressage.api.internal.v1 import run_service_pb2 as work
from dressage.api.internal.v1 import run_service_pb2_grpc as rpc
from dressage.api.v1 import session_pb2 as v1
from dressage.artifacts import Grant, upload
from dressage.limits import REWARD_NOT_TRACEABLE

LABELS = ("p10", "median", "p90")
CAUSES = {
    "# crash-code": (
        "REWARD_RAISED",
        "ZeroDivisionError in term speed",
        work.AssignmentFailure.CAUSE_GENERATED_CODE,
    ),
    "# wild": ("DIVERGED", "the loss is not a number", work.AssignmentFailure.CAUSE_ASSIGNMENT),
    "# no-disk": ("OUT_OF_DISK", "no room", work.AssignmentFailure.CAUSE_INFRASTRUCTURE),
}


class Trainer:
    def __init__(self, options: argparse.Namespace, token: str) -> None:
        self.attempt = options.attempt
        self.outgoing: queue.Queue[work.WorkRequest | None] = queue.Queue()
        hello = work.Hello(run=options.run, attempt=options.attempt, token=token, version="fake")
        hello.sandbox_capabilities.extend(["landlock-5", "seccomp"])
        self.outgoing.put(work.WorkRequest(hello=hello))
        self.incoming = rpc.RunServiceStub(grpc.insecure_channel(options.address)).Work(self._outgoing_messages())
        self.sequence = 0
        self.received: dict[str, deque[work.WorkResponse]] = defaultdict(deque)
        self.folder = Path(tempfile.mkdtemp())
        self.assignment = work.Assignment()

    def _outgoing_messages(self) -> Iterator[work.WorkRequest]:
        while (messages := self.outgoing.get()) is not None:
            yield messages

    def hear(self, *kinds: str) -> work.WorkResponse:
        for kind in kinds:
            if self.received[kind]:
                return self.received[kind].popleft()
        for answer in self.incoming:
            if answer.HasField("stop"):
                print("stop received:", answer.stop.reason, flush=True)
                sys.exit(0)
            if answer.WhichOneof("message") in kinds:
                return answer
            self.received[answer.WhichOneof("message")].append(answer)
        sys.exit(1)

    @property
    def cancelled(self) -> bool:
        numbers = {entry.cancel_assignment.assignment for entry in self.received["cancel_assignment"]}
        return self.assignment.id in numbers

    def report(self, item: str = "", **body: object) -> None:
        self.sequence += 1
        report = work.Report(sequence=self.sequence, assignment=self.assignment.id, item=item, **body)
        # Each report is sent twice, as after a reconnect; it must be counted once.
        self.outgoing.put(work.WorkRequest(report=report))
        self.outgoing.put(work.WorkRequest(report=report))
        self.hear("report_accepted")
        self.hear("report_accepted")

    def put(self, keys: dict[str, bytes]) -> None:
        request = work.TransferRequest(id=1, assignment=self.assignment.id, put=list(keys))
        request.put_bytes.extend(len(data) for data in keys.values())
        self.outgoing.put(work.WorkRequest(transfer_request=request))
        for grant in self.hear("transfer_grants").transfer_grants.grants:
            path = self.folder / "file"
            path.write_bytes(keys[grant.key])
            upload(Grant(grant.url, dict(grant.headers)), path)

    def serve(self) -> None:
        """Does assignments until the lease is given back."""
        while True:
            answer = self.hear("assignment", "no_more_work")
            if answer.HasField("no_more_work"):
                return
            self.assignment = answer.assignment
            kind = self.assignment.WhichOneof("work")
            getattr(self, kind)(getattr(self.assignment, kind))

    def done(self, **result: object) -> None:
        self.report("result", result=work.AssignmentResult(**result))

    def fail(self, reason: str, message: str, cause: int) -> None:
        failure = v1.Failure(reason=reason, message=message, remedy=f"remedy for {reason}")
        self.done(failure=work.AssignmentFailure(failure=failure, cause=cause))

    def evaluate_policy(
        self,
        member: str,
        step: int,
        score: float,
        seed: int,
        episodes: int,
        *,
        again: bool = False,
        every: bool = False,
    ) -> None:
        item = f"{'final' if again else 'evaluation'}/{member}/{step}"
        if item in self.assignment.finished_items:
            return
        part = "_final" if again else ""
        labels = [*LABELS, *(f"episode{number}" for number in range(4, episodes + 1))] if every else LABELS
        keys = {f"members/{member}/rollouts/{step}{part}_{label}.npz": str(score).encode() for label in labels}
        if self.assignment.HasField("train") and not again:
            self.put({f"members/{member}/policies/{step}/policy.safetensors": b"weights"})
        self.put(keys)
        evaluation = v1.Evaluation(env_step=step, returns=[100 * score] * episodes, lengths=[1000] * episodes)
        evaluation.speeds.extend([10 * score] * episodes)
        for place, (key, label) in enumerate(zip(keys, labels, strict=True)):
            own = seed + place if every else seed
            evaluation.rollouts.add(artifact=key, label=label, seed=own, **{"return": 100 * score})
        self.report(item, evaluation=work.EvaluationReport(member=member, evaluation=evaluation))

    def train(self, task: work.TrainAssignment) -> None:
        source = task.reward_source
        if task.final_steps:
            self.end_early(task)
            return
        if (cause := next((cause for mark, cause in CAUSES.items() if mark in source), None)) is not None:
            self.fail(*cause)
            return
        if task.on_device and "# looks at a value" in source:
            words = "[traceable] line 5: values decide an if; use np.where"
            self.fail(REWARD_NOT_TRACEABLE, words, work.AssignmentFailure.CAUSE_GENERATED_CODE)
            return
        if ("# crash-once" in source and self.attempt == 1) or "# crash\n" in source:
            print("out of luck", flush=True)
            sys.exit(1)
        print("begins at checkpoint", repr(self.assignment.checkpoint), flush=True)
        for member in task.members:
            self.report(progress=progress(member.id, task.steps_per_member // 2))
        key = "checkpoints/5.safetensors"
        self.put({key: b"half"})
        self.report(f"checkpoint/{key}", checkpoint=work.CheckpointReport(key=key, update=5))
        while "# slow" in source and not Path(os.environ["DRESSAGE_TRAINER_GO"]).exists():
            self.report(progress=progress(task.members[0].id, task.steps_per_member // 2))
            if self.cancelled:
                return
            time.sleep(0.1)
        score = number(source, "score", 0.9 if "good" in source or "# lucky" in source else 0.3)
        if "open=" in source:
            self.train_open(task)
            return
        if "# gradual" in source and self.train_gradually(task):
            return
        self.evaluate_half(task)
        for member in task.members if "# dies" not in source else ():
            self.train_member(member.id, task, score)
            if "# deadline" in source and self.attempt == 1:
                print("the deadline is near", flush=True)
                sys.exit(75)
        if "# dies" in source:
            self.fail(*CAUSES["# wild"])
        else:
            self.done(train=work.TrainResult(env_steps=task.steps_per_member))

    def train_gradually(self, task: work.TrainAssignment) -> bool:
        """Evaluates all members at each mark; whether the training then ended early or was cancelled."""
        self.evaluate_marks(task, number(task.reward_source, "curve", 0.0))
        while not self.received["assignment"] and not Path(os.environ.get("DRESSAGE_TRAINER_GO", "/go")).exists():
            self.report(progress=progress(task.members[0].id, task.steps_per_member // 2))
            if self.cancelled:
                return True
            time.sleep(0.05)
        if not self.received["assignment"]:
            return False
        self.assignment = self.received["assignment"].popleft().assignment
        self.end_early(self.assignment.train)
        return True

    def evaluate_half(self, task: work.TrainAssignment) -> None:
        """Evaluates all members at half of the steps, if a score there is asked for."""
        source, half = task.reward_source, task.steps_per_member // 2
        for member in task.members if "curve=" in source and "# gradual" not in source else ():
            score = number(source, "curve", 0.0)
            self.evaluate_policy(member.id, half, score, task.evaluation_seed, task.evaluation_episodes)

    def train_open(self, task: work.TrainAssignment) -> None:
        """Evaluates all members at each mark, and waits where it may not continue."""
        scores = [float(text) for text in re.findall(r"open=([\d.,]+)", task.reward_source)[0].split(",")]
        most, mark = task.max_steps_per_member, 1
        while (step := task.steps_per_member * mark // task.evaluations) < most:
            while step > task.granted_steps:
                for member in task.members:
                    self.report(progress=progress(member.id, task.granted_steps))
                if self.cancelled:
                    return
                if self.received["assignment"]:
                    self.assignment = self.received["assignment"].popleft().assignment
                    task = self.assignment.train
                    if task.final_steps:
                        self.end_early(task)
                        return
                    print("continues until", task.granted_steps, flush=True)
                time.sleep(0.05)
            for member in task.members:
                score = scores[min(mark, len(scores)) - 1]
                self.evaluate_policy(member.id, step, score, task.evaluation_seed, task.checkpoint_episodes)
            mark += 1
        for member in task.members:
            self.train_member(member.id, task, scores[-1], steps=most)
        self.done(train=work.TrainResult(env_steps=most))

    def evaluate_marks(self, task: work.TrainAssignment, score: float) -> None:
        """Evaluates all members at all marks but the last."""
        for mark in range(1, task.evaluations):
            for member in task.members:
                step = task.steps_per_member * mark // task.evaluations
                self.evaluate_policy(member.id, step, score, task.evaluation_seed, task.checkpoint_episodes)

    def end_early(self, task: work.TrainAssignment) -> None:
        """Evaluates and delivers the policies with which the training ends."""
        print("ends early", dict(task.final_steps), flush=True)
        for member, step in task.final_steps.items():
            policy = f"members/{member}/policy"
            if f"member/{member}" in self.assignment.finished_items:
                continue
            self.put({f"{policy}/policy.safetensors": b"weights"})
            value = number(task.reward_source, "score", 0.9)
            self.evaluate_policy(member, step, value, task.evaluation_seed, task.evaluation_episodes, again=True)
            self.report(f"member/{member}", member=work.MemberReport(member=member, env_step=step, policy=policy))
        self.done(train=work.TrainResult())

    def train_member(self, member: str, task: work.TrainAssignment, score: float, *, steps: int = 0) -> None:
        steps = steps or task.steps_per_member
        policy = f"members/{member}/policy"
        if f"member/{member}" in self.assignment.finished_items:
            return
        self.put({f"{policy}/policy.safetensors": b"weights"})
        ref = work.PolicyRef(member=member, bundle=policy, env_step=steps)
        self.report(f"policy/{member}/{steps}", policy=work.PolicyReport(policy=ref))
        self.evaluate_policy(member, steps, score, task.evaluation_seed, task.evaluation_episodes)
        body = work.MemberReport(member=member, env_step=steps, policy=policy)
        self.report(f"member/{member}", member=body)

    def score(self, task: work.ScoreAssignment) -> None:
        value = number(task.reward_source, "score", 0.85 if "good" in task.reward_source else 0.4)
        if task.seed == 1_500_000:  # two checkpoints are compared
            value = number(task.reward_source, "again" if task.deliver else "last", value)
        else:
            value = number(task.reward_source, "fresh", value)
        for policy in task.policies:
            every = task.every_rollout
            self.evaluate_policy(policy.member, policy.env_step, value, task.seed, task.episodes, every=every)
            if task.deliver:
                prefix = f"members/{policy.member}/policy"
                self.put({f"{prefix}/policy.safetensors": b"best"})
                body = work.MemberReport(member=policy.member, env_step=policy.env_step, policy=prefix)
                self.report(f"member/{policy.member}", member=body)
        self.done(score=work.ScoreResult(episodes=task.episodes * len(task.policies)))

    def evaluate(self, task: work.EvaluateAssignment) -> None:
        """A candidate's returns are the sum of its numbers plus the seed; those of code are in `play_code`."""
        for candidate in task.candidates:
            item = f"candidate/{candidate.id}"
            if item not in self.assignment.finished_items:
                if candidate.WhichOneof("proposal") == "code":
                    self.report(item, candidate=self.play_code(task, candidate))
                    continue
                returns = [sum(candidate.parameters.values) + seed for seed in task.seeds]
                result = v1.CandidateResult(id=candidate.id, returns=returns, lengths=[1] * len(returns))
                self.report(item, candidate=result)
        self.done(evaluate=work.EvaluateResult(episodes=len(task.seeds) * len(task.candidates)))

    def play_code(self, task: work.EvaluateAssignment, candidate: work.Candidate) -> v1.CandidateResult:
        """``score=X`` returns X and half as much on report seeds with ``lucky``; ``raises`` fails."""
        source = candidate.code
        if "DRESSAGE_TRAINER_PLAYED" in os.environ:
            with Path(os.environ["DRESSAGE_TRAINER_PLAYED"]).open("a") as played:
                played.write(f"{source.splitlines()[0]} {task.seeds[0]}\n")
        result = v1.CandidateResult(id=candidate.id)
        if "raises" in source:
            result.failure.reason, result.failure.message = "POLICY_RAISED", "ZeroDivisionError in act, line 7"
            return result
        score = number(source, "score", 0.0) * (0.5 if "lucky" in source and task.seeds[0] >= 2_000_000 - 20 else 1.0)
        result.returns.extend([score] * len(task.seeds))
        result.lengths.extend([10] * len(task.seeds))
        if "raises" in task.feedback_source:
            result.feedback_failure.reason, result.feedback_failure.message = "FEEDBACK_RAISED", "IndexError"
        elif task.feedback_source:
            result.feedback.extend([f"{score:g} points"] * len(task.seeds))
        if task.bundles:
            self.put({f"candidates/{candidate.id}/policy/policy.py": source.encode()})
            result.policy = f"candidates/{candidate.id}/policy"
        return result


def number(source: str, name: str, default: float) -> float:
    match = re.search(rf"\b{name}=([0-9.]+)", source)
    return float(match[1]) if match else default


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
    if os.environ.get("DRESSAGE_TRAINER_UNRESPONSIVE"):
        time.sleep(600)
    trainer = Trainer(options, os.environ.pop("DRESSAGE_RUN_TOKEN"))
    trainer.hear("welcome")
    trainer.serve()
    trainer.outgoing.put(None)


main()
