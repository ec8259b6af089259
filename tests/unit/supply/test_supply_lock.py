"""What is installed is what was locked: every file by hash, every source known, every image by digest where one is set."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.unit.chart import rendering

ROOT = Path(__file__).parents[3]
LOCK = tomllib.loads((ROOT / "uv.lock").read_text())
HASH = re.compile(r"sha256:[0-9a-f]{64}\Z")
DIGEST = "sha256:" + "0123456789abcdef" * 4


def test_every_file_of_the_lock_has_a_hash_and_a_known_source() -> None:
    # triton is overridden to be installed nowhere.
    packages = [entry for entry in LOCK["package"] if entry["name"] not in ("dressage", "triton")]
    assert len(packages) > 150
    for package in packages:
        assert package["source"] == {"registry": "https://pypi.org/simple"}, package["name"]
        files = [*([package["sdist"]] if "sdist" in package else []), *package.get("wheels", [])]
        assert files and all(HASH.match(file["hash"]) for file in files), package["name"]
        assert all(file["url"].startswith("https://files.pythonhosted.org/") for file in files), package["name"]


@pytest.mark.parametrize("path", ["services/build-requirements.txt", "tools/audit-requirements.txt"])
def test_programs_outside_of_the_lock_have_hashes(path: str) -> None:
    text = (ROOT / path).read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert lines and all("==" in line and re.findall(r"--hash=sha256:[0-9a-f]{64}", line) for line in lines)


def test_environment_packs_have_hashes() -> None:
    for path in (ROOT / "libs/dressage/envs/packs/data").glob("*.txt"):
        text = path.read_text().replace("\\\n", " ")
        lines = [line for line in text.splitlines() if re.match(r"[A-Za-z0-9]", line)]
        assert lines and all("--hash=sha256:" in line for line in lines), path.name


def test_the_bill_of_materials_lists_every_locked_package(tmp_path: Path) -> None:
    target = tmp_path / "bom.json"
    done = subprocess.run([ROOT / "tools/sbom", "local", target], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    bom = json.loads(target.read_text())
    assert bom["bomFormat"] == "CycloneDX"
    versions = {(entry["name"], entry["version"]) for entry in LOCK["package"] if "version" in entry}
    components = {(entry["name"], entry["version"]) for entry in bom["components"]}
    assert components <= versions and {"jax", "litellm", "mujoco", "grpcio"} <= {name for name, _ in components}
    assert not {"pytest", "ruff"} & {name for name, _ in components}


@pytest.mark.parametrize("service", ["orchestrator", "llmAgent", "judge", "renderer", "trainer", "console"])
def test_a_digest_replaces_the_tag_of_an_image(service: str) -> None:
    rendered = rendering.template(
        "--set", "image.registry=r.example.org/d", "--set", f"{service}.digest={DIGEST}"
    ).stdout
    name = re.sub(r"([A-Z])", lambda match: "-" + match.group(1).lower(), service)
    assert f"r.example.org/d/dressage-{name}@{DIGEST}" in rendered
    assert not re.search(rf"dressage-{name}:[0-9]", rendered)


@pytest.mark.parametrize("store", ["postgresql", "minio"])
def test_a_digest_replaces_the_tag_of_a_store(store: str) -> None:
    rendered = rendering.template("--set", f"{store}.image.digest={DIGEST}").stdout
    assert re.search(rf"/(postgres|minio)@{DIGEST}", rendered)


def test_a_digest_of_another_form_is_refused() -> None:
    assert rendering.template("--set", "judge.digest=latest").returncode != 0


def test_base_images_may_be_given_by_digest() -> None:
    for path in ("services/Dockerfile", "services/trainer/Dockerfile.sb3", "services/trainer/Dockerfile.gpu"):
        text = (ROOT / path).read_text()
        assert "ARG BASE_IMAGE=" in text and not re.search(r"^FROM (?!\$\{BASE_IMAGE\})\S+[:/]", text, re.M)
