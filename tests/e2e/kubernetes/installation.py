"""The five services in a namespace, by plain manifests: what the chart does at least, and a store for tests."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tests.servers.kubernetes import Namespace, image

TOKEN = "end-to-end-api-token"
_INTERNAL = "end-to-end-internal-token"
_RUN_SECRET = "end-to-end-run-token-secret"
_S3_KEY, _S3_SECRET = "end-to-end-access", "end-to-end-secret"
GRPC, METRICS, S3 = 50051, 9090, 8333
_LABEL = "app.kubernetes.io/component"

_S3_ENV = {
    "DRESSAGE_S3_ENDPOINT": f"http://s3:{S3}",
    "DRESSAGE_S3_ACCESS_KEY": _S3_KEY,
    "DRESSAGE_S3_SECRET_KEY": _S3_SECRET,
    "DRESSAGE_S3_CREATE_BUCKET": "true",
}
_MEMORY = {"orchestrator": "1Gi", "llm-agent": "1Gi", "judge": "2Gi", "renderer": "2Gi", "s3": "1Gi"}


@dataclass(frozen=True)
class Installation:
    """What was installed.

    :param pools: as in the file of pools.
    """

    space: Namespace
    pools: dict[str, Any]

    @property
    def services(self) -> list[str]:
        """The workloads."""
        return [f"deployment/{name}" for name in ("s3", "llm-agent", "judge", "renderer", "orchestrator")]


def install(space: Namespace, *, pools: dict[str, Any], **orchestrator: str) -> Installation:
    """Applies everything and waits until it is ready.

    :param orchestrator: further settings of the orchestrator, by their names in lower case.
    """
    space.apply(*_access(space), _config("pools", {"pools.json": json.dumps({"pools": pools})}), *_s3())
    space.rolled_out("deployment/s3")
    internal = {"AUTH_TOKEN": _INTERNAL}
    settings = {
        "AUTH_TOKEN": TOKEN,
        "INTERNAL_TOKEN": _INTERNAL,
        "RUN_TOKEN_SECRET": _RUN_SECRET,
        "DATA_DIR": "/data",
        "LAUNCHER": "kubernetes",
        "DEFAULT_POOL": "cpu",
        "KUBERNETES_POOLS_FILE": "/etc/dressage/pools.json",
        "KUBERNETES_INSTANCE": "e2e",
        "KUBERNETES_OWNER": "pools",
        "KUBERNETES_RELIST_SECONDS": "20",
        "ADVERTISED_ADDRESS": f"orchestrator.{space.name}.svc:{GRPC}",
        **{
            f"{name.upper().replace('-', '_')}_ADDRESS": f"{name}:{GRPC}" for name in ("llm-agent", "judge", "renderer")
        },
        "CHECKPOINT_SECONDS": "3",
        "WAIT_SECONDS": "5",
        "HELLO_SECONDS": "180",
        **{name.upper(): value for name, value in orchestrator.items()},
    }
    for name, given in (
        ("llm-agent", internal),
        ("judge", {**internal, "INTERNAL_TOKEN": _INTERNAL}),
        ("renderer", internal),
    ):
        space.apply(*_service(name, given))
    space.apply(*_service("orchestrator", settings))
    made = Installation(space, pools)
    space.rolled_out(*made.services)
    return made


def _config(name: str, data: dict[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def _access(space: Namespace) -> list[dict[str, Any]]:
    """The orchestrator's account and all that it may do."""
    rules = [
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create", "get", "list", "watch", "delete"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["list", "watch"]},
        {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["pools"], "verbs": ["get"]},
    ]
    group = "rbac.authorization.k8s.io"
    subject = {"kind": "ServiceAccount", "name": "orchestrator", "namespace": space.name}
    reference = {"apiGroup": group, "kind": "Role", "name": "orchestrator"}
    metadata = {"name": "orchestrator"}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata, "automountServiceAccountToken": False},
        {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": metadata, "rules": rules},
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": reference,
            "subjects": [subject],
        },
    ]


def _workload(
    name: str, container: dict[str, Any], volumes: list[dict[str, Any]], ports: list[int]
) -> list[dict[str, Any]]:
    labels = {_LABEL: name, "app.kubernetes.io/name": "dressage-e2e"}
    security = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    orchestrates = name == "orchestrator"
    pod: dict[str, Any] = {
        "automountServiceAccountToken": orchestrates,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 30,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 10001, "runAsGroup": 10001, "fsGroup": 10001},
        "containers": [
            {
                "name": name,
                "imagePullPolicy": "IfNotPresent",
                "securityContext": security,
                "resources": {
                    "requests": {"cpu": "20m", "memory": "64Mi"},
                    "limits": {"memory": _MEMORY[name]},
                },
                **container,
            }
        ],
        "volumes": volumes,
        **({"serviceAccountName": "orchestrator"} if orchestrates else {}),
    }
    spec: dict[str, Any] = {
        "replicas": 1,
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    service = {"selector": labels, "ports": [{"name": f"p{port}", "port": port} for port in ports]}
    return [
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec},
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": service},
    ]


def _service(name: str, settings: dict[str, str]) -> list[dict[str, Any]]:
    prefix = f"DRESSAGE_{name.upper().replace('-', '_')}_"
    told = {
        "ADDRESS": f"0.0.0.0:{GRPC}",
        "METRICS_ADDRESS": f"0.0.0.0:{METRICS}",
        "STORE_URL": "s3://dressage",
        **settings,
    }
    env = {f"{prefix}{key}": value for key, value in told.items()} | _S3_ENV
    volumes: list[dict[str, Any]] = [{"name": "tmp", "emptyDir": {"sizeLimit": "2Gi"}}]
    mounts = [{"name": "tmp", "mountPath": "/tmp"}]
    objects: list[dict[str, Any]] = []
    if name == "orchestrator":
        claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        objects.append(
            {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": claim}
        )
        volumes += [
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "pools", "configMap": {"name": "pools"}},
        ]
        mounts += [{"name": "data", "mountPath": "/data"}, {"name": "pools", "mountPath": "/etc/dressage"}]
    container = {
        "image": image(name),
        "env": [{"name": key, "value": value} for key, value in env.items()],
        "ports": [{"containerPort": GRPC}, {"containerPort": METRICS}],
        "startupProbe": {"grpc": {"port": GRPC}, "periodSeconds": 2, "failureThreshold": 90},
        "readinessProbe": {"grpc": {"port": GRPC}, "periodSeconds": 5, "timeoutSeconds": 5},
        "volumeMounts": mounts,
    }
    return objects + _workload(name, container, volumes, [GRPC, METRICS])


def _s3() -> list[dict[str, Any]]:
    actions = ["Admin", "Read", "Write", "List", "Tagging"]
    key = {"accessKey": _S3_KEY, "secretKey": _S3_SECRET}
    identities = {"identities": [{"name": "e2e", "credentials": [key], "actions": actions}]}
    options = {
        "dir": "/data",
        "ip": "127.0.0.1",
        "ip.bind": "0.0.0.0",
        "master.volumeSizeLimitMB": 64,
        "master.volumePreallocate": "false",
        "master.telemetry": "false",
        "volume.max": 20,
        "filer": "true",
        "s3": "true",
        "s3.port": S3,
        "s3.port.iceberg": 0,
        "s3.port.lance": 0,
        "s3.iam": "false",
        "s3.config": "/etc/s3/s3.json",
    }
    container = {
        "image": image("test-s3"),
        "args": ["-logtostderr=true", "server", *(f"-{name}={value}" for name, value in options.items())],
        "workingDir": "/data",
        "env": [{"name": "GOMAXPROCS", "value": "2"}, {"name": "HOME", "value": "/tmp"}],
        "ports": [{"containerPort": S3}],
        "readinessProbe": {"tcpSocket": {"port": S3}, "periodSeconds": 2},
        "volumeMounts": [
            {"name": "data", "mountPath": "/data"},
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": "config", "mountPath": "/etc/s3"},
        ],
    }
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}
    volumes = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "s3"}},
        {"name": "tmp", "emptyDir": {"sizeLimit": "256Mi"}},
        {"name": "config", "configMap": {"name": "s3"}},
    ]
    return [
        _config("s3", {"s3.json": json.dumps(identities)}),
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "s3"}, "spec": claim},
        *_workload("s3", container, volumes, [S3]),
    ]
