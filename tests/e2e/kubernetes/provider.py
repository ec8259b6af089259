"""The scripted model provider as a pod: the one thing that these tests do not take from the real world."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

from tests.servers.kubernetes import Namespace, image

PORT = 8900
_FAKES = Path(__file__).parents[2] / "fakes"
SECURITY = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "runAsUser": 10001,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


class Provider:
    """Answers by a script of `tests/fakes/scripts`; any image with Python will do for it.

    :param name: of its objects; the installation asks the one called ``provider``.
    """

    def __init__(self, space: Namespace, script: str, *, name: str = "provider") -> None:
        self._space = space
        self._script = script
        self._name = name

    def start(self) -> None:
        """Starts it, or starts it anew with the script from its beginning."""
        space = self._space
        space.run("delete", "pod", self._name, "--ignore-not-found", "--grace-period=1", timeout=120)
        files = {name: _FAKES / name for name in ("openai_server.py", "search_authors.py")}
        files["script.py"] = _FAKES / "scripts" / self._script
        config = {name: path.read_text() for name, path in files.items()}
        service = {"selector": {"app": self._name}, "ports": [{"name": "http", "port": PORT}]}
        space.apply(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": self._name}, "data": config},
            {"apiVersion": "v1", "kind": "Service", "metadata": {"name": self._name}, "spec": service},
            self._pod(),
        )
        space.run("wait", "--for=condition=Ready", f"pod/{self._name}", "--timeout=300s", timeout=330)

    def counts(self) -> dict[str, int]:
        """Requests so far, those without an answer, and answers left."""
        with (
            self._space.forwarded(f"pod/{self._name}", PORT) as address,
            urllib.request.urlopen(f"http://{address}/", timeout=30) as answer,
        ):
            result: dict[str, int] = json.load(answer)
            return result

    def _pod(self) -> dict[str, Any]:
        program = ["python", "/provider/openai_server.py", "--script", "/provider/script.py"]
        container = {
            "name": "provider",
            "image": image("judge"),
            "imagePullPolicy": "IfNotPresent",
            "command": [*program, "--host", "0.0.0.0", "--port", str(PORT)],
            "readinessProbe": {"httpGet": {"path": "/", "port": PORT}, "periodSeconds": 1, "timeoutSeconds": 5},
            "securityContext": SECURITY,
            "volumeMounts": [{"name": "program", "mountPath": "/provider", "readOnly": True}],
        }
        spec = {
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
            "volumes": [{"name": "program", "configMap": {"name": self._name}}],
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": self._name, "labels": {"app": self._name}},
            "spec": spec,
        }
