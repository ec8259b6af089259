"""The launcher's decisions over a scripted API server: the real one has tests of its own (marker `cluster`)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from dressage_orchestrator.launch.kubernetes.client import ClusterError, RateLimit
from dressage_orchestrator.launch.kubernetes.launcher import KubernetesLauncher
from dressage_orchestrator.launch.kubernetes.manifest import Installation, job_name
from dressage_orchestrator.launch.kubernetes.pools import Pool
from dressage_orchestrator.launch.protocol import AttemptResult, ExitKind, Launch, Notice

RUN = "sessions/s/runs/r1"
INSTALLATION = Installation("dressage", "r")


class Server:
    """What an API server would answer; `tell` is its watch."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {"jobs": {}, "pods": {}}
        self.watching: dict[str, asyncio.Queue[tuple[str, dict[str, Any]]]] = {}
        self.failures: list[ClusterError] = []
        self.requests: list[str] = []
        self.refused: dict[str, list[str]] = {}
        self.version = 0

    def tell(self, kind: str, item: dict[str, Any], *, gone: bool = False, silent: bool = False) -> None:
        self.version += 1
        item["metadata"]["resourceVersion"] = str(self.version)
        known = self.objects[kind].pop(item["metadata"]["name"], None)
        if not gone:
            self.objects[kind][item["metadata"]["name"]] = item
        word = "DELETED" if gone else "MODIFIED" if known else "ADDED"
        if kind in self.watching and not silent:
            self.watching[kind].put_nowait((word, item))

    async def create_job(self, manifest: dict[str, Any]) -> bool:
        self.requests.append("create")
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop(0)
        if manifest["metadata"]["name"] in self.objects["jobs"]:
            return False
        self.tell("jobs", manifest)
        return True

    async def delete_job(self, name: str) -> None:
        self.requests.append("delete")
        if self.failures:
            raise self.failures.pop(0)
        if name in self.objects["jobs"]:
            self.tell("jobs", self.objects["jobs"][name], gone=True)

    async def all(self, kind: str, selector: str) -> tuple[list[dict[str, Any]], str]:
        self.requests.append("list")
        return list(self.objects[kind].values()), str(self.version)

    async def failed_creations(self) -> dict[str, list[str]]:
        self.requests.append("events")
        return self.refused

    async def watch(
        self, kind: str, selector: str, version: str, *, seconds: int
    ) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        self.requests.append("watch")
        queue = self.watching[kind] = asyncio.Queue()
        try:
            async with asyncio.timeout(seconds):
                while True:
                    yield await queue.get()
        except TimeoutError:
            return

    def close(self) -> None: ...


class Bench:
    """A launcher that records its results and notices."""

    def __init__(
        self, server: Server, *, hello: float = 100.0, relist: float = 1.0, pools: dict[str, Pool] | None = None
    ) -> None:
        self.server = server
        self.ended: list[AttemptResult] = []
        self.notices: list[Notice] = []
        self.began: list[str] = []
        self.has_hello = False
        self.unwanted: set[str] = set()
        self.broken = 0
        self.launcher = KubernetesLauncher(
            server,  # type: ignore[arg-type]
            pools=pools or {"cpu": Pool(image="i")},
            installation=INSTALLATION,
            runs=self,
            on_result=self.on_result,
            on_notice=self.on_notice,
            hello_seconds=hello,
            relist_seconds=relist,
        )

    async def on_result(self, word: AttemptResult) -> None:
        if self.broken:
            self.broken -= 1
            raise OSError("the database is away")
        self.ended.append(word)

    async def on_notice(self, notice: Notice) -> None:
        self.notices.append(notice)

    async def hello_received(self, run: str, attempt: int) -> bool:
        return self.has_hello

    async def starting(self, run: str, attempt: int) -> bool:
        self.began.append(run)
        return True

    async def is_abandoned(self, run: str) -> bool:
        return run in self.unwanted

    def submit(self, run: str = RUN, attempt: int = 1, pool: str = "cpu") -> str:
        async def never() -> bool:
            raise AssertionError("the launcher asks the database instead")

        self.launcher.submit(Launch(run, attempt, "o:1", "token", pool), never)
        return job_name("r", run, attempt)

    def pod(self, job: str, **status: Any) -> None:
        labels = {"batch.kubernetes.io/job-name": job}
        metadata = {"name": f"{job}-0-x", "labels": labels, "annotations": {}}
        self.server.tell("pods", {"metadata": metadata, "spec": {"nodeName": "n"}, "status": status})

    def finish(self, job: str, kind: str, reason: str) -> None:
        jobs = dict(self.server.objects["jobs"][job])
        jobs["metadata"] = dict(jobs["metadata"])
        jobs["status"] = {"conditions": [{"type": kind, "status": "True", "reason": reason}]}
        self.server.tell("jobs", jobs)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    launched = Bench(Server())
    await launched.launcher.start()
    yield launched
    await launched.launcher.close()


async def until(true: Callable[[], Any], seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not true():
            await asyncio.sleep(0.01)


def running(started: str = "2026-01-01T00:00:00Z") -> dict[str, Any]:
    return {
        "phase": "Running",
        "containerStatuses": [{"name": "trainer", "state": {"running": {"startedAt": started}}}],
    }


async def test_a_run_becomes_one_job_with_one_result(bench: Bench) -> None:
    name = bench.submit()
    assert bench.submit() == name  # the same attempt again is left as it is
    await until(lambda: name in bench.server.objects["jobs"])
    assert (
        bench.launcher.has_trainer(RUN, 1)
        and bench.launcher.has_trainer(RUN, 7)
        and not bench.launcher.has_trainer(RUN, 0)
    )
    bench.has_hello = True
    bench.pod(name, **running())
    await until(lambda: bench.began == [RUN])
    bench.finish(name, "Complete", "CompletionsReached")
    await until(lambda: bench.ended)
    assert bench.ended[0].kind is ExitKind.DONE and not bench.launcher.has_trainer(RUN, 1)
    await asyncio.sleep(1.5)  # through a list: nothing is told twice
    assert len(bench.ended) == 1 and bench.server.requests.count("create") == 1


async def test_a_result_is_reported_until_the_listener_succeeds(bench: Bench) -> None:
    name = bench.submit()
    await until(lambda: name in bench.server.objects["jobs"])
    bench.broken = 1
    bench.finish(name, "Complete", "CompletionsReached")
    await until(lambda: bench.ended)


async def test_running_jobs_are_adopted_and_abandoned_ones_deleted() -> None:
    server = Server()
    first = Bench(server)
    await first.launcher.start()
    kept, abandoned = first.submit(), first.submit("sessions/t/runs/r1")
    await until(lambda: len(server.objects["jobs"]) == 2)
    await first.launcher.close()  # Jobs go on
    assert len(server.objects["jobs"]) == 2

    second = Bench(server)
    second.unwanted = {"sessions/t/runs/r1"}
    assert await second.launcher.start() == 2 and second.launcher.has_trainer(
        RUN, 1
    )  # at once, or it would get another Job
    await until(lambda: abandoned not in server.objects["jobs"])
    assert second.launcher.has_trainer(RUN, 1) and kept in server.objects["jobs"]
    second.finish(kept, "Complete", "CompletionsReached")
    await until(lambda: second.ended)
    await second.launcher.close()


async def test_an_existing_job_counts_as_created(bench: Bench) -> None:
    other = Bench(bench.server)
    name = bench.submit()
    await until(lambda: name in bench.server.objects["jobs"])
    other.submit()
    await until(lambda: bench.server.requests.count("create") == 2)
    await asyncio.sleep(0.05)
    assert not other.ended and not other.notices
    await other.launcher.close()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ClusterError(403, "forbidden: exceeded quota: jobs"), "QUOTA_EXCEEDED"),
        (ClusterError(403, "cannot create resource jobs"), "JOB_REFUSED"),
        (ClusterError(0, "not reached"), "API_SERVER_UNAVAILABLE"),
        (ClusterError(503, "busy"), "API_SERVER_UNAVAILABLE"),
    ],
)
async def test_transient_errors_are_reported_and_retried(bench: Bench, error: ClusterError, kind: str) -> None:
    bench.server.failures = [error]
    name = bench.submit()
    await until(lambda: bench.notices)
    assert bench.notices[0].type == kind and not bench.notices[0].counts
    await until(lambda: name in bench.server.objects["jobs"])
    assert not bench.ended


async def test_a_permanent_error_ends_the_run(bench: Bench) -> None:
    bench.server.failures = [ClusterError(422, "Job.batch is invalid: spec.x")]
    bench.submit()
    bench.submit("sessions/s/runs/r2", pool="tpu")
    await until(lambda: len(bench.ended) == 2)
    assert {word.reason for word in bench.ended} == {"JOB_INVALID", "POOL_UNKNOWN"}
    assert all(word.final and word.remedy for word in bench.ended) and not bench.launcher.active_runs()


async def test_stop_deletes_even_a_job_that_is_being_created(bench: Bench) -> None:
    name = bench.submit()
    await bench.launcher.stop(RUN)
    assert name not in bench.server.objects["jobs"] and not bench.launcher.has_trainer(RUN, 1)
    again = bench.submit(attempt=2)
    await until(lambda: again in bench.server.objects["jobs"])
    bench.server.failures = [ClusterError(0, "not reached")]
    await bench.launcher.stop(RUN)  # tries again until it works
    assert again not in bench.server.objects["jobs"]
    await asyncio.sleep(0.05)
    assert not bench.ended  # nobody is told of an end that was asked for


async def test_a_deleted_job_is_a_counted_failure(bench: Bench) -> None:
    name = bench.submit()
    await until(lambda: bench.launcher._jobs.items)
    bench.server.tell("jobs", bench.server.objects["jobs"][name], gone=True, silent=True)  # the watch misses it
    await until(lambda: bench.ended)
    assert (bench.ended[0].reason, bench.ended[0].final) == ("JOB_DELETED", False)
    assert not bench.launcher.has_trainer(RUN, 1)


async def test_an_unresponsive_trainer_is_stopped() -> None:
    bench = Bench(Server(), hello=0.2)
    await bench.launcher.start()
    name = bench.submit()
    await until(lambda: name in bench.server.objects["jobs"])
    bench.has_hello = True
    bench.pod(name, **running(datetime.fromtimestamp(time.time() - 5, UTC).isoformat()))
    await asyncio.sleep(0.5)  # longer than a trainer without hello has
    assert not bench.ended
    bench.has_hello = False  # the same pod, of which no server knows
    await until(lambda: bench.ended)
    assert bench.ended[0].kind is ExitKind.NO_HELLO and bench.ended[0].reason == "TRAINER_UNRESPONSIVE"
    await until(lambda: name not in bench.server.objects["jobs"])
    await bench.launcher.close()


async def test_the_rate_of_requests_is_bounded() -> None:
    clock = [0.0]

    async def sleep(seconds: float) -> None:
        clock[0] += seconds

    limit = RateLimit(per_second=10, burst=5, clock=lambda: clock[0], sleep=sleep)
    for _ in range(205):
        await limit.take()
    assert clock[0] == pytest.approx(20.0)


@pytest.mark.parametrize("turns", range(6))
async def test_close_ends_although_changes_arrive(turns: int) -> None:
    bench = Bench(Server())
    await bench.launcher.start()
    await asyncio.sleep(0.05)
    bench.server.tell("pods", {"metadata": {"name": "p", "labels": {"batch.kubernetes.io/job-name": "j"}}})
    for _ in range(turns):  # until the word has come as far as to the waiting task, but not further
        await asyncio.sleep(0)
    async with asyncio.timeout(10):
        await bench.launcher.close()
