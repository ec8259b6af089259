"""Pins outside of the lock: the chart's images by version and digest, and renovate.json, which proposes updates of all pins."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.chart import rendering

ROOT = Path(__file__).parents[3]
RENOVATE: dict[str, Any] = json.loads((ROOT / "renovate.json").read_text())
# The files that a manager of Renovate reads by default: https://docs.renovatebot.com/modules/manager/
READS = {
    "pep621": r"(^|/)pyproject\.toml$",
    "npm": r"(^|/)package\.json$",
    "dockerfile": r"(^|/|\.)([Dd]ocker|[Cc]ontainer)file$|(^|/)([Dd]ocker|[Cc]ontainer)file[^/]*$",
    "helm-values": r"(^|/)values\.ya?ml$",
    "pip_requirements": r"(^|/)[\w-]*requirements([-._]\w+)?\.(txt|pip)$",
    "github-actions": r"(^|/)(workflow-templates|\.(?:github|gitea|forgejo)/(?:workflows|actions))/.+\.ya?ml$",
}
IMAGE = re.compile(r"\b(docker\.io|quay\.io|ghcr\.io|gcr\.io|registry\.k8s\.io|nvcr\.io)/\w")
# Text for people, stand-ins of tests, and what Renovate and the lock say about themselves.
TEXT = re.compile(r"\.md$|^tests/|^charts/dressage/README|^renovate\.json$|^CHANGELOG|^docs/|^benchmarks/recorded/")


def tracked() -> list[str]:
    """The files of the repository."""
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.splitlines()


def managers(path: str) -> set[str]:
    """Managers that read a file, among those that are switched on."""
    return {name for name in RENOVATE["enabledManagers"] if re.search(READS[name], path)}


@pytest.mark.parametrize("store", ["postgresql", "minio"])
def test_a_store_is_pinned_by_version_and_digest(store: str) -> None:
    image = yaml.safe_load((rendering.CHART / "values.yaml").read_text())[store]["image"]
    assert re.fullmatch(r"[\w.-]*\d\.?[\w.-]+@sha256:[0-9a-f]{64}", image["tag"]), image["tag"]
    assert image["tag"].split("@")[0] not in ("17", "latest")
    reference = f"{image['registry']}/{image['repository']}:{image['tag']}"
    assert f'image: "{reference}"' in rendering.template().stdout


@pytest.mark.parametrize("store", ["postgresql", "minio"])
def test_a_tag_of_the_user_is_not_overruled_by_the_default_digest(store: str) -> None:
    rendered = rendering.template("--set", f"{store}.image.tag=1.2").stdout
    assert re.search(rf'image: "\S+/{"postgres" if store == "postgresql" else store}:1\.2"', rendered)


@pytest.mark.parametrize(
    ("path", "manager"),
    [
        ("pyproject.toml", "pep621"),
        ("services/console/web/package.json", "npm"),
        ("charts/dressage/values.yaml", "helm-values"),
        ("tools/audit-requirements.txt", "pip_requirements"),
        ("services/build-requirements.txt", "pip_requirements"),
        (".github/workflows/test.yaml", "github-actions"),
    ],
)
def test_updates_cover_pins(path: str, manager: str) -> None:
    assert managers(path) == {manager}
    assert (ROOT / path).is_file() or path.startswith(".github/")


def test_updates_cover_every_dockerfile_and_every_image() -> None:
    files = tracked()
    dockerfiles = [path for path in files if "Dockerfile" in path]
    assert len(dockerfiles) >= 7 and all(managers(path) == {"dockerfile"} for path in dockerfiles)
    assert not [path for path in files if "/workflows/" in path and not managers(path)]
    named = {
        path
        for path in files
        if not TEXT.search(path)
        and (ROOT / path).is_file()
        and IMAGE.search(
            "\n".join(
                line
                for line in (ROOT / path).read_text("utf-8", errors="replace").splitlines()
                if not line.lstrip().startswith("#")
            )
        )
    }
    assert "services/Dockerfile" in named and "charts/dressage/values.yaml" in named
    assert {path for path in named if not managers(path)} == set()


def test_a_major_version_of_the_database_is_not_proposed() -> None:
    (rule,) = [rule for rule in RENOVATE["packageRules"] if "docker.io/library/postgres" in str(rule)]
    assert rule["matchUpdateTypes"] == ["major"] and rule["enabled"] is False


@pytest.mark.parametrize(
    ("values", "cidrs", "ports"),
    [
        ((), ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"], [443, 6443]),
        (("cidrs={192.0.2.10/32,10.96.0.1/32}",), ["192.0.2.10/32", "10.96.0.1/32"], [443, 6443]),
        (("cidrs={2001:db8::1/128}", "ports={8443}"), ["2001:db8::1/128"], [8443]),
    ],
)
def test_the_api_server_is_reached_as_far_as_it_is_known(
    values: tuple[str, ...], cidrs: list[str], ports: list[int]
) -> None:
    options = [part for value in values for part in ("--set", f"networkPolicy.apiServer.{value}")]
    documents = yaml.safe_load_all(rendering.template(*options).stdout)
    policies = [entry for entry in documents if entry and entry["kind"] == "NetworkPolicy"]
    orchestrator = next(entry for entry in policies if entry["metadata"]["name"].endswith("-orchestrator"))
    blocks = [
        ([peer["ipBlock"]["cidr"] for peer in rule["to"]], [port["port"] for port in rule["ports"]])
        for rule in orchestrator["spec"]["egress"]
        if all("ipBlock" in peer for peer in rule["to"])
    ]
    assert blocks == [(cidrs, ports)]


def test_owners_are_named_for_paths_that_exist() -> None:
    lines = [line for line in (ROOT / "CODEOWNERS").read_text().splitlines() if line and not line.startswith("#")]
    paths = [line.split()[0] for line in lines]
    assert paths[0] == "*" and all(len(line.split()) == 2 for line in lines)
    assert [path for path in paths[1:] if not (ROOT / path.lstrip("/")).exists()] == []
