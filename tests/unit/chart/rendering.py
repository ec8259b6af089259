"""Renders the chart as `helm template` does, and reads what came out."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts" / "dressage"
HELM = str(Path(sys.executable).with_name("helm"))
SCENARIOS = sorted(path.name.removesuffix("-values.yaml") for path in (CHART / "ci").glob("*-values.yaml"))
CUSTOM_KINDS = frozenset({"ServiceMonitor", "PodMonitor", "PrometheusRule", "Certificate"})
NAMESPACE = "lab"

Manifest = dict[str, Any]


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs helm."""
    return subprocess.run([HELM, *arguments], capture_output=True, text=True, timeout=60)


def template(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`helm template` of a release `r`, on a cluster with Prometheus's operator."""
    api = ("--api-versions", "monitoring.coreos.com/v1")
    return helm("template", "r", str(CHART), "--namespace", NAMESPACE, *api, *arguments)


@cache
def rendered(scenario: str) -> tuple[Manifest, ...]:
    """The manifests of a scenario of `ci/`."""
    done = template("--values", str(CHART / "ci" / f"{scenario}-values.yaml"))
    assert done.returncode == 0, done.stderr
    return tuple(entry for entry in yaml.safe_load_all(done.stdout) if entry)


def of_kind(scenario: str, kind: str) -> list[Manifest]:
    """A scenario's manifests of a kind."""
    return [entry for entry in rendered(scenario) if entry["kind"] == kind]


def pods(scenario: str) -> Iterator[tuple[str, Manifest]]:
    """Name and pod template of everything that makes pods."""
    for entry in rendered(scenario):
        if entry["kind"] == "Pod":
            yield entry["metadata"]["name"], entry
        elif "template" in entry.get("spec", {}):
            yield entry["metadata"]["name"], entry["spec"]["template"]


def containers(pod: Manifest) -> list[Manifest]:
    """All containers of a pod, those for its start too."""
    return [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]


def component(manifest: Manifest) -> str:
    """The component that an object belongs to."""
    return str(manifest["metadata"]["labels"].get("app.kubernetes.io/component", ""))


def selects(selector: dict[str, str], pod: Manifest) -> bool:
    """Whether labels select a pod."""
    return selector.items() <= pod["metadata"]["labels"].items()
