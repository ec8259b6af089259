"""The launcher against a real API server, with real Jobs: every way to wait, to die and to end."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from dressage_orchestrator import metrics
from dressage_orchestrator.launch.kubernetes.client import ClusterError, RateLimit, connect
from dressage_orchestrator.launch.kubernetes.launcher import KubernetesLauncher
from dressage_orchestrator.launch.kubernetes.manifest import Installation, Owner, job_manifest, job_name
from dressage_orchestrator.launch.kubernetes.pools import Pool, parse_pools
from dressage_orchestrator.launch.protocol import AttemptResult, ExitKind, Launch, Notice

from tests.servers.kubernetes import Namespace, image, namespace, require_cluster

pytestmark = pytest.mark.cluster

# Small pods of an image that has a Python; what they run stands in for a trainer's end, not for its work.
SMALL = {"requests": {"cpu": "50m", "memory": "32Mi"}, "limits": {"memory": "96Mi"}}
ONCE_THEN = """
import os, sys
print("ends with", {first})
before = int(os.environ["DRESSAGE_RUN_FAILED_BEFORE"] or 0) + int(os.environ["DRESSAGE_RUN_INTERRUPTED_BEFORE"] or 0)
sys.exit({first} if before == 0 else {then})
"""


@pytest.fixture(scope="module")
def space() -> Iterator[Namespace]:
    require_cluster()
    with namespace("dressage-jobs") as space:
        space.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}})
        yield space


def pool(program: str = "", **more: Any) -> Pool:
    """A pool whose pods run a Python program."""
    given = {
        "image": image("judge"),
        "imagePullPolicy": "IfNotPresent",
        "resources": SMALL,
        "graceSeconds": 5,
        "scratchSize": "16Mi",
        **({"command": ["python", "-c", program]} if program else {}),
        **more,
    }
    return parse_pools({"pools": {"p": given}})["p"]


class Bench:
    """A launcher in the cluster that records its results and notices."""

    def __init__(self, space: Namespace, pools: dict[str, Pool], instance: str) -> None:
        self.space = space
        self.ended: list[AttemptResult] = []
        self.notices: list[Notice] = []
        self.began: list[str] = []
        self.installation = Installation(
            space.name, instance, owner=Owner("owner", space.get("configmap", "owner")["metadata"]["uid"])
        )
        self.client = connect(namespace=space.name, limit=RateLimit(per_second=10, burst=20))
        self.launcher = KubernetesLauncher(
            self.client,
            pools=pools,
            installation=self.installation,
            runs=self,
            on_result=self.on_result,
            on_notice=self.on_notice,
            hello_seconds=600,
            relist_seconds=20,
        )

    async def on_result(self, word: AttemptResult) -> None:
        self.ended.append(word)

    async def on_notice(self, notice: Notice) -> None:
        self.notices.append(notice)

    async def hello_received(self, run: str, attempt: int) -> bool:
        return True

    async def starting(self, run: str, attempt: int) -> bool:
        self.began.append(run)
        return True

    async def is_abandoned(self, run: str) -> bool:
        return False

    def submit(self, run: str, pool: str, attempt: int = 1, session: str = "s") -> str:
        async def unused() -> bool:
            return True

        name = f"sessions/{session}/runs/{run}"
        self.launcher.submit(Launch(name, attempt, "orchestrator:50051", "9.signature", pool), unused)
        return job_name(self.installation.instance, name, attempt)

    def pods(self, job: str) -> list[dict[str, Any]]:
        pods: list[dict[str, Any]] = self.space.get("pods", selector=f"batch.kubernetes.io/job-name={job}")
        return pods

    async def until(self, true: Callable[[], Any], seconds: float = 120) -> Any:
        for _ in range(int(seconds * 5)):
            if result := true():
                return result
            await asyncio.sleep(0.2)
        raise AssertionError(f"not within {seconds} s; notices: {self.notices}; {self.space.diagnosis()}")

    def types(self) -> list[str]:
        return [notice.type for notice in self.notices]


@pytest.fixture
async def bench(space: Namespace, request: pytest.FixtureRequest) -> AsyncIterator[Callable[..., Any]]:
    benches: list[Bench] = []

    async def make(**pools: Pool) -> Bench:
        instance = f"t{len(benches)}-{abs(hash(request.node.name)) % 10**8}"
        bench = Bench(space, pools, instance)
        benches.append(bench)
        await bench.launcher.start()
        return bench

    yield make
    for bench in benches:
        for name in bench.launcher.active_runs():
            await bench.launcher.stop(name)
        await bench.launcher.close()


async def test_the_server_takes_the_manifest_and_refuses_a_wrong_one(space: Namespace) -> None:
    client = connect(namespace=space.name, limit=RateLimit(per_second=10, burst=20))
    launch = Launch("sessions/s/runs/dry", 1, "o:1", "9.signature", "p")
    manifest = job_manifest(launch, pool(shmSize="16Mi", queue="q"), Installation(space.name, "dry"))
    assert await client.create_job(manifest, dry_run=True)
    manifest["spec"]["podFailurePolicy"]["rules"][0]["action"] = "Shrug"
    with pytest.raises(ClusterError) as caught:
        await client.create_job(manifest, dry_run=True)
    assert caught.value.permanent and "Shrug" in caught.value.message
    client.close()


async def test_a_job_is_created_once_and_its_pod_is_isolated(bench: Callable[..., Any]) -> None:
    program = """
import json, os, pathlib, time
account = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount")
pathlib.Path("/tmp/scratch").write_text("x")
try:
    pathlib.Path("/opt/x").write_text("x"); root = "writable"
except OSError:
    root = "read-only"
services = [name for name in os.environ if name.endswith("_SERVICE_HOST") and name != "KUBERNETES_SERVICE_HOST"]
print(json.dumps({"uid": os.getuid(), "token": account.exists(), "root": root, "services": services}), flush=True)
raise SystemExit(0)
"""
    launched = await bench(p=pool(program))
    name = launched.submit("twice", "p")
    await launched.until(lambda: launched.ended)
    assert launched.ended[0].kind is ExitKind.DONE and launched.began
    facts = json.loads(launched.space.run("logs", launched.pods(name)[0]["metadata"]["name"]))
    assert facts == {"uid": 10001, "token": False, "root": "read-only", "services": []}
    again = Bench(launched.space, {"p": pool(program)}, launched.installation.instance)
    again.submit("twice", "p")  # it does not know of the first, as it has not listed
    await asyncio.sleep(3)
    assert not again.notices and len(launched.space.get("jobs", selector=launched.installation.selector)) == 1
    await again.launcher.close()
    job = launched.space.get("job", name)
    assert job["metadata"]["ownerReferences"][0]["name"] == "owner"


@pytest.mark.parametrize(
    ("first", "then", "kind", "output", "last"),
    [
        (75, 0, ExitKind.DONE, ["INTERRUPTED"], 2),
        (1, 0, ExitKind.DONE, ["TRAINER_FAILED"], 2),
        (1, 1, ExitKind.FAILED, ["TRAINER_FAILED", "TRAINER_FAILED"], 2),
    ],
)
async def test_exit_codes(
    bench: Callable[..., Any], first: int, then: int, kind: ExitKind, output: list[str], last: int
) -> None:
    launched = await bench(p=pool(ONCE_THEN.format(first=first, then=then), backoffLimit=1))
    name = launched.submit(f"exit-{first}-{then}", "p")
    await launched.until(lambda: launched.ended)
    word = launched.ended[0]
    assert (word.kind, word.last_attempt) == (kind, last)
    assert launched.types() == output and len(launched.pods(name)) == len({n.attempt for n in launched.notices}) + (
        then == 0
    )
    assert f"ends with {first}" in launched.notices[0].message or first == 75
    assert not word.final and word.counted is (kind is not ExitKind.DONE)


async def test_out_of_memory_counts(bench: Callable[..., Any]) -> None:
    launched = await bench(p=pool("x = bytearray(1 << 30); print(len(x))", backoffLimit=0))
    launched.submit("memory", "p")
    await launched.until(lambda: launched.ended)
    assert launched.ended[0].reason == "OOM_KILLED" and "memory" in launched.ended[0].remedy
    assert launched.types() == ["OOM_KILLED"] and launched.notices[0].counts


async def test_an_eviction_and_a_deleted_pod_do_not_count(bench: Callable[..., Any]) -> None:
    program = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
print("up", flush=True)
time.sleep(600)
"""
    launched = await bench(p=pool(program, backoffLimit=0))
    name = launched.submit("evicted", "p")

    def running(attempt: int) -> Any:
        view = [
            p
            for p in launched.pods(name)
            if p["status"]["phase"] == "Running" and not p["metadata"].get("deletionTimestamp")
        ]
        return (
            view[0]
            if len(view) == 1 and len({n.attempt for n in launched.notices if n.attempt_ended}) == attempt - 1
            else None
        )

    first = await launched.until(lambda: running(1))
    await asyncio.sleep(1)  # its handler
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": first["metadata"]["name"]}}
    path = f"/api/v1/namespaces/{launched.space.name}/pods/{first['metadata']['name']}/eviction"
    launched.space.run("create", "--raw", path, "-f", "-", text=json.dumps(eviction))
    second = await launched.until(lambda: running(2))
    assert launched.types() == ["EVICTED"]
    await asyncio.sleep(1)
    launched.space.run("delete", "pod", second["metadata"]["name"], "--wait=false")
    await launched.until(lambda: running(3))
    assert launched.types() == ["EVICTED", "INTERRUPTED"] and not any(notice.counts for notice in launched.notices)
    assert not launched.ended and len(launched.space.get("jobs", selector=launched.installation.selector)) == 1
    await launched.launcher.stop("sessions/s/runs/evicted")
    await launched.until(lambda: not launched.pods(name))
    assert not launched.ended


async def test_reasons_of_waiting_pods_are_reported(bench: Callable[..., Any]) -> None:
    huge = {"requests": {"cpu": "1000", "memory": "32Mi"}, "limits": {"memory": "32Mi"}}
    launched = await bench(
        huge=pool("pass", resources=huge),
        absent=pool("pass", image="registry.invalid/no-such-image:1"),
        command=pool(command=["/no/such/program"], backoffLimit=0),
    )
    for name in ("huge", "absent", "command"):
        launched.submit(name, name)
    await launched.until(lambda: len({notice.run for notice in launched.notices}) == 3)
    by_run = {notice.run.rpartition("/")[2]: notice for notice in launched.notices}
    assert by_run["huge"].type == "UNSCHEDULABLE" and "Insufficient cpu" in by_run["huge"].message
    assert by_run["absent"].type == "IMAGE_PULL_FAILED" and "no-such-image" in by_run["absent"].message
    assert by_run["command"].type in ("CONTAINER_CONFIG_FAILED", "TRAINER_FAILED")
    assert not by_run["huge"].counts and not by_run["absent"].counts


async def test_an_exceeded_quota_is_reported_and_retried(bench: Callable[..., Any]) -> None:
    launched = await bench(p=pool("pass"))
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    launched.space.apply(quota)
    await asyncio.sleep(2)  # until the server knows of it
    try:
        launched.submit("quota", "p")
        await launched.until(lambda: launched.notices)
        assert launched.types() == ["QUOTA_EXCEEDED"] and not launched.notices[0].counts
    finally:
        launched.space.run("delete", "resourcequota", "none")
    await launched.until(lambda: launched.ended, seconds=180)
    assert launched.ended[0].kind is ExitKind.DONE


async def test_a_restarted_orchestrator_adopts_and_a_deleted_job_is_noticed(bench: Callable[..., Any]) -> None:
    first = await bench(p=pool("import time; time.sleep(600)"))
    name = first.submit("adopted", "p")
    await first.until(lambda: first.began)
    await first.launcher.close()
    second = Bench(first.space, {"p": pool("pass")}, first.installation.instance)
    await second.launcher.start()
    run = "sessions/s/runs/adopted"
    await second.until(lambda: second.launcher.has_trainer(run, 1))
    first.space.run("delete", "job", name, "--wait=false")
    await second.until(lambda: second.ended)
    assert second.ended[0].reason == "JOB_DELETED" and not second.ended[0].final
    await second.launcher.close()


async def test_the_deadline_ends_a_job_and_another_one_follows(bench: Callable[..., Any]) -> None:
    program = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
time.sleep(600)
"""
    short = pool(program).model_copy(update={"deadline_seconds": 8})
    launched = await bench(p=short)
    launched.submit("late", "p")
    await launched.until(lambda: launched.ended)
    assert launched.ended[0].kind is ExitKind.DEADLINE and not launched.ended[0].final
    assert not any(notice.counts for notice in launched.notices)
    again = launched.submit("late", "p", launched.ended[0].last_attempt + 1)  # a fresh Job continues
    await launched.until(lambda: any(p["status"]["phase"] == "Running" for p in launched.pods(again)))


def requests() -> dict[str, float]:
    """Requests to the API server so far, by verb."""
    samples = [sample for family in metrics.KUBERNETES_REQUESTS.collect() for sample in family.samples]
    return {s.labels["verb"]: s.value for s in samples if s.name.endswith("_total")}


@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_two_hundred_jobs_of_fifty_sessions_at_once(bench: Callable[..., Any]) -> None:
    tiny = {"requests": {"cpu": "5m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}}
    launched = await bench(p=pool("pass", resources=tiny))
    before, began = requests(), time.monotonic()
    for session in range(50):
        for run in range(4):
            launched.submit(f"r{run}", "p", session=f"s{session}")
    await launched.until(
        lambda: len(launched.space.get("jobs", selector=launched.installation.selector)) == 200, seconds=120
    )
    created = time.monotonic() - began
    await launched.until(lambda: len(launched.ended) == 200, seconds=1500)
    took = time.monotonic() - began
    request = {verb: count - before.get(verb, 0) for verb, count in requests().items()}
    print(f"200 Jobs created in {created:.1f} s, ended after {took:.1f} s, requests {request}")
    assert {word.kind for word in launched.ended} == {ExitKind.DONE}
    assert len({word.run for word in launched.ended}) == 200
    # One request for each Job; besides, two lists every 20 s and the watches that they begin anew, however many Jobs there are.
    rounds = took / 20 + 2
    assert request["create"] == 200 and created >= (200 - 20) / 10 - 1
    assert request["list"] <= 2 * rounds + took / 30 + 2 and request["watch"] <= 4 * rounds, request
    assert sum(request.values()) <= 20 + 10 * took
