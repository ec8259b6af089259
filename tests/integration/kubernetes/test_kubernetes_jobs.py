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
    with namespace("dressage-jobs") as made:
        made.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}})
        yield made


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
    """A launcher in the cluster, with all that it tells."""

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

    async def abandoned(self, run: str) -> bool:
        return False

    def submit(self, run: str, pool: str, attempt: int = 1, session: str = "s") -> str:
        async def unused() -> bool:
            return True

        name = f"sessions/{session}/runs/{run}"
        self.launcher.submit(Launch(name, attempt, "orchestrator:50051", "9.signature", pool), unused)
        return job_name(self.installation.instance, name, attempt)

    def pods(self, job: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.space.get("pods", selector=f"batch.kubernetes.io/job-name={job}")
        return found

    async def until(self, true: Callable[[], Any], seconds: float = 120) -> Any:
        for _ in range(int(seconds * 5)):
            if found := true():
                return found
            await asyncio.sleep(0.2)
        raise AssertionError(f"not within {seconds} s; told {self.notices}; {self.space.diagnosis()}")

    def types(self) -> list[str]:
        return [notice.type for notice in self.notices]


@pytest.fixture
async def bench(space: Namespace, request: pytest.FixtureRequest) -> AsyncIterator[Callable[..., Any]]:
    made: list[Bench] = []

    async def make(**pools: Pool) -> Bench:
        instance = f"t{len(made)}-{abs(hash(request.node.name)) % 10**8}"
        bench = Bench(space, pools, instance)
        made.append(bench)
        await bench.launcher.start()
        return bench

    yield make
    for bench in made:
        for name in bench.launcher.active_runs():
            await bench.launcher.stop(name)
        await bench.launcher.close()


async def test_the_server_takes_the_manifest_and_refuses_a_wrong_one(space: Namespace) -> None:
    client = connect(namespace=space.name, limit=RateLimit(per_second=10, burst=20))
    launch = Launch("sessions/s/runs/dry", 1, "o:1", "9.signature", "p")
    made = job_manifest(launch, pool(shmSize="16Mi", queue="q"), Installation(space.name, "dry"))
    assert await client.create_job(made, dry_run=True)
    made["spec"]["podFailurePolicy"]["rules"][0]["action"] = "Shrug"
    with pytest.raises(ClusterError) as caught:
        await client.create_job(made, dry_run=True)
    assert caught.value.permanent and "Shrug" in caught.value.message
    client.close()


async def test_one_job_twice_is_one_and_its_pod_is_a_stranger(bench: Callable[..., Any]) -> None:
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
    made = await bench(p=pool(program))
    name = made.submit("twice", "p")
    await made.until(lambda: made.ended)
    assert made.ended[0].kind is ExitKind.DONE and made.began
    facts = json.loads(made.space.run("logs", made.pods(name)[0]["metadata"]["name"]))
    assert facts == {"uid": 10001, "token": False, "root": "read-only", "services": []}
    again = Bench(made.space, {"p": pool(program)}, made.installation.instance)
    again.submit("twice", "p")  # it does not know of the first, as it has not listed
    await asyncio.sleep(3)
    assert not again.notices and len(made.space.get("jobs", selector=made.installation.selector)) == 1
    await again.launcher.close()
    job = made.space.get("job", name)
    assert job["metadata"]["ownerReferences"][0]["name"] == "owner"


@pytest.mark.parametrize(
    ("first", "then", "kind", "told", "last"),
    [
        (75, 0, ExitKind.DONE, ["INTERRUPTED"], 2),
        (1, 0, ExitKind.DONE, ["TRAINER_FAILED"], 2),
        (1, 1, ExitKind.FAILED, ["TRAINER_FAILED", "TRAINER_FAILED"], 2),
    ],
)
async def test_exit_codes(
    bench: Callable[..., Any], first: int, then: int, kind: ExitKind, told: list[str], last: int
) -> None:
    made = await bench(p=pool(ONCE_THEN.format(first=first, then=then), backoffLimit=1))
    name = made.submit(f"exit-{first}-{then}", "p")
    await made.until(lambda: made.ended)
    word = made.ended[0]
    assert (word.kind, word.last_attempt) == (kind, last)
    assert made.types() == told and len(made.pods(name)) == len({n.attempt for n in made.notices}) + (then == 0)
    assert f"ends with {first}" in made.notices[0].message or first == 75
    assert not word.final and word.counted is (kind is not ExitKind.DONE)


async def test_out_of_memory_counts(bench: Callable[..., Any]) -> None:
    made = await bench(p=pool("x = bytearray(1 << 30); print(len(x))", backoffLimit=0))
    made.submit("memory", "p")
    await made.until(lambda: made.ended)
    assert made.ended[0].reason == "OOM_KILLED" and "memory" in made.ended[0].remedy
    assert made.types() == ["OOM_KILLED"] and made.notices[0].counts


async def test_an_eviction_and_a_deleted_pod_do_not_count(bench: Callable[..., Any]) -> None:
    program = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
print("up", flush=True)
time.sleep(600)
"""
    made = await bench(p=pool(program, backoffLimit=0))
    name = made.submit("evicted", "p")

    def running(attempt: int) -> Any:
        view = [
            p
            for p in made.pods(name)
            if p["status"]["phase"] == "Running" and not p["metadata"].get("deletionTimestamp")
        ]
        return (
            view[0]
            if len(view) == 1 and len({n.attempt for n in made.notices if n.attempt_ended}) == attempt - 1
            else None
        )

    first = await made.until(lambda: running(1))
    await asyncio.sleep(1)  # its handler
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": first["metadata"]["name"]}}
    path = f"/api/v1/namespaces/{made.space.name}/pods/{first['metadata']['name']}/eviction"
    made.space.run("create", "--raw", path, "-f", "-", text=json.dumps(eviction))
    second = await made.until(lambda: running(2))
    assert made.types() == ["EVICTED"]
    await asyncio.sleep(1)
    made.space.run("delete", "pod", second["metadata"]["name"], "--wait=false")
    await made.until(lambda: running(3))
    assert made.types() == ["EVICTED", "INTERRUPTED"] and not any(notice.counts for notice in made.notices)
    assert not made.ended and len(made.space.get("jobs", selector=made.installation.selector)) == 1
    await made.launcher.stop("sessions/s/runs/evicted")
    await made.until(lambda: not made.pods(name))
    assert not made.ended


async def test_what_keeps_a_pod_from_running_is_told(bench: Callable[..., Any]) -> None:
    huge = {"requests": {"cpu": "1000", "memory": "32Mi"}, "limits": {"memory": "32Mi"}}
    made = await bench(
        huge=pool("pass", resources=huge),
        absent=pool("pass", image="registry.invalid/no-such-image:1"),
        command=pool(command=["/no/such/program"], backoffLimit=0),
    )
    for name in ("huge", "absent", "command"):
        made.submit(name, name)
    await made.until(lambda: len({notice.run for notice in made.notices}) == 3)
    by_run = {notice.run.rpartition("/")[2]: notice for notice in made.notices}
    assert by_run["huge"].type == "UNSCHEDULABLE" and "Insufficient cpu" in by_run["huge"].message
    assert by_run["absent"].type == "IMAGE_PULL_FAILED" and "no-such-image" in by_run["absent"].message
    assert by_run["command"].type in ("CONTAINER_CONFIG_FAILED", "TRAINER_FAILED")
    assert not by_run["huge"].counts and not by_run["absent"].counts


async def test_quota_is_told_and_waited_for(bench: Callable[..., Any]) -> None:
    made = await bench(p=pool("pass"))
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    made.space.apply(quota)
    await asyncio.sleep(2)  # until the server knows of it
    try:
        made.submit("quota", "p")
        await made.until(lambda: made.notices)
        assert made.types() == ["QUOTA_EXCEEDED"] and not made.notices[0].counts
    finally:
        made.space.run("delete", "resourcequota", "none")
    await made.until(lambda: made.ended, seconds=180)
    assert made.ended[0].kind is ExitKind.DONE


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
    made = await bench(p=short)
    made.submit("late", "p")
    await made.until(lambda: made.ended)
    assert made.ended[0].kind is ExitKind.DEADLINE and not made.ended[0].final
    assert not any(notice.counts for notice in made.notices)
    again = made.submit("late", "p", made.ended[0].last_attempt + 1)  # a fresh Job continues
    await made.until(lambda: any(p["status"]["phase"] == "Running" for p in made.pods(again)))


def requests() -> dict[str, float]:
    """Requests to the API server so far, by verb."""
    samples = [sample for family in metrics.KUBERNETES_REQUESTS.collect() for sample in family.samples]
    return {s.labels["verb"]: s.value for s in samples if s.name.endswith("_total")}


@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_two_hundred_jobs_of_fifty_sessions_at_once(bench: Callable[..., Any]) -> None:
    tiny = {"requests": {"cpu": "5m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}}
    made = await bench(p=pool("pass", resources=tiny))
    before, began = requests(), time.monotonic()
    for session in range(50):
        for run in range(4):
            made.submit(f"r{run}", "p", session=f"s{session}")
    await made.until(lambda: len(made.space.get("jobs", selector=made.installation.selector)) == 200, seconds=120)
    created = time.monotonic() - began
    await made.until(lambda: len(made.ended) == 200, seconds=1500)
    took = time.monotonic() - began
    asked = {verb: count - before.get(verb, 0) for verb, count in requests().items()}
    print(f"200 Jobs created in {created:.1f} s, ended after {took:.1f} s, requests {asked}")
    assert {word.kind for word in made.ended} == {ExitKind.DONE}
    assert len({word.run for word in made.ended}) == 200
    # One request for each Job; besides, two lists every 20 s and the watches that they begin anew, however many Jobs there are.
    rounds = took / 20 + 2
    assert asked["create"] == 200 and created >= (200 - 20) / 10 - 1
    assert asked["list"] <= 2 * rounds + took / 30 + 2 and asked["watch"] <= 4 * rounds, asked
    assert sum(asked.values()) <= 20 + 10 * took
