"""Evaluate policies in a pool of evaluator processes, and score their episodes with the proposed reward in another sandbox.

The seeds of one policy are split over all evaluators, in lockstep within each, so that the last evaluation uses all cores.
An evaluator holds no generated code and the scorer no policy, so neither can forge the other's result.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shutil
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dressage.contracts import RewardError, score_in_sandbox
from dressage.envs.cards import load_card
from dressage.envs.trajectory import Trajectory
from dressage.errors import DeadlineExceeded, Internal, ResourceExhausted
from dressage.log_tails import without_tracebacks
from dressage.sandbox.limits import GIB, Limits
from dressage.sandbox.pipe import MALFORMED, ChannelClosed
from dressage.sandbox.process import SandboxProcess

from dressage_trainer.evaluation.rollouts import Episode
from dressage_trainer.lease.files import copy_from_sandbox
from dressage_trainer.lease.sandboxes import Sandboxes, SandboxSpec, of_pack
from dressage_trainer.messages import EvaluateRequest, MemberPolicy, MemberStoppedMessage

_EPISODES_SECONDS = 600.0
_PACK_SECONDS = 1800.0
"""The simulator of a pack may have to compile its kernels first."""
_BACKGROUND_SECONDS = 60.0
"""On a busy machine a background evaluator may hardly run at all. After this time the episodes are played in the foreground."""
_BACKGROUND_NICE = 19
_TARGET = "dressage_trainer.evaluation.evaluator:evaluate"
_REASONS = {"finite": "REWARD_NOT_FINITE", "time_budget": "REWARD_STALLED"}
"""Why a member stops, by the rule that its reward broke; otherwise ``REWARD_ERROR``."""

EVALUATOR = SandboxSpec(
    limits=Limits(memory_bytes=2 * GIB, file_bytes=GIB), preload=("dressage_trainer.evaluation.evaluator",)
)
"""How evaluators of our environments are started."""


def evaluator_of(environment: str) -> SandboxSpec:
    """Return how the evaluators of an environment are started.

    :raises FailedPrecondition: if the environment's pack is not installed.
    """
    pack = load_card(environment).pack
    return of_pack(EVALUATOR, pack) if pack else EVALUATOR


@dataclass(frozen=True)
class EvaluationSettings:
    """What all evaluations of an assignment have in common."""

    environment: str
    options: dict[str, Any]
    reward_source: str
    """Empty: the proposed return is the stock return."""
    allow_unsandboxed: bool = False


class EvaluatorPool:
    """Up to ``size`` evaluator processes, started when first needed and kept; use as an async context manager.

    :param sandboxes: starts the processes.
    :param scratch: existing folder for the pool's own files.
    :param background: yield the processors to a training in progress, until `foreground` is called.
    """

    def __init__(
        self,
        *,
        settings: EvaluationSettings,
        sandboxes: Sandboxes,
        scratch: Path,
        size: int,
        background: bool = False,
    ) -> None:
        self._settings = settings
        self._scratch = scratch
        # Last in, first out: a few policies at a time start a few processes, not all of them in turn.
        self._idle: asyncio.LifoQueue[_Evaluator] = asyncio.LifoQueue()
        self._all = [
            _Evaluator(scratch / f"episode-{index}.npz", settings, sandboxes, background) for index in range(size)
        ]
        for evaluator in reversed(self._all):
            self._idle.put_nowait(evaluator)
        self._scoring = asyncio.Semaphore(size)

    async def __aenter__(self) -> EvaluatorPool:
        return self

    async def __aexit__(self, *_: object) -> None:
        for evaluator in self._all:
            await asyncio.to_thread(evaluator.close)

    async def foreground(self) -> None:
        """Give evaluators their full share of the processors from now on; an episode in progress is played again."""
        for evaluator in self._all:
            await asyncio.to_thread(evaluator.come_to_foreground)

    async def evaluate(self, policy: MemberPolicy, seeds: Sequence[int]) -> list[Episode]:
        """Play one deterministic episode per seed; return the episodes in the order of the seeds.

        :raises RewardError: if the reward fails on one of them, which stops this member and no other; see `stopped_by`.
        """
        # The pool's size decides, not who is idle: the same seeds are in lockstep in each attempt.
        count = min(len(self._all), len(seeds))
        edges = [len(seeds) * index // count for index in range(count + 1)]
        parts = [seeds[first:end] for first, end in itertools.pairwise(edges)]
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._play(policy, part)) for part in parts]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors
        trajectories = [trajectory for task in tasks for trajectory in task.result()]
        async with self._scoring:
            proposed = await asyncio.to_thread(self._proposed_returns, trajectories)
        return [
            Episode(trajectory=trajectory, stock_return=trajectory.stock_return, proposed_return=value)
            for trajectory, value in zip(trajectories, proposed, strict=True)
        ]

    async def _play(self, policy: MemberPolicy, seeds: Sequence[int]) -> list[Trajectory]:
        evaluator = await self._idle.get()
        try:
            return await asyncio.to_thread(evaluator.play, policy, seeds)
        finally:
            self._idle.put_nowait(evaluator)

    def _proposed_returns(self, trajectories: Sequence[Trajectory]) -> list[float]:
        if not self._settings.reward_source:
            return [trajectory.stock_return for trajectory in trajectories]
        scores = score_in_sandbox(
            self._settings.reward_source,
            load_card(self._settings.environment),
            trajectories,
            scratch=self._scratch,
            allow_unsandboxed=self._settings.allow_unsandboxed,
        )
        return [float(score["return"]) for score in scores]


def stopped_by(error: RewardError, policy: MemberPolicy) -> MemberStoppedMessage:
    """Return the message about a member whose reward failed in an evaluation, with the reasons that training uses."""
    reason = _REASONS.get(error.rule, "REWARD_ERROR")
    message = f"the reward failed in the evaluation at environment step {policy.env_step}: {error.message}"
    return MemberStoppedMessage(policy.member, policy.env_step, reason, message)


def _path(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} instead of a path")
    return value


class _Evaluator:
    """One evaluator process; a new one is started if it has ended."""

    def __init__(
        self, function_path: Path, settings: EvaluationSettings, sandboxes: Sandboxes, background: bool
    ) -> None:
        self._function_path = function_path
        self._settings = settings
        self._sandboxes = sandboxes
        self._background = background
        self._process: SandboxProcess | None = None
        self._count = 0
        self._closed = False

    def play(self, policy: MemberPolicy, seeds: Sequence[int]) -> list[Trajectory]:
        """Block until all episodes are recorded; a background process that is too slow is replaced by one in the foreground.

        :raises ResourceExhausted: if an episode is too long for the process's memory.
        :raises DeadlineExceeded: if it takes too long.
        :raises OSError: if the disk is full.
        :raises DressageError: if the process ends instead.
        """
        if not self._background:
            seconds = _PACK_SECONDS if load_card(self._settings.environment).pack else _EPISODES_SECONDS
            return self._play(policy, seeds, seconds)
        try:
            return self._play(policy, seeds, _BACKGROUND_SECONDS)
        except DeadlineExceeded:
            self._background = False
        except (ChannelClosed, Internal):
            if self._background or self._closed:  # otherwise it was ended for the foreground
                raise
        return self._play(policy, seeds, _EPISODES_SECONDS)

    def _play(self, policy: MemberPolicy, seeds: Sequence[int], seconds: float) -> list[Trajectory]:
        process = self._running()
        self._count += 1
        folder = f"e{self._count}"
        request = EvaluateRequest(
            environment=self._settings.environment,
            options=self._settings.options,
            card=policy.card,
            weights=policy.weights,
            seeds=tuple(seeds),
            folder=folder,
        )
        try:
            process.channel.send(request.to_dict())
            paths: list[str] = []
            unwritten = 0
            while len(paths) < len(seeds) and not unwritten:
                reply = process.channel.recv(timeout=seconds)
                paths.extend(map(_path, reply["paths"]))
                unwritten = int(reply["error"])
        except Exception as error:
            if self._process is process:
                self._process = None
            ended = process.kill()
            self._sandboxes.end(process)
            # A SIGKILL below its own limit is the kernel's, for the machine's memory: another attempt may succeed.
            if ended.kind == "memory" and (process.exceeded_memory or ended.code != -signal.SIGKILL):
                raise ResourceExhausted(
                    f"an evaluation was ended: {ended.reason}; lower max_episode_steps", reason="EPISODE_TOO_LONG"
                ) from None
            if ended.stderr_tail and not isinstance(error, DeadlineExceeded):
                raise Internal(
                    f"the evaluator failed: {without_tracebacks(ended.stderr_tail)[-2000:]}", reason="EVALUATOR_FAILED"
                ) from None
            if isinstance(error, MALFORMED):
                raise Internal("the evaluator sent a malformed reply", reason="EVALUATOR_FAILED") from error
            raise
        if unwritten:
            raise OSError(unwritten, os.strerror(unwritten), "episodes of an evaluation")
        return self._load(paths, process.scratch, folder)

    def _load(self, paths: Sequence[str], sandboxed: Path, folder: str) -> list[Trajectory]:
        # The evaluator runs no generated code, but its files are checked as those of any sandbox.
        trajectories = [
            Trajectory.load(copy_from_sandbox(sandboxed / path, sandboxed, self._function_path)) for path in paths
        ]
        shutil.rmtree(sandboxed / folder, ignore_errors=True)
        return trajectories

    def _running(self) -> SandboxProcess:
        process = self._process
        if process is None or process.poll() is not None:
            process = self._sandboxes.start(evaluator_of(self._settings.environment), _TARGET)
            if self._background:
                _yield_processors(process.pid)
            self._process = process
            if self._closed:  # while it started, in another thread
                self._end()
        return process

    def come_to_foreground(self) -> None:
        """End a background process; only a new one may have a higher priority again."""
        if self._background:
            self._background = False
            self._end()

    def close(self) -> None:
        """End the process, for good, also while a thread still waits in `play`."""
        self._closed = True
        self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            self._sandboxes.end(process)


def _yield_processors(pid: int) -> None:
    """Lower a process's priority as far as the system permits.

    The simulator's threads meet at a barrier after every step, so one thread that waits for its core stops all.
    Linux may schedule by session first (autogroup). Then a process's nice value counts only within its session, and
    the session has its own value.
    """
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, _BACKGROUND_NICE)
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(_BACKGROUND_NICE))
