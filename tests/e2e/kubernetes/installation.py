"""The chart with its PostgreSQL and MinIO, installed with `helm install` in a separate namespace."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dressage.client import Client, Trust

from tests.servers.kubernetes import REGISTRY, TAG, Namespace, helm

RELEASE = "dressage"
VIEWER = "the-token-of-a-viewer"
CHART = "charts/dressage"
GRPC, METRICS, S3, POSTGRESQL, HTTP = 50051, 9090, 9000, 5432, 8080
API_HOST, CONSOLE_HOST = "api.dressage.test", "console.dressage.test"
SERVICES = ("orchestrator", "llm-agent", "judge", "renderer")
STATEFUL = ("orchestrator", "postgresql", "minio")
# trainer-sb3's image, where it was built: some gigabytes, so most runs go without.
SB3_IMAGE = os.environ.get("DRESSAGE_E2E_SB3_IMAGE", "")
# A trainer's image with the pack metaworld, by services/trainer/Dockerfile.pack.
METAWORLD_IMAGE = os.environ.get("DRESSAGE_E2E_METAWORLD_IMAGE", "")
SELECTOR = f"app.kubernetes.io/instance={RELEASE}"
# What the chart needs of a cluster as small as a laptop's: two cores, all pods and a training on them.
_LITTLE = {"requests": {"cpu": "20m", "memory": "64Mi"}}
_TRAINER = {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"cpu": "2", "memory": "2Gi"}}
# Clearly less than a supervisor and a learner need: just below it the kernel evicts code and reads it again instead of killing.
_TINY = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "112Mi"}}


def values(space: Namespace) -> dict[str, Any]:
    """What the tests set: images, little resources, short waits, and the scripted provider as the model's server."""
    created: dict[str, Any] = {
        "image": {"registry": REGISTRY.removesuffix("/"), "tag": TAG},
        "orchestrator": {
            "resources": _LITTLE,
            "env": {
                "DRESSAGE_ORCHESTRATOR_CHECKPOINT_SECONDS": "3",
                "DRESSAGE_ORCHESTRATOR_WAIT_SECONDS": "5",
                "DRESSAGE_ORCHESTRATOR_HELLO_SECONDS": "300",
                "DRESSAGE_ORCHESTRATOR_KUBERNETES_RELIST_SECONDS": "20",
            },
        },
        "auth": {"principalsSecret": "people"},
        "llmAgent": {
            "resources": _LITTLE,
            "apiKeysSecret": "llm-keys",
            "apiBase": f"http://provider.{space.name}.svc:8900/v1",
        },
        "judge": {"resources": _LITTLE},
        "renderer": {"resources": _LITTLE},
        "console": {"resources": _LITTLE},
        "ingress": {"enabled": True, "host": API_HOST, "console": {"host": CONSOLE_HOST}},
        "postgresql": {"resources": _LITTLE, "persistence": {"size": "1Gi"}},
        "minio": {"resources": _LITTLE, "persistence": {"size": "2Gi"}},
        "pools": {
            "cpu": {"resources": _TRAINER, "cores": 2},
            "tiny": {"resources": _TINY, "cores": 1, "backoffLimit": 0},
        },
        "networkPolicy": {
            "llmEgress": [
                {
                    "to": [{"podSelector": {"matchLabels": {"app": "provider"}}}],
                    "ports": [{"port": 8900, "protocol": "TCP"}],
                }
            ]
        },
    }
    if SB3_IMAGE:
        created["pools"]["sb3"] = {"image": SB3_IMAGE, "resources": _TRAINER, "cores": 2}
    if METAWORLD_IMAGE:
        created["pools"]["metaworld"] = {"image": METAWORLD_IMAGE, "resources": _TRAINER, "cores": 2}
    for name in ("postgresql", "minio"):
        given = os.environ.get(f"DRESSAGE_E2E_{name.upper()}_IMAGE")
        if given:  # else the chart's own, which the cluster pulls
            path, _, tag = given.rpartition(":")
            registry, _, repository = path.rpartition("/")
            created[name]["image"] = {"registry": registry, "repository": repository, "tag": tag}
    return created


@dataclass(frozen=True)
class Installation:
    """A release of the chart.

    :param given: the values that it was installed with.
    """

    space: Namespace
    given: dict[str, Any] = field(default_factory=dict)

    def name(self, component: str) -> str:
        """Name of a component's objects."""
        return f"{RELEASE}-{component}"

    def workload(self, component: str) -> str:
        """What a component's pods are made by."""
        return f"{'statefulset' if component in STATEFUL else 'deployment'}/{self.name(component)}"

    def pod(self, component: str) -> str:
        """Name of a component's pod that is not about to go."""
        result = self.pods(component)
        return str(next(pod["metadata"]["name"] for pod in result if "deletionTimestamp" not in pod["metadata"]))

    def pods(self, component: str) -> list[dict[str, Any]]:
        """All pods of a component."""
        selector = f"{SELECTOR},app.kubernetes.io/component={component}"
        pods: list[dict[str, Any]] = self.space.get("pods", selector=selector)
        return pods

    def secret(self, name: str, key: str) -> str:
        """A value of a Secret."""
        return base64.b64decode(self.space.get("secret", name)["data"][key]).decode()

    @property
    def token(self) -> str:
        """The public API's token, as the chart generated it."""
        return self.secret(self.name("auth"), "api-token")

    def ready(self, seconds: int = 300) -> None:
        """Waits until all services are."""
        self.space.rolled_out(
            *(self.workload(name) for name in ("postgresql", "minio", *SERVICES, "console")), seconds=seconds
        )

    def upgrade(self, changed: Mapping[str, Any]) -> None:
        """`helm upgrade` with values besides those of before."""
        helm(self.space, "upgrade", RELEASE, CHART, "--reuse-values", "--values", "-", text=json.dumps(changed))

    def authority(self, folder: Path) -> Path:
        """A file with the authority of the public API's certificate, as the chart generated it."""
        file = folder / "dressage-ca.crt"
        file.write_text(self.secret(self.name("api-tls"), "ca.crt"))
        return file

    @contextmanager
    def api(self) -> Iterator[str]:
        """The public API through a port-forward; host:port."""
        with self.space.forwarded(f"service/{self.name('orchestrator')}", GRPC) as address:
            yield address

    @contextmanager
    def client(self) -> Iterator[Client]:
        """A client of the public API."""
        with TemporaryDirectory() as folder, self.api() as address:
            trust = Trust(self.authority(Path(folder)))
            with Client.connect(address, token=self.token, trust=trust) as client:
                yield client


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def install(space: Namespace) -> Installation:
    """`helm install`, and waits until all is ready."""
    key = {"OPENAI_API_KEY": "sk-for-a-scripted-provider"}
    space.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "llm-keys"}, "stringData": key})
    people = {
        "principals.toml": f'[[principals]]\nname = "vera"\nrole = "viewer"\ntoken_sha256 = "{_digest(VIEWER)}"\n'
    }
    space.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "people"}, "stringData": people})
    given = values(space)
    helm(space, "install", RELEASE, CHART, "--values", "-", text=json.dumps(given))
    installation = Installation(space, given)
    installation.ready()
    return installation
