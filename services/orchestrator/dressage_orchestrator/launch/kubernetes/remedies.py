"""What an operator or a user can do about each condition of a run on Kubernetes, in words."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

REMEDIES: Mapping[str, str] = MappingProxyType(
    {
        "UNSCHEDULABLE": "no node has room: add nodes, lower the pool's resources.requests, or check its nodeSelector "
        "and tolerations; the run goes on waiting",
        "IMAGE_PULL_FAILED": "check the pool's image and imagePullSecrets, and that nodes reach the registry; the run "
        "goes on waiting",
        "CONTAINER_CONFIG_FAILED": "the node cannot make the container: check the pool's command, runtimeClass and "
        "security settings; the run goes on waiting",
        "QUOTA_EXCEEDED": "the namespace's ResourceQuota is used up: raise it or wait for other runs; it is tried again",
        "POD_REFUSED": "the API server refuses the pod: check admission policies, LimitRange, the pool's priorityClass "
        "and serviceAccount; it is tried again",
        "JOB_REFUSED": "the API server refuses the Job: check the orchestrator's Role and admission policies; it is "
        "tried again",
        "JOB_INVALID": "the API server does not accept the Job: correct the pool's values",
        "JOB_DELETED": "somebody deleted the run's Job; to end a run, cancel its session",
        "API_SERVER_UNAVAILABLE": "the orchestrator does not reach the Kubernetes API: check its NetworkPolicy and the "
        "API server; it is tried again",
        "SUSPENDED": "nothing to do: its queue starts it; `kubectl get workloads` says what it waits for",
        "NODE_NOT_READY": "if the node stays away, its pods are replaced (after 5 minutes by default) and go on from "
        "the last checkpoint",
        "NODE_LOST": "nothing to do: a new pod goes on from the last checkpoint; this is not counted",
        "EVICTED": "nothing to do: a new pod goes on from the last checkpoint; this is not counted",
        "PREEMPTED": "nothing to do: a new pod goes on from the last checkpoint; give the pool a priorityClass if this "
        "happens often; this is not counted",
        "INTERRUPTED": "nothing to do: a new pod goes on from the checkpoint; this is not counted",
        "OOM_KILLED": "raise the pool's resources.limits.memory, or train fewer members in a run",
        "STORAGE_EXCEEDED": "raise the pool's scratchSize or its ephemeral-storage limit",
        "TRAINER_FAILED": "see the run's log",
        "TRAINER_SILENT": "check that pods reach the orchestrator's address (NetworkPolicy, Service), then the run's log",
        "POD_LOST": "see the events of the node and of the pod",
        "DEADLINE_EXCEEDED": "nothing to do: another Job continues from the last checkpoint; raise the pool's "
        "deadlineSeconds if there is none",
        "SANDBOX_MISSING": "generated code is refused there: use nodes whose kernel has Landlock (5.13 or newer), or "
        "set the pool's allowUnsandboxed for code that you trust",
    }
)
"""By condition type."""

FAILURES: Mapping[str, str] = MappingProxyType(
    {
        "OOM_KILLED": "the trainer ran out of memory",
        "STORAGE_EXCEEDED": "the trainer wrote more than its scratch folder holds",
        "POD_LOST": "the trainer's pod was lost",
        "TRAINER_FAILED": "the trainer failed",
    }
)
"""What a failed run says, by condition type."""
