"""The pool handles crashes, hangs, refusals and cancelled jobs of its workers, which are fakes here."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from dressage.errors import Aborted, DeadlineExceeded, Internal, NotFound, ResourceExhausted
from dressage_renderer.options import RenderOptions
from dressage_renderer.pool import RenderJob, RenderPool

from tests.waiting import wait_until

ANSWER = "print(json.dumps({'report': {'frames': 3, 'duration': 0.1, 'seconds': 0.2, 'stills': []}}), flush=True)"
LOOP = "import json, os, sys, time\nfor line in sys.stdin:\n    job = json.loads(line)\n    "


@contextmanager
def pool_of(body: str, *, workers: int = 1, max_waiting: int = 8) -> Iterator[RenderPool]:
    pool = RenderPool(workers, max_waiting=max_waiting, command=[sys.executable, "-S", "-c", LOOP + body])
    try:
        yield pool
    finally:
        pool.close()


def job(tmp_path: Path) -> RenderJob:
    return RenderJob(tmp_path / "t.npz", tmp_path / "v.mp4", RenderOptions())


def test_a_worker_is_reused_for_the_next_job(tmp_path: Path) -> None:
    body = "open(job['video'], 'a').write(str(os.getpid()) + ' ')\n    " + ANSWER
    with pool_of(body) as pool:
        assert pool.render(job(tmp_path), timeout=20).frames == 3
        pool.render(job(tmp_path), timeout=20)
    assert len(set((tmp_path / "v.mp4").read_text().split())) == 1


def test_a_crashed_worker_is_replaced_and_the_job_retried(tmp_path: Path) -> None:
    body = "first = not os.path.exists(job['video']); open(job['video'], 'w').close()\n    "
    with pool_of(body + "os.kill(os.getpid(), 9) if first else " + ANSWER) as pool:
        assert pool.render(job(tmp_path), timeout=20).frames == 3


def test_a_job_that_crashes_two_workers_fails_with_their_output(tmp_path: Path) -> None:
    with pool_of("sys.exit('the driver fell over')") as pool:
        with pytest.raises(Internal, match="crashed: exit code 1; the driver fell over") as caught:
            pool.render(job(tmp_path), timeout=20)
        assert caught.value.reason == "RENDER_WORKER_CRASHED"


def test_a_job_that_takes_too_long_is_stopped_and_the_pool_continues(tmp_path: Path) -> None:
    body = (
        "slow = not os.path.exists(job['video']); open(job['video'], 'w').close()\n    time.sleep(60 if slow else 0); "
    )
    with pool_of(body + ANSWER) as pool:
        begin = time.monotonic()
        with pytest.raises(DeadlineExceeded, match=r"not rendered within 1 s"):
            pool.render(job(tmp_path), timeout=1)
        assert time.monotonic() - begin < 5
        assert pool.render(job(tmp_path), timeout=20).frames == 3


def test_a_cancelled_job_ends_at_once(tmp_path: Path) -> None:
    cancelled = threading.Event()
    threading.Timer(0.3, cancelled.set).start()
    with pool_of("time.sleep(60)") as pool:
        begin = time.monotonic()
        with pytest.raises(Aborted):
            pool.render(job(tmp_path), timeout=30, cancelled=cancelled)
        assert time.monotonic() - begin < 5


def test_two_jobs_run_concurrently_and_a_third_waits_or_is_refused(tmp_path: Path) -> None:
    with pool_of("time.sleep(1.5); " + ANSWER, workers=2, max_waiting=0) as pool, ThreadPoolExecutor(2) as threads:
        begin = time.monotonic()
        jobs = [threads.submit(pool.render, job(tmp_path), timeout=20) for _ in range(2)]
        wait_until(lambda: pool._idle.empty())
        with pytest.raises(ResourceExhausted, match="2 videos are being rendered or waiting"):
            pool.render(job(tmp_path), timeout=20)
        assert all(each.result().frames == 3 for each in jobs)
        assert time.monotonic() - begin < 2.9


def test_a_waiting_job_ends_at_its_deadline(tmp_path: Path) -> None:
    with pool_of("time.sleep(3); " + ANSWER) as pool, ThreadPoolExecutor(1) as threads:
        first = threads.submit(pool.render, job(tmp_path), timeout=20)
        wait_until(lambda: pool._idle.empty())
        with pytest.raises(DeadlineExceeded):
            pool.render(job(tmp_path), timeout=0.5)
        assert first.result().frames == 3


def test_an_error_of_the_worker_keeps_its_kind_and_reason(tmp_path: Path) -> None:
    error = "{'kind': 'NotFound', 'message': 'no such thing', 'reason': 'GONE', 'metadata': {'a': 'b'}}"
    with pool_of(f"print(json.dumps({{'error': {error}}}), flush=True)") as pool:
        with pytest.raises(NotFound, match="no such thing") as caught:
            pool.render(job(tmp_path), timeout=20)
        assert (caught.value.reason, caught.value.metadata) == ("GONE", {"a": "b"})


def test_a_closed_pool_refuses(tmp_path: Path) -> None:
    with pool_of(ANSWER) as pool:
        pool.close()
        with pytest.raises(Aborted, match="stopping"):
            pool.render(job(tmp_path), timeout=20)
