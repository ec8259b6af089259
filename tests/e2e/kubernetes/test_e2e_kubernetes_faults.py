"""Every pod may go, and the node's kubelet, in the middle of a training: the policy, the requests to the model and the Jobs are
those of an undisturbed session."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable

import pytest
from dressage.api.v1 import session_pb2 as pb

from tests.e2e.kubernetes.installation import Installation
from tests.e2e.kubernetes.provider import Provider
from tests.e2e.kubernetes.trainings import call, ended, jobs, pods, run_of, trained, training, weights
from tests.servers.kubernetes import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3600)]

STEPS = int(os.environ.get("DRESSAGE_E2E_FAULT_STEPS", "800000"))
# Until a checkpoint of what is trained by now is in the store, one being written every 3 s.
CHECKPOINT_SECONDS = 6
KUBELET_SECONDS = 60
# Uses up the container's memory in pieces so small that the kernel ends the training, its largest process, first.
OUT_OF_MEMORY = """
import os, time
for _ in range(100):
    if os.fork() == 0:
        kept = b"x" * (24 << 20)
        time.sleep(20)
        os._exit(0)
    time.sleep(0.02)
time.sleep(20)
"""


def killed(installed: Installation, pod: str) -> None:
    """SIGKILL of the trainer: no time for a checkpoint."""
    installed.space.run("delete", "pod", pod, "--wait=false", "--grace-period=0", "--force")


def evicted(installed: Installation, pod: str) -> None:
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    path = f"/api/v1/namespaces/{installed.space.name}/pods/{pod}/eviction"
    installed.space.run("create", "--raw", path, "-f", "-", text=json.dumps(eviction))


def out_of_memory(installed: Installation, pod: str) -> None:
    installed.space.run("exec", pod, "--", "python", "-c", OUT_OF_MEMORY, check=False)


def replaced(installed: Installation, component: str) -> None:
    """A service's pod goes with no time to leave in order; another takes its place."""
    before = {pod["metadata"]["uid"] for pod in installed.pods(component)}
    installed.space.run("delete", "pod", installed.pod(component), "--grace-period=1", "--wait=false")

    def another() -> bool:
        fresh = [pod for pod in installed.pods(component) if pod["metadata"]["uid"] not in before]
        conditions = [c for pod in fresh for c in pod["status"].get("conditions", ())]
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

    until(another, seconds=300, what=f"another pod of {component} is ready")


def without_kubelet() -> None:
    stop, start = os.environ.get("DRESSAGE_E2E_KUBELET_STOP"), os.environ.get("DRESSAGE_E2E_KUBELET_START")
    assert stop and start
    subprocess.run(stop, shell=True, check=True, timeout=60)
    try:
        time.sleep(KUBELET_SECONDS)
    finally:
        subprocess.run(start, shell=True, check=True, timeout=60)


def scripted(installed: Installation, provider: Provider, session: str) -> None:
    provider.start()
    spec = training(STEPS, model="openai/scripted", seed=7, max_iterations=2, pass_threshold=1.0)
    spec.reward.train_only = False
    spec.reward.reward_source = ""
    spec.reward.evaluations = 4
    call(installed, lambda client: client.create_session(spec, session_id=session))


def outcome(installed: Installation, provider: Provider, session: str) -> dict[str, object]:
    """What must not depend on what happened."""
    final = ended(installed, session)
    assert final.state == pb.SESSION_STATE_EXHAUSTED, f"{final}\n{installed.space.diagnosis()}"
    counts = provider.counts()
    assert counts["unexpected"] == counts["left"] == 0, counts
    iterations = call(installed, lambda client: list(client.list_iterations(session)))
    return {
        "weights": [weights(installed, session, iteration) for iteration in (1, 2)],
        "scores": [iteration.judgment.score for iteration in iterations],
        "requests": counts["requests"],
        "cost": final.cost.requests,
        "jobs": len(jobs(installed, session)),
        "video": bool(final.best_video),
    }


def disturb(installed: Installation, session: str) -> None:
    """Every fault in the middle of the session's trainings, one after the other."""
    steps = 0

    def trains(iteration: int, attempt: int = 1) -> str:
        """Waits until it trains beyond what it had at the last fault, and a checkpoint of that is stored; the pod."""
        nonlocal steps
        pod, steps = trained(installed, session, iteration=iteration, attempt=attempt, beyond=steps)
        time.sleep(CHECKPOINT_SECONDS)
        return pod

    ways: list[Callable[[Installation, str], None]] = [killed, evicted, out_of_memory]
    for attempt, way in enumerate(ways, 1):
        way(installed, trains(1, attempt))
    fourth = trains(1, 4)
    for component in ("orchestrator", "judge", "llm-agent"):
        replaced(installed, component)
        trains(1, 4)
    steps = 0
    only = trains(2, 4)  # the lease takes the second training as well
    for component in ("renderer", "postgresql", "minio"):
        replaced(installed, component)
        trains(2, 4)
    if os.environ.get("DRESSAGE_E2E_KUBELET_STOP"):
        without_kubelet()  # the training may well end in that minute
    # What befell the services, the stores and the node's agent cost no trainer its place.
    assert {fourth, only} <= {pod["metadata"]["name"] for pod in pods(installed, session)}


@pytest.mark.slow
def test_a_session_amid_all_faults_ends_as_one_without(installed: Installation) -> None:
    provider = Provider(installed.space, "one_revision.py")
    scripted(installed, provider, "calm")
    calm = outcome(installed, provider, "calm")
    assert calm["jobs"] == 1 and calm["video"], calm
    scripted(installed, provider, "rough")
    disturb(installed, "rough")
    rough = outcome(installed, provider, "rough")
    run = call(installed, lambda client: client.get_run(run_of("rough")))
    conditions = {condition.type for condition in run.conditions}
    assert run.attempt == 4 and {"EVICTED", "OOM_KILLED"} <= conditions, run
    assert rough == calm


def test_running_out_of_memory_is_reported(installed: Installation) -> None:
    call(installed, lambda client: client.create_session(training(20_000, pool="tiny"), session_id="tiny"))
    session = ended(installed, "tiny")
    assert session.state == pb.SESSION_STATE_FAILED
    name = "sessions/tiny/iterations/1/assignments/train"
    assignment = call(installed, lambda client: client.get_assignment(name))
    for failure in (session.failure, assignment.failure):
        assert failure.reason == "OOM_KILLED" and "resources.limits.memory" in failure.remedy, failure
    run = call(installed, lambda client: client.get_run(run_of("tiny")))
    assert "OOM_KILLED" in [condition.type for condition in run.conditions]
