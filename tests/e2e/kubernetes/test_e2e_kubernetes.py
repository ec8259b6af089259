"""The product on a real cluster: one command ends with policy and video; killed pods lose nothing."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dressage import errors
from dressage.api.v1 import session_pb2 as pb
from dressage.client import Client
from dressage.policies import load
from serving import run_cli

from tests.e2e.kubernetes.installation import GRPC, METRICS, TOKEN, Installation, install
from tests.servers.kubernetes import Namespace, image, namespace, require_cluster, until

pytestmark = pytest.mark.cluster

POOLS = {
    "cpu": {
        "image": image("trainer"),
        "imagePullPolicy": "IfNotPresent",
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "3Gi"}},
        "cores": 2,
        "graceSeconds": 60,
        "scratchSize": "2Gi",
    },
    "small": {
        "image": image("trainer"),
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "160Mi"}},
        "cores": 1,
        "backoffLimit": 0,
    },
}
REWARD = """
LATEX = r"1 - \\theta^2"
TERMS = {"alive": "1 for every step", "angle": "cost of the squared angle"}

def reward(state, action, next_state, memory, np):
    return {"alive": np.ones_like(next_state.pole_angle), "angle": -np.square(next_state.pole_angle / 0.2)}
"""
STEPS = int(os.environ.get("DRESSAGE_E2E_STEPS", "50000"))


@pytest.fixture(scope="module")
def installed() -> Iterator[Installation]:
    require_cluster()
    with namespace("dressage-e2e", keep=bool(os.environ.get("DRESSAGE_E2E_KEEP"))) as space:
        yield install(space, pools=POOLS)


@pytest.fixture
def address(installed: Installation) -> Iterator[str]:
    with installed.space.forwarded("service/orchestrator", GRPC) as found:
        yield found


def jobs(space: Namespace, session: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = space.get("jobs", selector=f"dressage.io/session={session}")
    return found


def pods(space: Namespace, session: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = space.get("pods", selector=f"dressage.io/session={session}")
    return found


def test_a_sentence_becomes_a_policy_and_a_video(installed: Installation, address: str, tmp_path: Path) -> None:
    arguments = ["run forward fast", "--env", "HalfCheetah-v5", "--steps", str(STEPS), "--seeds", "1"]
    where = ["--address", address, "--token", TOKEN]
    done = run_cli("run", *arguments, "--iterations", "1", "--yes", "--json", *where, timeout=1800)
    assert done.returncode in (0, 3), f"{done.stdout}\n{done.stderr}\n{installed.space.diagnosis()}"
    result = json.loads(done.stdout)
    session = result["session"].removeprefix("sessions/")
    for kind in ("policy", "video"):
        fetched = run_cli("artifacts", "get", result[kind]["artifact"], "-o", str(tmp_path / kind), *where)
        assert fetched.returncode == 0, fetched.stderr
    bundle = next((tmp_path / "policy").rglob("policy.safetensors")).parent
    action = load(bundle).act(np.zeros(17))
    assert np.asarray(action).shape == (6,) and np.isfinite(action).all()
    video = next(path for path in [tmp_path / "video", *(tmp_path / "video").rglob("*")] if path.is_file())
    assert video.stat().st_size > 10_000 and video.read_bytes()[4:8] == b"ftyp"
    # Training and the confirmation on fresh seeds: a Job each, a pod each.
    made = jobs(installed.space, session)
    assert 1 <= len(made) <= 2 and len(pods(installed.space, session)) == len(made)
    with installed.space.forwarded("deployment/orchestrator", METRICS) as metrics:
        text = _scraped(metrics)
    assert 'dressage_env_steps_total{environment="HalfCheetah-v5",pool="cpu"}' in text


def _scraped(address: str) -> str:
    import urllib.request

    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
        return str(answer.read().decode())


def spec(**more: Any) -> pb.SessionSpec:
    return pb.SessionSpec(
        intent="balance the pole",
        environment="environments/InvertedPendulum-v5",
        reward_source=REWARD,
        train_only=True,
        seeds=2,
        steps_per_member=int(os.environ.get("DRESSAGE_E2E_FAULT_STEPS", "400000")),
        evaluations=2,
        evaluation_episodes=2,
        **more,
    )


def run_of(session: str) -> str:
    return f"sessions/{session}/iterations/1/runs/train"


def checkpointed(client: Client, space: Namespace, session: str, attempt: int) -> dict[str, Any]:
    """Waits until that attempt has trained for a while past a checkpoint; its pod."""

    def look() -> dict[str, Any] | None:
        run = client.get_run(run_of(session))
        assert run.state != pb.RUN_STATE_FAILED, run
        if run.attempt != attempt or run.state != pb.RUN_STATE_RUNNING:
            return None
        if min((member.env_steps for member in run.members), default=0) < 20_000 * attempt:
            return None
        alive = [pod for pod in pods(space, session) if pod["status"]["phase"] == "Running"]
        return alive[0] if alive else None

    def wait() -> dict[str, Any] | None:
        try:
            return look()
        except errors.NotFound:  # the reward is still being checked
            return None

    found = until(wait, seconds=400, what=f"attempt {attempt} of {session} trains")
    time.sleep(4)  # a checkpoint is stored every 3 s
    assert found is not None
    return found


def weights(client: Client, session: str, folder: Path) -> dict[str, str]:
    """SHA-256 of every member's weights."""
    found = {}
    for member in client.get_run(run_of(session)).members:
        data = b"".join(client.read_artifact(f"{member.policy}/policy.safetensors"))
        found[member.name.rpartition("/")[2]] = hashlib.sha256(data).hexdigest()
    return found


def deleted(space: Namespace, pod: str) -> None:
    space.run("delete", "pod", pod, "--wait=false")


def killed(space: Namespace, pod: str) -> None:
    """SIGKILL of the trainer: no time for a checkpoint."""
    space.run("delete", "pod", pod, "--wait=false", "--grace-period=0", "--force")


def evicted(space: Namespace, pod: str) -> None:
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    path = f"/api/v1/namespaces/{space.name}/pods/{pod}/eviction"
    space.run("create", "--raw", path, "-f", "-", text=json.dumps(eviction))


def test_trainers_that_lose_their_pods_end_with_the_weights_of_an_undisturbed_run(
    installed: Installation, address: str, tmp_path: Path
) -> None:
    space = installed.space
    with Client.connect(address, token=TOKEN) as client:
        client.create_session(spec(), session_id="calm")
        assert client.wait_session("calm").state == pb.SESSION_STATE_SUCCEEDED, space.diagnosis()
        client.create_session(spec(), session_id="rough")
        ways: list[Callable[[Namespace, str], None]] = [deleted, evicted, killed]
        for attempt, way in enumerate(ways, 1):
            way(space, checkpointed(client, space, "rough", attempt)["metadata"]["name"])
        ended = client.wait_session("rough")
        assert ended.state == pb.SESSION_STATE_SUCCEEDED, f"{ended}\n{space.diagnosis()}"
        run = client.get_run(run_of("rough"))
        assert run.attempt == 4 and len(jobs(space, "rough")) == 1
        assert {"INTERRUPTED", "EVICTED"} <= {condition.type for condition in run.conditions}
        assert weights(client, "rough", tmp_path) == weights(client, "calm", tmp_path)


def test_the_orchestrator_may_go_at_any_time(installed: Installation) -> None:
    space = installed.space
    with space.forwarded("service/orchestrator", GRPC) as address, Client.connect(address, token=TOKEN) as client:
        client.create_session(spec(), session_id="orphan")
        pod = checkpointed(client, space, "orphan", 1)["metadata"]["name"]
    name = space.get("pods", selector="app.kubernetes.io/component=orchestrator")[0]["metadata"]["name"]
    space.run("delete", "pod", name, "--grace-period=0", "--force")
    space.rolled_out("deployment/orchestrator")
    with space.forwarded("service/orchestrator", GRPC) as address, Client.connect(address, token=TOKEN) as client:
        assert client.wait_session("orphan").state == pb.SESSION_STATE_SUCCEEDED, space.diagnosis()
        assert client.get_run(run_of("orphan")).attempt == 1
    assert [entry["metadata"]["name"] for entry in pods(space, "orphan")] == [pod]


def test_a_run_out_of_memory_says_so(installed: Installation, address: str) -> None:
    with Client.connect(address, token=TOKEN) as client:
        client.create_session(spec(pool="small"), session_id="small")
        ended = client.wait_session("small")
        assert ended.state == pb.SESSION_STATE_FAILED
        run = client.get_run(run_of("small"))
    assert run.failure.reason == "OOM_KILLED" and "resources.limits.memory" in run.failure.remedy
    assert "OOM_KILLED" in [condition.type for condition in run.conditions]


def test_a_cancelled_session_leaves_no_pod(installed: Installation, address: str) -> None:
    space = installed.space
    with Client.connect(address, token=TOKEN) as client:
        client.create_session(spec(), session_id="cancelled")
        checkpointed(client, space, "cancelled", 1)
        client.cancel_session("cancelled")
        assert client.wait_session("cancelled").state == pb.SESSION_STATE_CANCELLED
    until(lambda: not pods(space, "cancelled") and not jobs(space, "cancelled"), seconds=90, what="its Job goes")
