"""What a Job and its pods say about a run. Pure: objects as the API server gives them in, a `View` out.

Every way in which a pod waits or dies becomes a `Fact` with the remedy in words, and says whether it counts as a failed
attempt. What counts here is what the Job's own failure policy counts (see `manifest`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from dressage_orchestrator.launch.kubernetes import manifest
from dressage_orchestrator.launch.kubernetes.remedies import FAILURES, REMEDIES
from dressage_orchestrator.launch.local import EXIT_CHECKPOINTED
from dressage_orchestrator.launch.protocol import Ended, ExitKind, Notice

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
    """How far a Job has come."""

    SUSPENDED = "suspended"
    WAITING = "waiting"  # for a pod, or for a node
    STARTING = "starting"  # on a node
    RUNNING = "running"
    BETWEEN = "between"  # one pod ended, the next is not there yet
    ENDED = "ended"


@dataclass(frozen=True)
class View:
    """What is known of a Job.

    :param attempt: the newest pod's attempt.
    :param since: when the running container started, seconds since the epoch; None when none runs.
    :param notices: what is worth telling, oldest first; the same objects give the same notices.
    :param ended: how the Job ended, if it has.
    """

    run: str
    first_attempt: int
    attempt: int
    stage: Stage
    since: float | None
    notices: tuple[Notice, ...]
    ended: Ended | None


def observe(job: Mapping[str, Any], pods: Iterable[Mapping[str, Any]], refusals: Sequence[str] = ()) -> View:
    """What the objects say.

    :param pods: the Job's pods, in any order.
    :param refusals: messages of events by which the control plane refused to create a pod.
    """
    run, first = run_of(job), first_attempt_of(job)
    ordered = sorted(pods, key=lambda pod: (attempt_of(pod, first), pod["metadata"].get("creationTimestamp") or ""))
    attempt = attempt_of(ordered[-1], first) if ordered else first
    token = _token_of(job)
    deaths = [(pod, death) for pod in ordered if (death := _death(run, pod, first, token)) is not None]
    notices = [death for _, death in deaths]
    ended = _ended(run, first, attempt, job, ordered, [death for _, death in deaths], token)
    stage, waiting = _stage(job, ordered)
    if ended is not None:
        stage = Stage.ENDED
    elif waiting is not None:
        notices.append(_notice(run, attempt, waiting[0], waiting[1]))
    elif not ordered and stage is Stage.WAITING:
        notices += [_notice(run, attempt, _refusal_type(text), text) for text in refusals[-1:]]
    since = _running_since(ordered[-1]) if ordered and stage is Stage.RUNNING else None
    return View(run, first, attempt, stage, since, tuple(notices), ended)


def run_of(job: Mapping[str, Any]) -> str:
    """Name of the run that a Job or pod is for; empty if it is not ours."""
    return str((job["metadata"].get("annotations") or {}).get(manifest.ANNOTATION_RUN, ""))


def first_attempt_of(job: Mapping[str, Any]) -> int:
    """Attempt of the Job's first pod."""
    return int((job["metadata"].get("annotations") or {}).get(manifest.ANNOTATION_ATTEMPT, "1"))


def attempt_of(pod: Mapping[str, Any], first: int) -> int:
    """Which attempt a pod is: the Job controller notes on it how many ended before."""
    annotations = pod["metadata"].get("annotations") or {}
    return first + sum(int(annotations.get(key) or 0) for key in (manifest.FAILURES, manifest.IGNORED))


def create_refused(message: str) -> str:
    """Type of the condition for a Job that the API server refuses."""
    return _refusal_type(message)


def _refusal_type(message: str) -> str:
    if "exceeded quota" in message:
        return "QUOTA_EXCEEDED"
    return "POD_REFUSED"


def _notice(run: str, attempt: int, kind: str, seen: str, *, counts: bool = False, over: bool = False) -> Notice:
    message = seen.strip()[-_MAX_MESSAGE:] or "no message"
    return Notice(run=run, attempt=attempt, type=kind, message=message, remedy=REMEDIES[kind], counts=counts, over=over)


def _conditions(thing: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {entry["type"]: entry for entry in (thing.get("status") or {}).get("conditions") or ()}


def _is_true(condition: Mapping[str, Any] | None) -> bool:
    return condition is not None and condition.get("status") == "True"


def _container(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return next((entry for entry in statuses if entry.get("name") == manifest.CONTAINER), {})


def _terminated(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    return (_container(pod).get("state") or {}).get("terminated") or {}


def _token_of(job: Mapping[str, Any]) -> str:
    containers = job.get("spec", {}).get("template", {}).get("spec", {}).get("containers") or ()
    found = (entry.get("value") for c in containers for entry in c.get("env") or () if entry["name"].endswith("_TOKEN"))
    return next((value for value in found if value), "")


def _death(run: str, pod: Mapping[str, Any], first: int, token: str) -> Notice | None:
    """Why a pod ended; None when it has not, or ended well."""
    status = pod.get("status") or {}
    if status.get("phase") != "Failed":
        return None
    attempt = attempt_of(pod, first)
    ended = _terminated(pod)
    code = ended.get("exitCode")
    disruption = _conditions(pod).get("DisruptionTarget")
    said = str(ended.get("message") or "")
    if token:
        said = said.replace(token, "[token]")
    if _is_true(disruption):
        assert disruption is not None
        kind = _DISRUPTIONS.get(str(disruption.get("reason")), "EVICTED")
        text = str(disruption.get("message") or status.get("message") or disruption.get("reason") or "")
        return _notice(run, attempt, kind, text, over=True)
    if code == EXIT_CHECKPOINTED:
        return _notice(run, attempt, "INTERRUPTED", "its trainer stored a checkpoint and left", over=True)
    if status.get("reason") == "Evicted":  # for what it used itself: that is no disruption
        return _notice(run, attempt, "STORAGE_EXCEEDED", str(status.get("message") or ""), counts=True, over=True)
    if ended.get("reason") == "OOMKilled":
        return _notice(run, attempt, "OOM_KILLED", "the kernel ended it: out of memory", counts=True, over=True)
    if ended:
        text = f"exit code {code}" + (f"; its log ends with:\n{said}" if said else "")
        return _notice(run, attempt, "TRAINER_FAILED", text, counts=True, over=True)
    text = ": ".join(str(status[key]) for key in ("reason", "message") if status.get(key)) or "its pod is gone"
    return _notice(run, attempt, "POD_LOST", text, counts=True, over=True)


def _stage(job: Mapping[str, Any], ordered: Sequence[Mapping[str, Any]]) -> tuple[Stage, tuple[str, str] | None]:
    """How far it is and, if it waits for something that deserves telling, what and why."""
    if job.get("spec", {}).get("suspend"):
        queue = (job["metadata"].get("labels") or {}).get(manifest.QUEUE_LABEL)
        waits = f"waits for its turn in the queue {queue!r}" if queue else "the Job is suspended"
        return Stage.SUSPENDED, ("SUSPENDED", waits)
    if not ordered:
        return Stage.WAITING, None
    pod = ordered[-1]
    status = pod.get("status") or {}
    conditions = _conditions(pod)
    if status.get("phase") in ("Failed", "Succeeded"):
        return Stage.BETWEEN, None
    scheduled = conditions.get("PodScheduled")
    if not (pod.get("spec") or {}).get("nodeName"):
        if scheduled is not None and scheduled.get("reason") == "Unschedulable":
            return Stage.WAITING, ("UNSCHEDULABLE", str(scheduled.get("message") or ""))
        return Stage.WAITING, None
    state = _container(pod).get("state") or {}
    if "running" in state:
        ready = conditions.get("Ready")
        if ready is not None and ready.get("status") == "False" and not pod["metadata"].get("deletionTimestamp"):
            # The container runs and has no readiness probe: only a node that does not answer is marked so.
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


def _ended(
    run: str,
    first: int,
    last: int,
    job: Mapping[str, Any],
    ordered: Sequence[Mapping[str, Any]],
    deaths: Sequence[Notice],
    token: str,
) -> Ended | None:
    conditions = _conditions(job)
    if _is_true(conditions.get("Complete")):
        said = str(_terminated(ordered[-1]).get("message") or "") if ordered else ""
        message = "exit code 0" + (f"; its log ends with:\n{said}" if said else "")
        return Ended(run, first, ExitKind.DONE, message.replace(token or "\0", "[token]"), last_attempt=last)
    failed = conditions.get("Failed")
    if not _is_true(failed):
        return None
    assert failed is not None
    why = str(failed.get("reason") or "")
    if why == "DeadlineExceeded":
        reason, message = "DEADLINE_EXCEEDED", "the Job was active for as long as its pool allows"
        remedy = REMEDIES[reason]
        return Ended(run, first, ExitKind.DEADLINE, message, last_attempt=last, reason=reason, remedy=remedy)
    counted = [death for death in deaths if death.counts]
    reason = counted[-1].type if counted else "TRAINER_FAILED"
    seen = counted[-1].message if counted else str(failed.get("message") or why)
    message = f"{FAILURES.get(reason, 'the trainer failed')}, {len(counted) or 1} times: {seen}"
    return Ended(
        run,
        first,
        ExitKind.FAILED,
        message,
        last_attempt=last,
        counted=bool(counted),
        reason=reason,
        remedy=REMEDIES[reason],
    )
