"""Runs generated code in the sandbox, from threads: a bounded number at a time, each with a deadline."""

from __future__ import annotations

import asyncio
import functools
import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from dressage.contracts import (
    CHECK_LIMITS,
    CheckFailure,
    CheckReport,
    JudgeError,
    JudgeResult,
    check_feedback_in_sandbox,
    check_judge_in_sandbox,
    check_policy_in_sandbox,
    check_reward_in_sandbox,
    run_judge_in_sandbox,
    score_in_sandbox,
)
from dressage.envs.cards import EnvironmentCard
from dressage.envs.trajectory import Trajectory
from dressage.errors import DeadlineExceeded, ResourceExhausted
from dressage.programs.languages.description import Description
from dressage.programs.languages.sandboxed import read_replies_in_sandbox
from dressage.sandbox import Limits
from dressage.sandbox.limits import STARVED_FACTOR
from dressage.sandbox.machine import UNKNOWN, Machine
from dressage.serving.metrics import sandbox_kills

Result = TypeVar("Result")

MARGIN_SECONDS = 1.0
"""Reserved from the caller's deadline, so that the response arrives in time."""

_LEAST_SECONDS = 1.0
_BATCH_BYTES = 64 << 20
_SECONDS_PER_ROLLOUT = 2.0
_PROBES, _PROBES_KILLED = 12, 6
KILLED = {"time_budget": "timeout", "memory_budget": "memory", "sandbox": "sandbox"}
"""Rules of reports on code that the sandbox ended, with the reason in the metric."""
SANDBOX_KILLS = sandbox_kills()


@dataclass(frozen=True)
class SandboxBounds:
    """Limits of generated code.

    :param scratch: existing folder for temporary folders.
    :param concurrent: maximum number of concurrent sandboxes.
    :param max_waiting: maximum number of waiting calls; more are refused.
    :param seconds: wall-clock limit of one call; it grows with the number of rollouts.
    :param allow_unsandboxed: run code without a sandbox if the kernel offers none.
    :param machine: memory and room for files of all concurrent sandboxes and this process together.
    """

    scratch: Path
    concurrent: int = 2
    max_waiting: int = 256
    seconds: float = 20.0
    allow_unsandboxed: bool = False
    machine: Machine = UNKNOWN


class SandboxRunner:
    """Asynchronous access to the sandbox helpers of `dressage.contracts`."""

    def __init__(self, bounds: SandboxBounds) -> None:
        self._bounds = bounds
        self._slots = asyncio.Semaphore(bounds.concurrent)
        self._pending = 0
        self._threads = ThreadPoolExecutor(max_workers=bounds.concurrent, thread_name_prefix="sandbox")

    async def check_reward(
        self,
        source: str,
        card: EnvironmentCard,
        trajectories: Sequence[Trajectory],
        *,
        traceable: bool,
        timeout: float | None,
    ) -> CheckReport:
        """Check a reward.

        :param traceable: also examine whether it can be compiled for a device.
        :param timeout: seconds until the caller's deadline; None for none.
        """
        check = functools.partial(check_reward_in_sandbox, source, card, trajectories, traceable=traceable)
        return await self._check(check, timeout)

    async def check_judge(
        self, source: str, card: EnvironmentCard, trajectories: dict[str, list[Trajectory]], *, timeout: float | None
    ) -> CheckReport:
        """Check a judge; the report has its scores by kind of control, which the caller compares with the threshold."""
        return await self._check(functools.partial(check_judge_in_sandbox, source, card, trajectories), timeout)

    async def check_policy(
        self,
        source: str,
        card: EnvironmentCard,
        trajectories: Sequence[Trajectory],
        *,
        act_seconds: float,
        timeout: float | None,
    ) -> CheckReport:
        """Check a code policy.

        :param act_seconds: limit of one action.
        """
        check = functools.partial(check_policy_in_sandbox, source, card, trajectories, act_seconds=act_seconds)
        return await self._check(check, timeout)

    async def check_feedback(
        self, source: str, card: EnvironmentCard, trajectories: Sequence[Trajectory], *, timeout: float | None
    ) -> CheckReport:
        """Check a feedback class."""
        return await self._check(functools.partial(check_feedback_in_sandbox, source, card, trajectories), timeout)

    async def _check(self, check: Callable[..., CheckReport], timeout: float | None) -> CheckReport:
        """Run a check within the bounds, and count a sandbox that was killed."""

        def call(limits: Limits) -> CheckReport:
            bounds = self._bounds
            return check(limits=limits, scratch=bounds.scratch, allow_unsandboxed=bounds.allow_unsandboxed)

        return _count_kills(await self._run(call, timeout))

    async def judge(
        self, source: str, trajectories: Sequence[Trajectory], *, timeout: float | None
    ) -> list[JudgeResult]:
        """Judge trajectories, in one sandbox for each 64 MiB of them; results are in the same order.

        :raises JudgeFailure: with the indices of the trajectories on which the judge fails.
        """
        results: list[JudgeResult] = []
        deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
        for first, last in _batches(trajectories):
            part = trajectories[first:last]
            try:
                results += await self._judge(source, part, deadline)
            except JudgeError as error:
                places, failure = await self._failing_places(source, part, deadline, error)
                raise JudgeFailure([first + place for place in places], failure) from error
        return results

    async def score(
        self, source: str, card: EnvironmentCard, trajectories: Sequence[Trajectory], *, timeout: float | None
    ) -> list[dict[str, Any]]:
        """Compute each trajectory's return under a reward: ``{"return": float, "terms": {name: float}}``.

        :raises RewardError: if the reward fails on one of them, or the sandbox ends it.
        """

        def call(limits: Limits) -> list[dict[str, Any]]:
            return score_in_sandbox(
                source,
                card,
                trajectories,
                limits=limits,
                scratch=self._bounds.scratch,
                allow_unsandboxed=self._bounds.allow_unsandboxed,
            )

        return await self._run(call, timeout, rollouts=len(trajectories))

    async def read_replies(
        self, description: Description, replies: Sequence[str], *, timeout: float | None
    ) -> list[list[str]]:
        """Find the programs in replies with the code of a registered language.

        :raises DressageError: if that code fails.
        """

        def call(limits: Limits) -> list[list[str]]:
            bounds = self._bounds
            return read_replies_in_sandbox(
                description, replies, limits=limits, scratch=bounds.scratch, allow_unsandboxed=bounds.allow_unsandboxed
            )

        return await self._run(call, timeout)

    def close(self) -> None:
        """Stop accepting calls."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _judge(self, source: str, part: Sequence[Trajectory], deadline: float | None) -> list[JudgeResult]:
        def call(limits: Limits) -> list[JudgeResult]:
            return run_judge_in_sandbox(
                source,
                part,
                limits=limits,
                scratch=self._bounds.scratch,
                allow_unsandboxed=self._bounds.allow_unsandboxed,
            )

        try:
            return await self._run(call, _seconds_left(deadline), rollouts=len(part))
        except JudgeError as error:
            if error.rule in KILLED:
                SANDBOX_KILLS.labels(KILLED[error.rule]).inc()
            raise

    async def _failing_places(
        self, source: str, part: Sequence[Trajectory], deadline: float | None, error: JudgeError
    ) -> tuple[list[int], CheckFailure]:
        """The trajectories on which the judge fails, by bisection, and its failure on the first of them.

        The number of sandboxes is bounded, and none starts after the deadline: the trajectories of an undivided part are then
        reported together. The same holds if neither half fails by itself, because only both together exceed a limit.
        """
        failing: list[tuple[int, CheckFailure]] = []
        most, probes = (_PROBES_KILLED if error.rule in KILLED else _PROBES), 0

        async def fails(low: int, high: int) -> CheckFailure | None:
            nonlocal probes
            probes += 1
            try:
                await self._judge(source, part[low:high], deadline)
            except JudgeError as narrower:
                return narrower.failure
            return None

        async def search(low: int, high: int, failure: CheckFailure) -> None:
            halves = [(low, (low + high) // 2), ((low + high) // 2, high)] if high - low > 1 else []
            if not halves or probes + len(halves) > most:
                failing.extend((place, failure) for place in range(low, high))
                return
            faults = []
            for half in halves:
                try:
                    faults.append(await fails(*half))
                except DeadlineExceeded:
                    faults.append(failure)
            if not any(faults):
                failing.extend((place, failure) for place in range(low, high))
            for half, fault in zip(halves, faults, strict=True):
                if fault is not None:
                    await search(*half, fault)

        await search(0, len(part), error.failure)
        return [place for place, _ in failing], failing[0][1]

    async def _run(self, call: Callable[[Limits], Result], timeout: float | None, *, rollouts: int = 0) -> Result:
        if self._pending >= self._bounds.concurrent + self._bounds.max_waiting:
            raise ResourceExhausted(
                f"{self._pending} checks and judgments are waiting already, the limit of this server; try again later",
                reason="SANDBOX_QUEUE_FULL",
            )
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        self._pending += 1
        try:
            async with asyncio.timeout(None if timeout is None else max(0.0, timeout)):
                await self._slots.acquire()
        except TimeoutError as error:
            raise _too_late() from error
        finally:
            self._pending -= 1
        try:
            limits = limits_for(_seconds_left(deadline), seconds=self._bounds.seconds, rollouts=rollouts)
            limits = self._bounds.machine.fit(limits, processes=self._bounds.concurrent)
            work = loop.run_in_executor(self._threads, functools.partial(call, limits))
        except BaseException:
            self._slots.release()
            raise
        # The slot is released only when the sandbox has ended, even if the caller has cancelled the call.
        work.add_done_callback(lambda _: self._slots.release())
        return await work


class JudgeFailure(Exception):
    """The failure of a judge.

    :param places: indices of the rollouts on which it fails, at least one.
    :param failure: the failure on the first of them.
    """

    def __init__(self, places: Sequence[int], failure: CheckFailure) -> None:
        super().__init__(str(failure))
        self.places = tuple(places)
        self.failure = failure


def limits_for(timeout: float | None, *, seconds: float, rollouts: int = 0) -> Limits:
    """Return the limits of one sandboxed call: more time for more rollouts and on an overloaded machine, but not beyond the
    caller's deadline.

    :param timeout: seconds until the caller's deadline.
    :param seconds: wall-clock limit of a call with few rollouts.
    :raises DeadlineExceeded: if too little time is left.
    """
    extra = _SECONDS_PER_ROLLOUT * max(0, rollouts - 8)
    left = math.inf if timeout is None else timeout - MARGIN_SECONDS
    wall = min(seconds + extra, left)
    if wall < _LEAST_SECONDS:
        raise _too_late()
    return replace(
        CHECK_LIMITS,
        wall_seconds=wall,
        starved_seconds=min(STARVED_FACTOR * wall, left),
        cpu_seconds=round((CHECK_LIMITS.cpu_seconds or 60) + extra),
    )


def _batches(trajectories: Sequence[Trajectory]) -> list[tuple[int, int]]:
    bounds, first, size = [], 0, 0
    for place, trajectory in enumerate(trajectories):
        weight = sum(array.nbytes for array in trajectory.fields.values()) + trajectory.action.nbytes
        if place > first and size + weight > _BATCH_BYTES:
            bounds.append((first, place))
            first, size = place, 0
        size += weight
    if len(trajectories) > first:
        bounds.append((first, len(trajectories)))
    return bounds


def _count_kills(report: CheckReport) -> CheckReport:
    # A report without a style is from lint or, with one of these rules, from a process that the sandbox ended.
    for failure in report.failures:
        if not report.style and failure.rule in KILLED:
            SANDBOX_KILLS.labels(KILLED[failure.rule]).inc()
    return report


def _seconds_left(deadline: float | None) -> float | None:
    return None if deadline is None else deadline - asyncio.get_running_loop().time()


def _too_late() -> DeadlineExceeded:
    return DeadlineExceeded("the deadline left no time to run the code in the sandbox", reason="SANDBOX_TIMEOUT")


def scratch_folder(configured: str) -> Path:
    """Return the folder for the sandboxes' scratch files: the configured one, or a new temporary one."""
    import tempfile

    if not configured:
        return Path(tempfile.mkdtemp(prefix=f"dressage-judge-{os.getpid()}-"))
    folder = Path(configured).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    return folder
