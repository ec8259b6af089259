"""Interprets a Job and its pods. Pure: from objects of the API server to a `JobStatus`.

Each reason for which a pod waits or fails becomes a `Notice` with a remedy, and is counted as a failed attempt or not. The
failures counted here are those that the failure policy of the Job counts (see `manifest`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from types import MappingProxyType
from typing import Any

from dressage.log_tails import without_tracebacks

from dressage_orchestrator.launch.kubernetes import manifest
from dressage_orchestrator.launch.local import EXIT_CHECKPOINTED
from dressage_orchestrator.launch.protocol import AttemptResult, ExitKind, Notice

REMEDIES: Mapping[str, str] = MappingProxyType(
    {
        "UNSCHEDULABLE": "no node has enough capacity: add nodes, lower the pool's resources.requests, or check its "
        "nodeSelector and tolerations; the run continues to wait",
        "NO_GPU_NODE": "add a node with such a GPU and NVIDIA's device plugin, correct the pool's nodeSelector, or use another "
        "pool; where nodes are added on demand, set the pool's nodesOnDemand",
        "IMAGE_PULL_FAILED": "check the pool's image and imagePullSecrets, and that nodes reach the registry; the run "
        "continues to wait",
        "CONTAINER_CONFIG_FAILED": "the node cannot create the container: check the pool's command, runtimeClass and "
        "security settings; the run continues to wait",
        "QUOTA_EXCEEDED": "the namespace's ResourceQuota is exhausted: raise it or wait for other runs; the orchestrator "
        "retries",
        "POD_REFUSED": "the API server rejects the pod: check admission policies, LimitRange, the pool's priorityClass "
        "and serviceAccount; the Job controller retries",
        "JOB_REFUSED": "the API server rejects the Job: check the orchestrator's Role and admission policies; the "
        "orchestrator retries",
        "JOB_INVALID": "the API server does not accept the Job: correct the pool's values",
        "JOB_DELETED": "the run's Job was deleted by another client; to end a run, cancel its session",
        "API_SERVER_UNAVAILABLE": "the orchestrator does not reach the Kubernetes API: check its NetworkPolicy and the "
        "API server; the orchestrator retries",
        "SUSPENDED": "no action needed: the queue starts the Job; `kubectl get workloads` shows its position",
        "NODE_NOT_READY": "if the node does not recover, its pods are replaced (after 5 minutes by default) and continue "
        "from the last checkpoint",
        "NODE_LOST": "no action needed: a new pod continues from the last checkpoint; this is not counted as a failure",
        "EVICTED": "no action needed: a new pod continues from the last checkpoint; this is not counted as a failure",
        "PREEMPTED": "no action needed: a new pod continues from the last checkpoint; set the pool's priorityClass if "
        "this happens often; this is not counted as a failure",
        "INTERRUPTED": "no action needed: a new pod continues from the checkpoint; this is not counted as a failure",
        "OOM_KILLED": "raise the pool's resources.limits.memory, or train fewer members in a run",
        "STORAGE_EXCEEDED": "raise the pool's scratchSize or its ephemeral-storage limit",
        "TRAINER_FAILED": "see the run's log",
        "TRAINER_UNRESPONSIVE": "check that pods reach the orchestrator's address (NetworkPolicy, Service), then the run's log",
        "POD_LOST": "see the events of the node and of the pod",
        "DEADLINE_EXCEEDED": "no action needed: another Job continues from the last checkpoint; raise the pool's "
        "deadlineSeconds if there is no checkpoint",
        "SANDBOX_MISSING": "generated code does not run on this node: use nodes whose kernel has Landlock (5.13 or newer), "
        "or set the pool's allowUnsandboxed for code that you trust",
    }
)
"""Remedy by type of condition."""

FAILURES: Mapping[str, str] = MappingProxyType(
    {
        "OOM_KILLED": "the trainer ran out of memory",
        "STORAGE_EXCEEDED": "the trainer exceeded its scratch space",
        "POD_LOST": "the trainer's pod was lost",
        "TRAINER_FAILED": "the trainer failed",
    }
)
"""Message of a failed run by type of condition."""


_MAX_MESSAGE = 1500
_DISRUPTIONS = {
    "PreemptionByScheduler": "PREEMPTED",
    "DeletionByTaintManager": "NODE_LOST",
    "DeletionByPodGC": "NODE_LOST",
    "EvictionByEvictionAPI": "EVICTED",
    "TerminationByKubelet": "EVICTED",
}
_PULLING = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "RegistryUnavailable"}
)
_MISCONFIGURED = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "PreCreateHookError"}
)


class Stage(Enum):
    """Stage of a Job."""

    SUSPENDED = "suspended"
    WAITING = "waiting"  # for a pod, or for a node
    STARTING = "starting"  # on a node
    RUNNING = "running"
    REPLACING = "replacing"  # one pod has ended, the next does not exist yet
    ENDED = "ended"


@dataclass(frozen=True)
class JobStatus:
    """Status of a Job.

    :param attempt: attempt of the newest pod.
    :param since: start of the running container, seconds since the epoch; None if no container runs.
    :param notices: conditions that need attention, oldest first; the same objects give the same notices.
    :param ended: result, if the Job has ended.
    """

    run: str
    first_attempt: int
    attempt: int
    stage: Stage
    since: float | None
    notices: tuple[Notice, ...]
    ended: AttemptResult | None


def observe(
    job: Mapping[str, Any], pods: Iterable[Mapping[str, Any]], failed_creations: Sequence[str] = ()
) -> JobStatus:
    """Interpret a Job and its pods.

    :param pods: pods of the Job, in any order.
    :param failed_creations: messages of events about pods that could not be created.
    """
    run, first = run_of(job), first_attempt_of(job)
    ordered = sorted(pods, key=lambda pod: (attempt_of(pod, first), pod["metadata"].get("creationTimestamp") or ""))
    attempt = attempt_of(ordered[-1], first) if ordered else first
    token = _token_of(job)
    failures = [failure for pod in ordered if (failure := _pod_failure(run, pod, first, token)) is not None]
    notices = list(failures)
    ended = _attempt_result(run, first, attempt, job, ordered, failures, token)
    stage, waiting = _stage(job, ordered)
    if ended is not None:
        stage = Stage.ENDED
    elif waiting is not None:
        notices.append(_notice(run, attempt, waiting[0], waiting[1]))
    elif not ordered and stage is Stage.WAITING:
        notices += [_notice(run, attempt, creation_failure_type(text), text) for text in failed_creations[-1:]]
    since = _running_since(ordered[-1]) if ordered and stage is Stage.RUNNING else None
    return JobStatus(run, first, attempt, stage, since, tuple(notices), ended)


def run_of(job: Mapping[str, Any]) -> str:
    """Name of the run of a Job or pod; empty if the object is not from Dressage."""
    return str((job["metadata"].get("annotations") or {}).get(manifest.ANNOTATION_RUN, ""))


def first_attempt_of(job: Mapping[str, Any]) -> int:
    """Attempt of the Job's first pod."""
    return int((job["metadata"].get("annotations") or {}).get(manifest.ANNOTATION_ATTEMPT, "1"))


def attempt_of(pod: Mapping[str, Any], first: int) -> int:
    """Attempt of a pod, from the numbers of earlier pods that the Job controller annotates."""
    annotations = pod["metadata"].get("annotations") or {}
    return first + sum(int(annotations.get(key) or 0) for key in (manifest.FAILURES, manifest.IGNORED))


def creation_failure_type(message: str) -> str:
    """Type of the condition for an object that the API server rejects."""
    # Kubernetes answers 403 for a quota as for other refusals; only its message differs, also in events.
    if "exceeded quota" in message:
        return "QUOTA_EXCEEDED"
    return "POD_REFUSED"


def _notice(
    run: str, attempt: int, kind: str, observed: str, *, counts: bool = False, attempt_ended: bool = False
) -> Notice:
    message = observed.strip()[-_MAX_MESSAGE:] or "no message"
    return Notice(
        run=run,
        attempt=attempt,
        type=kind,
        message=message,
        remedy=REMEDIES[kind],
        counts=counts,
        attempt_ended=attempt_ended,
    )


def _conditions(thing: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {entry["type"]: entry for entry in (thing.get("status") or {}).get("conditions") or ()}


def _is_true(condition: Mapping[str, Any] | None) -> bool:
    return condition is not None and condition.get("status") == "True"


def _container(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return next((entry for entry in statuses if entry.get("name") == manifest.CONTAINER), {})


def _termination(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    return (_container(pod).get("state") or {}).get("terminated") or {}


def _token_of(job: Mapping[str, Any]) -> str:
    containers = job.get("spec", {}).get("template", {}).get("spec", {}).get("containers") or ()
    values = (
        entry.get("value") for c in containers for entry in c.get("env") or () if entry["name"].endswith("_TOKEN")
    )
    return next((value for value in values if value), "")


def _pod_failure(run: str, pod: Mapping[str, Any], first: int, token: str) -> Notice | None:
    """Notice of a failed pod; None if it has not failed."""
    status = pod.get("status") or {}
    if status.get("phase") != "Failed":
        return None
    attempt = attempt_of(pod, first)
    ended = _termination(pod)
    code = ended.get("exitCode")
    disruption = _conditions(pod).get("DisruptionTarget")
    log = str(ended.get("message") or "")
    if token:
        log = log.replace(token, "[token]")
    if _is_true(disruption):
        assert disruption is not None
        kind = _DISRUPTIONS.get(str(disruption.get("reason")), "EVICTED")
        text = str(disruption.get("message") or status.get("message") or disruption.get("reason") or "")
        return _notice(run, attempt, kind, text, attempt_ended=True)
    if code == EXIT_CHECKPOINTED:
        return _notice(run, attempt, "INTERRUPTED", "the trainer stored a checkpoint and exited", attempt_ended=True)
    if status.get("reason") == "Evicted":  # because of its own usage, which is not a disruption
        return _notice(
            run, attempt, "STORAGE_EXCEEDED", str(status.get("message") or ""), counts=True, attempt_ended=True
        )
    if ended.get("reason") == "OOMKilled":
        return _notice(
            run, attempt, "OOM_KILLED", "the kernel killed the trainer: out of memory", counts=True, attempt_ended=True
        )
    if ended:
        text = f"exit code {code}" + (f"; its log ends with:\n{without_tracebacks(log)}" if log else "")
        return _notice(run, attempt, "TRAINER_FAILED", text, counts=True, attempt_ended=True)
    text = ": ".join(str(status[key]) for key in ("reason", "message") if status.get(key)) or "the pod was lost"
    return _notice(run, attempt, "POD_LOST", text, counts=True, attempt_ended=True)


def _stage(job: Mapping[str, Any], ordered: Sequence[Mapping[str, Any]]) -> tuple[Stage, tuple[str, str] | None]:
    """Stage of the Job and, if it waits, the type and message of the condition."""
    if job.get("spec", {}).get("suspend"):
        queue = (job["metadata"].get("labels") or {}).get(manifest.QUEUE_LABEL)
        reason = f"the Job waits in the queue {queue!r}" if queue else "the Job is suspended"
        return Stage.SUSPENDED, ("SUSPENDED", reason)
    if not ordered:
        return Stage.WAITING, None
    pod = ordered[-1]
    status = pod.get("status") or {}
    conditions = _conditions(pod)
    if status.get("phase") in ("Failed", "Succeeded"):
        return Stage.REPLACING, None
    scheduled = conditions.get("PodScheduled")
    if not (pod.get("spec") or {}).get("nodeName"):
        if scheduled is not None and scheduled.get("reason") == "Unschedulable":
            return Stage.WAITING, ("UNSCHEDULABLE", str(scheduled.get("message") or ""))
        return Stage.WAITING, None
    state = _container(pod).get("state") or {}
    if "running" in state:
        ready = conditions.get("Ready")
        if ready is not None and ready.get("status") == "False" and not pod["metadata"].get("deletionTimestamp"):
            # The container runs without a readiness probe, so only an unresponsive node sets this condition.
            return Stage.RUNNING, ("NODE_NOT_READY", f"node {pod['spec']['nodeName']} does not answer")
        return Stage.RUNNING, None
    waiting = state.get("waiting") or {}
    reason, message = str(waiting.get("reason") or ""), str(waiting.get("message") or "")
    if reason in _PULLING:
        return Stage.STARTING, ("IMAGE_PULL_FAILED", f"{reason}: {message or _container(pod).get('image')}")
    if reason in _MISCONFIGURED:
        return Stage.STARTING, ("CONTAINER_CONFIG_FAILED", f"{reason}: {message}")
    return Stage.STARTING, None


def _running_since(pod: Mapping[str, Any]) -> float | None:
    started = ((_container(pod).get("state") or {}).get("running") or {}).get("startedAt")
    return datetime.fromisoformat(started).timestamp() if started else None


def _attempt_result(
    run: str,
    first: int,
    last: int,
    job: Mapping[str, Any],
    ordered: Sequence[Mapping[str, Any]],
    failures: Sequence[Notice],
    token: str,
) -> AttemptResult | None:
    conditions = _conditions(job)
    if _is_true(conditions.get("Complete")):
        log = str(_termination(ordered[-1]).get("message") or "") if ordered else ""
        message = "exit code 0" + (f"; its log ends with:\n{without_tracebacks(log)}" if log else "")
        return AttemptResult(run, first, ExitKind.DONE, message.replace(token or "\0", "[token]"), last_attempt=last)
    failed = conditions.get("Failed")
    if not _is_true(failed):
        return None
    assert failed is not None
    why = str(failed.get("reason") or "")
    if why == "DeadlineExceeded":
        reason, message = "DEADLINE_EXCEEDED", "the Job reached the deadline of its pool"
        remedy = REMEDIES[reason]
        return AttemptResult(run, first, ExitKind.DEADLINE, message, last_attempt=last, reason=reason, remedy=remedy)
    counted = [failure for failure in failures if failure.counts]
    reason = counted[-1].type if counted else "TRAINER_FAILED"
    cause = counted[-1].message if counted else str(failed.get("message") or why)
    message = f"{FAILURES.get(reason, 'the trainer failed')}, {len(counted) or 1} times: {cause}"
    return AttemptResult(
        run,
        first,
        ExitKind.FAILED,
        message,
        last_attempt=last,
        counted=bool(counted),
        reason=reason,
        remedy=REMEDIES[reason],
    )
