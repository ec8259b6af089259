"""What a Job's and its pods' statuses mean: each condition, whether it counts, and how a Job's end is read."""

from __future__ import annotations

from typing import Any

import pytest
from dressage_orchestrator.launch.kubernetes.manifest import FAILURES, IGNORED, Installation, job_manifest
from dressage_orchestrator.launch.kubernetes.pools import Pool
from dressage_orchestrator.launch.kubernetes.status import JobStatus, Stage, observe
from dressage_orchestrator.launch.protocol import ExitKind, Launch

RUN = "sessions/s/runs/r1"
TOKEN = "99.3-10002.very-secret"


def job(queue: str = "", **conditions: str) -> dict[str, Any]:
    """A Job of ours; conditions by type with their reasons."""
    launch = Launch(RUN, 3, "orchestrator:1", TOKEN, "cpu")
    manifest = job_manifest(launch, Pool(image="trainer:1", queue=queue), Installation("dressage", "r"))
    manifest["status"] = {
        "conditions": [{"type": kind, "status": "True", "reason": reason} for kind, reason in conditions.items()]
    }
    return manifest


def pod(
    phase: str,
    *,
    failures: int = 0,
    ignored: int = 0,
    node: bool = True,
    conditions: list[dict[str, str]] | None = None,
    state: dict[str, Any] | None = None,
    **status: str,
) -> dict[str, Any]:
    """A pod as the API server shows it."""
    annotations = {FAILURES: str(failures), **({IGNORED: str(ignored)} if ignored else {})}
    shown: dict[str, Any] = {"phase": phase, "conditions": conditions or [], **status}
    if state is not None:
        shown["containerStatuses"] = [{"name": "trainer", "image": "trainer:1", "state": state}]
    created = f"2026-01-01T00:00:{failures + ignored:02d}Z"
    return {
        "metadata": {"name": "p", "annotations": annotations, "creationTimestamp": created},
        "spec": {"nodeName": "node-1"} if node else {},
        "status": shown,
    }


def terminated(code: int, reason: str = "Error", message: str = "") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, "message": message}}


def disrupted(reason: str, message: str = "") -> list[dict[str, str]]:
    return [{"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}]


UNSCHEDULABLE = [
    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes: Insufficient cpu"}
]
NOT_READY = [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "False"}]
RUNNING = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}

WAITS = [
    (pod("Pending", node=False, conditions=UNSCHEDULABLE), "UNSCHEDULABLE", "Insufficient cpu"),
    (
        pod("Pending", state={"waiting": {"reason": "ErrImagePull", "message": "not found"}}),
        "IMAGE_PULL_FAILED",
        "not found",
    ),
    (pod("Pending", state={"waiting": {"reason": "ImagePullBackOff"}}), "IMAGE_PULL_FAILED", "trainer:1"),
    (
        pod("Pending", state={"waiting": {"reason": "CreateContainerConfigError", "message": "no such key"}}),
        "CONTAINER_CONFIG_FAILED",
        "no such key",
    ),
    (pod("Running", conditions=NOT_READY, state=RUNNING), "NODE_NOT_READY", "node-1"),
]


@pytest.mark.parametrize(("shown", "kind", "part"), WAITS, ids=[kind + str(i) for i, (_, kind, _) in enumerate(WAITS)])
def test_a_waiting_pod_is_reported_and_not_counted(shown: dict[str, Any], kind: str, part: str) -> None:
    view = observe(job(), [shown])
    assert [notice.type for notice in view.notices] == [kind]
    notice = view.notices[0]
    assert part in notice.message and notice.remedy and not notice.counts and not notice.attempt_ended
    assert view.ended is None and notice.attempt == view.attempt == 3


DEATHS = [
    (pod("Failed", state=terminated(137, "OOMKilled")), "OOM_KILLED", True),
    (pod("Failed", state=terminated(1, message=f"ValueError: {TOKEN}")), "TRAINER_FAILED", True),
    (pod("Failed", state=terminated(137)), "TRAINER_FAILED", True),
    (pod("Failed", state=terminated(75)), "INTERRUPTED", False),
    (pod("Failed", reason="Evicted", message="Usage of EmptyDir exceeds"), "STORAGE_EXCEEDED", True),
    (pod("Failed", reason="OutOfcpu", message="Node did not have enough"), "POD_LOST", True),
    (
        pod("Failed", reason="Evicted", message="low on memory", conditions=disrupted("TerminationByKubelet")),
        "EVICTED",
        False,
    ),
    (pod("Failed", state=terminated(137), conditions=disrupted("EvictionByEvictionAPI", "drain")), "EVICTED", False),
    (pod("Failed", state=terminated(75), conditions=disrupted("EvictionByEvictionAPI")), "EVICTED", False),
    (pod("Failed", state=terminated(143), conditions=disrupted("PreemptionByScheduler")), "PREEMPTED", False),
    (pod("Failed", conditions=disrupted("DeletionByTaintManager")), "NODE_LOST", False),
    (pod("Failed", conditions=disrupted("DeletionByPodGC")), "NODE_LOST", False),
]


@pytest.mark.parametrize(("shown", "kind", "counts"), DEATHS, ids=[f"{k}{i}" for i, (_, k, _) in enumerate(DEATHS)])
def test_reasons_of_failed_pods(shown: dict[str, Any], kind: str, counts: bool) -> None:
    view = observe(job(), [shown])
    assert [(notice.type, notice.counts, notice.attempt_ended) for notice in view.notices] == [(kind, counts, True)]
    assert view.notices[0].remedy and TOKEN not in view.notices[0].message
    assert view.stage is Stage.REPLACING and view.ended is None


def test_attempts_follow_the_pods() -> None:
    pods = [
        pod("Running", failures=1, ignored=1, conditions=[{"type": "Ready", "status": "True"}], state=RUNNING),
        pod("Failed", state=terminated(75)),
        pod("Failed", ignored=1, state=terminated(137, "OOMKilled")),
    ]
    view = observe(job(), pods)
    assert (view.first_attempt, view.attempt, view.stage) == (3, 5, Stage.RUNNING)
    assert [(notice.attempt, notice.type) for notice in view.notices] == [(3, "INTERRUPTED"), (4, "OOM_KILLED")]
    assert view.since == 1767225600.0


def test_stages_before_a_pod_runs() -> None:
    assert observe(job(), []).stage is Stage.WAITING and not observe(job(), []).notices
    refused = observe(job(), [], ["old", 'pods "x" is forbidden: exceeded quota: q'])
    assert [notice.type for notice in refused.notices] == ["QUOTA_EXCEEDED"]
    assert [n.type for n in observe(job(), [], ["violates PodSecurity"]).notices] == ["POD_REFUSED"]
    queued = observe(job(queue="cpu"), [])
    assert queued.stage is Stage.SUSPENDED and queued.notices[0].type == "SUSPENDED"
    assert "'cpu'" in queued.notices[0].message
    assert observe(job(), [pod("Pending", node=False)]).stage is Stage.WAITING
    pulling = pod("Pending", state={"waiting": {"reason": "ContainerCreating"}})
    assert observe(job(), [pulling]).stage is Stage.STARTING and not observe(job(), [pulling]).notices


def ended(view: JobStatus) -> tuple[ExitKind, str, bool, int]:
    assert view.ended is not None and view.stage is Stage.ENDED
    assert view.ended.attempt == 3
    return view.ended.kind, view.ended.reason, view.ended.final, view.ended.last_attempt


def test_how_a_job_ends() -> None:
    good = pod("Succeeded", failures=1, state=terminated(0, "Completed"))
    assert ended(observe(job(Complete="CompletionsReached"), [good])) == (ExitKind.DONE, "", False, 4)
    late = observe(job(Failed="DeadlineExceeded"), [pod("Failed", state=terminated(75))])
    assert ended(late) == (ExitKind.DEADLINE, "DEADLINE_EXCEEDED", False, 3)
    assert late.ended is not None and late.ended.remedy and not late.ended.counted
    memory = [pod("Failed", failures=n, state=terminated(137, "OOMKilled")) for n in range(4)]
    view = observe(job(Failed="FailedIndexes"), memory)
    assert ended(view) == (ExitKind.FAILED, "OOM_KILLED", False, 6)
    assert view.ended is not None and "out of memory, 4 times" in view.ended.message and view.ended.counted
    assert ended(observe(job(Failed="BackoffLimitExceeded"), [])) == (ExitKind.FAILED, "TRAINER_FAILED", False, 3)


def test_a_failure_target_condition_is_not_an_end() -> None:
    assert observe(job(FailureTarget="BackoffLimitExceeded"), [pod("Failed", state=terminated(1))]).ended is None
