"""The runner limits concurrent runs, meets deadlines and identifies the rollouts on which a judge fails."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from dressage.contracts import JudgeError, JudgeResult
from dressage.envs.trajectory import Trajectory, load_check_trajectories
from dressage.errors import DeadlineExceeded, ResourceExhausted
from dressage.sandbox.limits import GIB
from dressage.sandbox.machine import UNKNOWN, Machine
from dressage_judge import sandboxed
from dressage_judge.sandboxed import JudgeFailure, SandboxBounds, SandboxRunner, limits_for

from tests.waiting import until


@pytest.fixture
def episode() -> Trajectory:
    return load_check_trajectories("InvertedPendulum-v5")["random"][0]


class FakeSandbox:
    """Stands in for `run_judge_in_sandbox`: scores 0.5, fails on the episodes of given seeds, counts concurrent calls."""

    def __init__(self, *, bad: set[int] = frozenset(), rule: str = "runtime", seconds: float = 0.0) -> None:  # type: ignore[assignment]
        self.bad, self.rule, self.seconds = bad, rule, seconds
        self.inside = self.most = self.calls = 0
        self._lock = threading.Lock()

    def __call__(self, source: str, trajectories: Any, **_: Any) -> list[JudgeResult]:
        with self._lock:
            self.calls += 1
            self.inside += 1
            self.most = max(self.most, self.inside)
        time.sleep(self.seconds)
        with self._lock:
            self.inside -= 1
        for trajectory in trajectories:
            if trajectory.seed in self.bad:
                raise JudgeError(self.rule, "division by zero", line=3, seen=f"seed {trajectory.seed}")
        return [JudgeResult(0.5, {"c": 0.5}, {}) for _ in trajectories]


def seeded(episode: Trajectory, count: int) -> list[Trajectory]:
    return [Trajectory(**{**vars(episode), "seed": seed}) for seed in range(count)]


def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake: FakeSandbox, **bounds: Any) -> SandboxRunner:
    monkeypatch.setattr(sandboxed, "run_judge_in_sandbox", fake)
    return SandboxRunner(SandboxBounds(scratch=tmp_path, **bounds))


@pytest.mark.parametrize("bad", [0, 3, 6, 10])
async def test_the_failing_rollout_is_identified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, episode: Trajectory, bad: int
) -> None:
    fake = FakeSandbox(bad={bad})
    with pytest.raises(JudgeFailure) as caught:
        await runner(tmp_path, monkeypatch, fake).judge("", seeded(episode, 11), timeout=None)
    assert caught.value.places == (bad,)
    assert (caught.value.failure.line, caught.value.failure.seen) == (3, f"seed {bad}")
    assert fake.calls <= 9


@pytest.mark.parametrize(
    ("bad", "count", "places"),
    [({2}, 4, (2,)), ({0, 3}, 4, (0, 3)), (set(range(8)), 8, tuple(range(8)))],
    ids=["one", "two", "all"],
)
async def test_all_rollouts_that_exceed_a_limit_are_identified(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    episode: Trajectory,
    bad: set[int],
    count: int,
    places: tuple[int, ...],
) -> None:
    fake = FakeSandbox(bad=bad, rule="time_budget")
    with pytest.raises(JudgeFailure) as caught:
        await runner(tmp_path, monkeypatch, fake).judge("", seeded(episode, count), timeout=None)
    assert caught.value.places == places
    assert fake.calls <= 7


async def test_large_requests_are_split_and_keep_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, episode: Trajectory
) -> None:
    fake = FakeSandbox(bad={7})
    monkeypatch.setattr(sandboxed, "_BATCH_BYTES", 1)
    with pytest.raises(JudgeFailure) as caught:
        await runner(tmp_path, monkeypatch, fake).judge("", seeded(episode, 9), timeout=None)
    assert caught.value.places == (7,)
    assert len(await runner(tmp_path, monkeypatch, FakeSandbox()).judge("", seeded(episode, 9), timeout=None)) == 9


async def test_concurrent_runs_are_limited_and_do_not_block_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, episode: Trajectory
) -> None:
    fake = FakeSandbox(seconds=0.3)
    run = runner(tmp_path, monkeypatch, fake, concurrent=2)
    calls = asyncio.gather(*(run.judge("", [episode], timeout=None) for _ in range(5)))
    begin = time.monotonic()
    await asyncio.sleep(0.01)
    assert time.monotonic() - begin < 0.25
    await calls
    assert (fake.most, fake.calls) == (2, 5)


async def test_waiting_calls_are_limited_and_end_at_their_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, episode: Trajectory
) -> None:
    run = runner(tmp_path, monkeypatch, FakeSandbox(seconds=2.0), concurrent=1, max_waiting=0)
    first = asyncio.create_task(run.judge("", [episode], timeout=None))
    await until(lambda: run._slots.locked())
    second = asyncio.create_task(run.judge("", [episode], timeout=0.5))
    await until(lambda: run._pending == 1)
    with pytest.raises(ResourceExhausted, match="waiting already"):
        await run.judge("", [episode], timeout=None)
    with pytest.raises(DeadlineExceeded):
        await second
    assert len(await first) == 1


async def test_a_cancelled_call_keeps_its_slot_until_the_sandbox_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, episode: Trajectory
) -> None:
    fake = FakeSandbox(seconds=0.5)
    run = runner(tmp_path, monkeypatch, fake, concurrent=1)
    cancelled = asyncio.create_task(run.judge("", [episode], timeout=None))
    await until(lambda: fake.inside)
    cancelled.cancel()
    await run.judge("", [episode], timeout=None)
    assert fake.most == 1


def test_limits_grow_with_the_rollouts_up_to_the_deadline() -> None:
    assert limits_for(None, seconds=20).wall_seconds == 20
    assert limits_for(6.0, seconds=20).wall_seconds == 5
    assert limits_for(None, seconds=20, rollouts=30).wall_seconds == 64
    assert limits_for(None, seconds=20).starved_seconds == 80
    assert limits_for(41.0, seconds=20).starved_seconds == 40
    with pytest.raises(DeadlineExceeded):
        limits_for(1.5, seconds=20)


async def test_concurrent_sandboxes_share_the_memory_of_the_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, episode: Trajectory
) -> None:
    limits = []

    def judge(source: str, trajectories: Any, **given: Any) -> list[JudgeResult]:
        limits.append(given["limits"])
        return [JudgeResult(0.5, {"c": 0.5}, {}) for _ in trajectories]

    monkeypatch.setattr(sandboxed, "run_judge_in_sandbox", judge)
    for machine in (Machine(memory_bytes=2 * GIB), UNKNOWN):
        bounds = SandboxBounds(scratch=tmp_path, concurrent=4, machine=machine)
        await SandboxRunner(bounds).judge("", [episode], timeout=None)
    assert [given.memory_bytes for given in limits] == [GIB // 4, GIB]
