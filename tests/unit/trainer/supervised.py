"""A training as the supervisor runs it, with a scripted learner and evaluators that play nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.api.v1 import session_pb2
from dressage.artifacts.store import Grant
from dressage.envs.trajectory import Trajectory
from dressage.policies import PolicyCard
from dressage.sandbox.limits import Limits
from dressage.sandbox.pipe import ChannelClosed
from dressage_trainer.assignments.context import AssignmentContext
from dressage_trainer.assignments.train import Training
from dressage_trainer.evaluation.rollouts import Episode
from dressage_trainer.messages import CheckpointMessage, DoneMessage, MemberPolicy, Message
from dressage_trainer.ppo.networks import initial_weights

STEPS = 1024
"""Environment steps of each member."""


class Work:
    """The stream to the orchestrator: reports are kept, files go to a folder."""

    def __init__(self, store: Path) -> None:
        self.store = store
        self.reports: list[pb.Report] = []

    def report(self, report: pb.Report) -> None:
        self.reports.append(report)

    async def grants(self, assignment: int, *, put: Any = (), get: Any = ()) -> dict[str, Grant]:
        return {key: Grant(url=(self.store / key).as_uri()) for key in (*put, *get)}

    @property
    def items(self) -> list[str]:
        return [report.item for report in self.reports if report.item]

    def stored(self) -> list[int]:
        """Updates of the checkpoints reported."""
        return [report.checkpoint.update for report in self.reports if report.HasField("checkpoint")]


class Learner:
    """A learner's process and channel, with what it sends; then it has ended."""

    def __init__(self, *messages: Message) -> None:
        self._messages = iter([message.to_dict() for message in messages])
        self.channel = self
        self.received: list[dict[str, Any]] = []
        self.killed = False
        self.scratch = Path()

    def recv(self, *, timeout: float | None) -> dict[str, Any]:
        try:
            return next(self._messages)
        except StopIteration:
            raise ChannelClosed("gone") from None

    def send(self, message: dict[str, Any]) -> None:
        self.received.append(message)

    def kill(self) -> None:
        self.killed = True

    def wait(self, timeout: float) -> None:
        return None


class Endless(Learner):
    """Runs until it is killed; answers a request for a snapshot with `answer`."""

    def __init__(self, *messages: Message, answer: Sequence[Message] = ()) -> None:
        super().__init__(*messages)
        self._answer = [message.to_dict() for message in answer]

    def recv(self, *, timeout: float | None) -> dict[str, Any]:
        try:
            return super().recv(timeout=timeout)
        except ChannelClosed:
            while not self.killed:
                if self._answer and {"type": "snapshot"} in self.received:
                    return self._answer.pop(0)
                time.sleep(0.01)
            raise


class Sandboxes:
    """Starts the learner given."""

    def __init__(self, learner: Learner | None) -> None:
        self.learner = learner
        self.started: list[Any] = []
        self.spares: dict[str, Any] = {}

    def start(self, spec: Any, target: str, *, companion: Any = None) -> Learner:
        assert self.learner is not None, "no learner is needed"
        self.started.append(spec)
        return self.learner

    def fit(self, limits: Limits) -> Limits:
        return limits

    def end(self, process: Learner) -> None:
        process.kill()

    def keep_ready(self, use: str, counts: Any) -> None:
        self.spares[use] = counts


class Pool:
    """Evaluators that raise for some members; with ``hold``, evaluations end once it is set."""

    def __init__(self, hold: asyncio.Event | None = None, **broken: Exception) -> None:
        self._hold, self._broken = hold, broken
        self.requests: list[tuple[str, int, tuple[int, ...]]] = []

    async def __aenter__(self) -> Pool:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def foreground(self) -> None:
        pass

    async def evaluate(self, policy: MemberPolicy, seeds: Sequence[int]) -> list[Episode]:
        self.requests.append((policy.member, policy.env_step, tuple(seeds)))
        if self._hold is not None:
            await self._hold.wait()
        if policy.member in self._broken:
            raise self._broken[policy.member]
        # Depends on the weights, as real episodes do.
        value = float(sum(float(np.sum(array)) for array in policy.weights.values()))
        return [Episode(_trajectory(seed), value + seed, value) for seed in seeds]

    @property
    def steps(self) -> list[int]:
        return [step for _, step, _ in self.requests]


def _trajectory(seed: int) -> Trajectory:
    return Trajectory(
        environment="InvertedPendulum-v5", seed=seed, fields={}, action=np.zeros((2, 1)), reward=np.ones(2),
        terminated=True, truncated=False, qpos=np.zeros((3, 2)), qvel=np.zeros((3, 2)), metadata={},
    )  # fmt: skip


def new_training(
    folder: Path,
    learner: Learner | None = None,
    pool: Pool | None = None,
    *,
    members: Mapping[str, session_pb2.Failure | None] | None = None,
    store: Path | None = None,
    assignment: pb.Assignment | None = None,
) -> tuple[Training, Work, Path]:
    """:param members: why each was stopped in an earlier attempt, if it was."""
    assignment = assignment or new_assignment(members or {"a-s1": None})
    work = Work(store or folder / "store")
    (folder / "scratch").mkdir(parents=True)
    context = AssignmentContext(
        work=work,  # type: ignore[arg-type]
        assignment=assignment,
        scratch=folder / "scratch",
        terminate=asyncio.Event(),
        cancelled=asyncio.Event(),
        sandboxes=Sandboxes(learner),  # type: ignore[arg-type]
    )
    training = Training(context)
    training._pool = pool or Pool()  # type: ignore[assignment]
    sandbox = folder / "learner"
    (sandbox / "checkpoints").mkdir(parents=True)
    if learner is not None:
        learner.scratch = sandbox
    return training, work, sandbox


def new_assignment(members: Mapping[str, session_pb2.Failure | None]) -> pb.Assignment:
    task = pb.TrainAssignment(
        environment="InvertedPendulum-v5", steps_per_member=STEPS, evaluations=16, evaluation_episodes=4,
        checkpoint_episodes=2, evaluation_seed=100,
    )  # fmt: skip
    assignment = pb.Assignment(id=1, name="sessions/s1/iterations/1/assignments/1", cores=1)
    for member, failure in members.items():
        task.members.add(id=member)
        if failure is not None:
            assignment.stopped[member].CopyFrom(failure)
    assignment.train.CopyFrom(task)
    return assignment


def resumed(assignment: pb.Assignment, reports: Sequence[pb.Report]) -> pb.Assignment:
    """Return the assignment that the attempt after these reports is given."""
    continued = pb.Assignment()
    continued.CopyFrom(assignment)
    items = {report.item for report in reports}
    for report in reports:
        if report.item:
            continued.finished_items.append(report.item)
        if report.HasField("checkpoint"):
            continued.checkpoint = report.checkpoint.key
        if report.HasField("policy") and report.item.replace("policy/", "evaluation/") not in items:
            continued.pending_evaluations.add().CopyFrom(report.policy.policy)
    return continued


def checkpoint(sandbox: Path, update: int, *, requested: bool = False) -> CheckpointMessage:
    path = f"checkpoints/{update}.safetensors"
    (sandbox / path).write_bytes(b"%d" % update)
    return CheckpointMessage(path=path, update=update, env_step=64 * update, requested=requested)


def policy(member: str = "a-s1", step: int = 64) -> MemberPolicy:
    weights = initial_weights(
        observation_size=4, action_size=1, hidden_sizes=(8,), rng=np.random.default_rng(step), dtype=np.float32
    )
    card = PolicyCard(
        environment="InvertedPendulum-v5", observation_size=4, action_low=(-3.0,), action_high=(3.0,), hidden_sizes=(8,)
    )
    return MemberPolicy(member, step, card.to_dict(), {**weights, "obs_mean": np.zeros(4), "obs_var": np.ones(4)})


DONE = DoneMessage(env_steps_total=STEPS, policies=(policy("a-s1", STEPS),))


async def until(condition: Any, seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


async def finish(running: Any) -> Any:
    return await asyncio.wait_for(running, 20)
