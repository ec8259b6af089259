"""Every scenario of the chart before a real API server (`KUBECONFIG`), which admits all of it and changes nothing."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.unit.chart.rendering import CHART, CUSTOM_KINDS, SCENARIOS, helm

pytestmark = pytest.mark.cluster

KUBECTL = str(Path(sys.executable).with_name("kubectl"))


def kubectl(*arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([KUBECTL, *arguments], input=text, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def namespace() -> Iterator[str]:
    """A namespace that admits restricted pods only, and warns of workloads that would create others."""
    if not os.environ.get("KUBECONFIG"):
        pytest.skip("KUBECONFIG names no cluster")
    name = f"dressage-chart-{secrets.token_hex(3)}"
    labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    done = kubectl("apply", "-f", "-", text=json.dumps(manifest))
    assert done.returncode == 0, done.stderr
    yield name
    kubectl("delete", "namespace", name, "--wait=false")


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_api_server_admits_every_manifest(scenario: str, namespace: str) -> None:
    values = str(CHART / "ci" / f"{scenario}-values.yaml")
    done = helm("template", "r", str(CHART), "--namespace", namespace, "--values", values)
    assert done.returncode == 0, done.stderr
    manifests = [m for m in yaml.safe_load_all(done.stdout) if m and m["kind"] not in CUSTOM_KINDS]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests})
    admitted = kubectl("apply", "--dry-run=server", "--validate=strict", "--namespace", namespace, "-f", "-", text=text)
    assert admitted.returncode == 0, admitted.stderr
    assert "Warning" not in admitted.stderr, admitted.stderr
    assert len(admitted.stdout.splitlines()) == len(manifests)
