"""Evaluations, as the supervisor runs them: a pool of evaluator processes, own returns scored in a sandbox of their own.

An evaluator holds no generated code and the scorer no policy, so neither can forge what the other says (DESIGN §6).
"""

from __future__ import annotations

import asyncio
import contextlib
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
from dressage.sandbox.limits import GIB, Limits
from dressage.sandbox.process import SandboxProcess

from dressage_trainer.messages import EvaluateRequest, MemberPolicy, MemberStoppedMessage
from dressage_trainer.rollouts import Episode
from dressage_trainer.uploads import copy_from_sandbox

_EPISODES_SECONDS = 600.0
_BACKGROUND_SECONDS = 60.0
"""On a machine with other work a background evaluator may hardly run at all: then it has to come to the foreground."""
_BACKGROUND_NICE = 19
_LIMITS = Limits(memory_bytes=2 * GIB, file_bytes=GIB)


@dataclass(frozen=True)
class EvaluationSettings:
    """What stays the same over all evaluations of an assignment."""

    environment: str
    options: dict[str, Any]
    reward_source: str
    """Empty: the own return is the stock return."""
    seeds: tuple[int, ...]
    allow_unsandboxed: bool = False


class EvaluatorPool:
    """Up to ``size`` evaluator processes, started when first needed and kept; use as an async context manager.

    :param background: yield the processors to a training under way, until `foreground` is called.
    """

    def __init__(self, *, settings: EvaluationSettings, scratch: Path, size: int, background: bool = False) -> None:
        self._settings = settings
        self._scratch = scratch
        self._idle: asyncio.LifoQueue[_Evaluator] = asyncio.LifoQueue()
        self._all = [_Evaluator(scratch / f"evaluator-{index}", settings, background) for index in range(size)]
        for evaluator in reversed(self._all):
            self._idle.put_nowait(evaluator)
        self._scoring = asyncio.Semaphore(size)

    async def __aenter__(self) -> EvaluatorPool:
        return self

    async def __aexit__(self, *_: object) -> None:
        for evaluator in self._all:
            await asyncio.to_thread(evaluator.close)

    async def foreground(self) -> None:
        """From now on evaluators get their full share of the processors. Call it while none is at work."""
        for evaluator in self._all:
            await asyncio.to_thread(evaluator.come_to_foreground)

    async def evaluate(self, policy: MemberPolicy) -> list[Episode]:
        """Plays one deterministic episode per evaluation seed, in the order of the seeds.

        :raises RewardError: the reward failed on one of them, which stops this member and no other; see `stopped_by`.
        """
        evaluator = await self._idle.get()
        try:
            trajectories = await asyncio.to_thread(evaluator.play, policy)
        finally:
            self._idle.put_nowait(evaluator)
        async with self._scoring:
            own = await asyncio.to_thread(self._own_returns, trajectories)
        return [
            Episode(trajectory=trajectory, stock_return=trajectory.stock_return, own_return=value)
            for trajectory, value in zip(trajectories, own, strict=True)
        ]

    def _own_returns(self, trajectories: Sequence[Trajectory]) -> list[float]:
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
    """What is said of a member whose reward failed in an evaluation: as of one that failed in training."""
    reason = "REWARD_NOT_FINITE" if error.rule == "finite" else "REWARD_ERROR"
    message = f"the reward failed in the evaluation at environment step {policy.env_step}: {error.message}"
    return MemberStoppedMessage(policy.member, policy.env_step, reason, message)


class _Evaluator:
    """One evaluator process; started anew if it has ended."""

    def __init__(self, scratch: Path, settings: EvaluationSettings, background: bool) -> None:
        self._scratch = scratch
        self._settings = settings
        self._background = background
        self._process: SandboxProcess | None = None
        self._count = 0
        self._closed = False

    def play(self, policy: MemberPolicy) -> list[Trajectory]:
        """Blocks until all episodes are recorded. In the background only as long as that gets it anywhere.

        :raises ResourceExhausted: if an episode is too long for the process's memory.
        :raises DeadlineExceeded: if it takes too long.
        :raises OSError: if the disk is full.
        :raises DressageError: if the process ends instead.
        """
        if not self._background:
            return self._play(policy, _EPISODES_SECONDS)
        try:
            return self._play(policy, _BACKGROUND_SECONDS)
        except DeadlineExceeded:
            self._background = False
            return self._play(policy, _EPISODES_SECONDS)

    def _play(self, policy: MemberPolicy, seconds: float) -> list[Trajectory]:
        process = self._running()
        self._count += 1
        folder = f"e{self._count}"
        request = EvaluateRequest(
            environment=self._settings.environment,
            options=self._settings.options,
            card=policy.card,
            weights=policy.weights,
            seeds=self._settings.seeds,
            folder=folder,
        )
        try:
            process.channel.send(request.to_dict())
            paths: list[str] = []
            unwritten = 0
            while len(paths) < len(self._settings.seeds) and not unwritten:
                reply = process.channel.recv(timeout=seconds)
                paths.extend(reply["paths"])
                unwritten = int(reply["error"])
        except Exception as error:
            if self._process is process:
                self._process = None
            ended = process.kill()
            process.channel.close()
            shutil.rmtree(self._scratch / "sandbox" / folder, ignore_errors=True)
            beyond = process.peak_memory_bytes > _LIMITS.memory_bytes  # or else the machine's memory was short
            if ended.kind == "memory" and (beyond or ended.code != -signal.SIGKILL):
                raise ResourceExhausted(
                    f"an evaluation was ended: {ended.reason}; lower max_episode_steps", reason="EPISODE_TOO_LONG"
                ) from None
            if ended.stderr_tail and not isinstance(error, DeadlineExceeded):
                raise Internal(
                    f"the evaluator failed: {ended.stderr_tail[-2000:]}", reason="EVALUATOR_FAILED"
                ) from None
            raise
        if unwritten:
            raise OSError(unwritten, os.strerror(unwritten), "episodes of an evaluation")
        return self._load(paths, folder)

    def _load(self, paths: Sequence[str], folder: str) -> list[Trajectory]:
        checked = self._scratch / "checked.npz"
        trajectories = []
        for path in paths:
            # The evaluator runs no generated code; still, what leaves a sandbox goes through the same door.
            sandboxed = self._scratch / "sandbox"
            trajectories.append(Trajectory.load(copy_from_sandbox(sandboxed / path, sandboxed, checked)))
        shutil.rmtree(self._scratch / "sandbox" / folder, ignore_errors=True)
        return trajectories

    def _running(self) -> SandboxProcess:
        process = self._process
        if process is None or process.poll() is not None:
            folder = self._scratch / "sandbox"
            folder.mkdir(parents=True, exist_ok=True)
            process = SandboxProcess.start(
                "dressage_trainer.evaluator:evaluate",
                limits=_LIMITS,
                scratch=folder,
                threads=1,
                allow_unsandboxed=self._settings.allow_unsandboxed,
            )
            if self._background:
                _yield_processors(process.pid)
            self._process = process
            if self._closed:  # while it started, in another thread
                self._end()
        return process

    def come_to_foreground(self) -> None:
        """Ends a background process; only a new one may have a higher priority again."""
        if self._background:
            self._background = False
            self._end()

    def close(self) -> None:
        """Ends the process, for good, also while a thread still waits in `play`."""
        self._closed = True
        self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.channel.close()


def _yield_processors(pid: int) -> None:
    """Lowers a process's priority as far as the system lets us.

    The simulator's threads meet at a barrier after every step, so one of them that has to wait for its core stops all.
    Linux may schedule by session first (autogroup); then a process's nice value counts only within its own session, and
    the session has a value of its own.
    """
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, _BACKGROUND_NICE)
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(_BACKGROUND_NICE))
