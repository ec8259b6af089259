"""Remedies for the conditions of runs on Kubernetes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

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
