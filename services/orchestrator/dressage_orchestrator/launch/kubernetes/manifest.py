"""The manifest of a run's Job. Pure: the same run, attempt and pool give the same Job.

It is an Indexed Job with one index, because only Indexed Jobs annotate pods with the numbers of failed and ignored pods.
From these a replacement pod determines its attempt without the orchestrator. The `podFailurePolicy` ignores disruptions and
exit code 75 (checkpointed after SIGTERM or near the deadline). A Job that reaches its deadline is followed by another one.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Any

from dressage_orchestrator import resource_names
from dressage_orchestrator.launch.kubernetes.pools import Pool, parse_quantity
from dressage_orchestrator.launch.local import EXIT_CHECKPOINTED
from dressage_orchestrator.launch.protocol import Launch

CONTAINER = "trainer"
LABEL_INSTANCE = "app.kubernetes.io/instance"
LABEL_POOL = "dressage.io/pool"
LABEL_SESSION = "dressage.io/session"
LABEL_RUN = "dressage.io/run"
ANNOTATION_RUN = "dressage.io/run"
ANNOTATION_ATTEMPT = "dressage.io/first-attempt"
FAILURES = "batch.kubernetes.io/job-index-failure-count"
IGNORED = "batch.kubernetes.io/job-index-ignored-failure-count"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
USER = 10001
_CA_FOLDER = "/etc/dressage/store-ca"
_MAX_NAME = 61  # the pods of an Indexed Job are named {job}-0, and this host name has at most 63 characters


@dataclass(frozen=True)
class Owner:
    """The owner of the Jobs, as an owner reference."""

    name: str
    uid: str
    kind: str = "ConfigMap"
    api_version: str = "v1"


@dataclass(frozen=True)
class Installation:
    """Namespace, labels and owner of the Jobs of this installation.

    :param instance: distinguishes the Jobs of this installation from others in the namespace.
    :param tls_ca: CA certificates in PEM with which trainers verify the orchestrator; empty: no TLS.
    """

    namespace: str
    instance: str
    owner: Owner | None = None
    tls_ca: str = ""

    @property
    def labels(self) -> dict[str, str]:
        """Labels of all Jobs and pods."""
        return {
            "app.kubernetes.io/name": "dressage",
            "app.kubernetes.io/component": "trainer",
            "app.kubernetes.io/managed-by": "dressage-orchestrator",
            LABEL_INSTANCE: self.instance,
        }

    @property
    def selector(self) -> str:
        """Label selector of all Jobs and pods of this installation."""
        names = ("app.kubernetes.io/component", "app.kubernetes.io/managed-by", LABEL_INSTANCE)
        return ",".join(f"{key}={self.labels[key]}" for key in names)


def job_name(instance: str, run: str, attempt: int) -> str:
    """Name of a Job: deterministic, readable, at most 61 characters."""
    parts = resource_names.parse_run(run)
    # Names are cut to their maximum; the digest keeps those with the same beginning apart.
    digest = hashlib.sha256(f"{instance}|{run}".encode()).hexdigest()[:10]
    end = f"-{parts.run[:16].strip('-')}-{digest}-{attempt}"
    begin = re.sub(r"[^a-z0-9-]", "-", parts.session)[: _MAX_NAME - len(end) - len("run-")].strip("-")
    return f"run-{begin}{end}"


def job_manifest(launch: Launch, pool: Pool, installation: Installation) -> dict[str, Any]:
    """Build the Job for the attempts of a run from ``launch.attempt`` on."""
    parts = resource_names.parse_run(launch.run)
    ours = {LABEL_POOL: launch.pool, LABEL_SESSION: parts.session[:63].strip("-"), LABEL_RUN: parts.run[:63].strip("-")}
    labels = {**pool.labels, **installation.labels, **ours}
    annotations = {**pool.annotations, ANNOTATION_RUN: launch.run, ANNOTATION_ATTEMPT: str(launch.attempt)}
    metadata: dict[str, Any] = {
        "name": job_name(installation.instance, launch.run, launch.attempt),
        "namespace": installation.namespace,
        "labels": {**labels, **({QUEUE_LABEL: pool.queue} if pool.queue else {})},
        "annotations": annotations,
    }
    if installation.owner is not None:
        owner = installation.owner
        metadata["ownerReferences"] = [
            {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid}
        ]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            "completionMode": "Indexed",
            "completions": 1,
            "parallelism": 1,
            # Per index: only then does Kubernetes write the numbers of failed pods onto the next one (decision 0019).
            "backoffLimitPerIndex": pool.backoff_limit,
            "podFailurePolicy": _failure_policy(),
            "podReplacementPolicy": "Failed",  # at most one pod of a run at a time
            "activeDeadlineSeconds": pool.deadline_seconds,
            "ttlSecondsAfterFinished": pool.ttl_seconds,
            **({"suspend": True} if pool.queue else {}),
            "template": {
                "metadata": {"labels": labels, "annotations": annotations},
                "spec": _pod_spec(launch, pool, installation),
            },
        },
    }


def _failure_policy() -> dict[str, Any]:
    def exits(code: int) -> dict[str, Any]:
        return {"containerName": CONTAINER, "operator": "In", "values": [code]}

    disrupted = [{"type": "DisruptionTarget", "status": "True"}]
    return {
        "rules": [
            {"action": "Ignore", "onPodConditions": disrupted},
            {"action": "Ignore", "onExitCodes": exits(EXIT_CHECKPOINTED)},
        ]
    }


def _pod_spec(launch: Launch, pool: Pool, installation: Installation) -> dict[str, Any]:
    volumes: list[dict[str, Any]] = [
        {"name": "scratch", "emptyDir": _empty_dir(pool.scratch_size, pool.scratch_medium)}
    ]
    mounts: list[dict[str, Any]] = [{"name": "scratch", "mountPath": "/tmp"}]
    if pool.shm_size is not None:
        volumes.append({"name": "shm", "emptyDir": _empty_dir(pool.shm_size, "Memory")})
        mounts.append({"name": "shm", "mountPath": "/dev/shm"})
    if pool.ca_config_map:
        volumes.append({"name": "store-ca", "configMap": {"name": pool.ca_config_map}})
        mounts.append({"name": "store-ca", "mountPath": _CA_FOLDER, "readOnly": True})
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": pool.image,
        "imagePullPolicy": pool.image_pull_policy,
        "env": _environment(launch, pool, installation),
        "resources": pool.resources.model_dump(),
        "volumeMounts": mounts,
        # The last lines of the log become the message of the status, so the cause of a failure needs no further request.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    if pool.command:
        container["command"] = list(pool.command)
    optional = {
        "nodeSelector": pool.node_selector,
        "tolerations": list(pool.tolerations),
        "affinity": pool.affinity,
        "priorityClassName": pool.priority_class,
        "runtimeClassName": pool.runtime_class,
        "serviceAccountName": pool.service_account,
        "imagePullSecrets": [{"name": name} for name in pool.image_pull_secrets],
    }
    return {
        # A restarted container would keep its pod, whose attempt number grows only from pod to pod (decision 0019).
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": pool.grace_seconds,
        # Generated code runs in this pod, and a trainer never calls the API server.
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": volumes,
        **{key: value for key, value in optional.items() if value},
    }


def _trainer_deadline(launch: Launch, pool: Pool) -> float:
    """Seconds that a trainer may run: the Job's deadline minus the time for a last checkpoint."""
    of_pool = float(pool.deadline_seconds - pool.grace_seconds)
    return min(of_pool, launch.deadline_seconds) if launch.deadline_seconds > 0 else of_pool


def _empty_dir(size: str, medium: str) -> dict[str, Any]:
    return {"sizeLimit": size, **({"medium": medium} if medium else {})}


def _environment(launch: Launch, pool: Pool, installation: Installation) -> list[dict[str, Any]]:
    """Environment variables of the trainer. Those of the launcher come last, so that a pool cannot override them."""
    ours = {
        "DRESSAGE_RUN_ADDRESS": launch.address,
        "DRESSAGE_RUN_RUN": launch.run,
        "DRESSAGE_RUN_ATTEMPT": str(launch.attempt),
        # A Secret for each Job would need the right to create Secrets, and thereby to read others (decision 0020).
        "DRESSAGE_RUN_TOKEN": launch.token,
        # The trainer's processes stop at half of it, before the kubelet evicts the pod (decision 0052).
        "DRESSAGE_RUN_SCRATCH_BYTES": f"{int(parse_quantity(pool.scratch_size))}",
        "DRESSAGE_RUN_DEADLINE_SECONDS": f"{_trainer_deadline(launch, pool):g}",
        **({"DRESSAGE_RUN_ALLOW_UNSANDBOXED": "true"} if pool.allow_unsandboxed else {}),
        **({"DRESSAGE_S3_CA_FILE": f"{_CA_FOLDER}/ca.crt"} if pool.ca_config_map else {}),
        **({"DRESSAGE_RUN_TLS_CA": installation.tls_ca} if installation.tls_ca else {}),
    }
    plain = [{"name": name, "value": value} for name, value in {**pool.env, **ours}.items()]
    counted = {"DRESSAGE_RUN_FAILED_BEFORE": FAILURES, "DRESSAGE_RUN_INTERRUPTED_BEFORE": IGNORED}
    return plain + [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{key}']"}}}
        for name, key in counted.items()
    ]
