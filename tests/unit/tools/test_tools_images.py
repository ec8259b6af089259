"""`tools/images` with a stand-in for the builder, and the stages of services/Dockerfile for the six images."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.unit.chart import rendering

ROOT = Path(__file__).parents[3]
DIGEST = "sha256:" + "a1" * 32
SIX = ("orchestrator", "llm-agent", "judge", "renderer", "trainer", "console")


def stages() -> dict[str, str]:
    """The text of each stage of services/Dockerfile, by its name."""
    text = (ROOT / "services/Dockerfile").read_text()
    return {name: body for name, body in re.findall(r"^FROM \S+ AS (\S+)\n(.*?)(?=^FROM |\Z)", text, re.M | re.S)}


def built(
    tmp_path: Path, *names: str, builder: str, command: str = "build", prints: str = "", **variables: str
) -> list[str]:
    """Arguments of each build, or of another command, as the builder got them.

    :param prints: what the builder prints as the digest of an image.
    """
    program = tmp_path / builder
    digest = f'case $1 in image*) echo "{prints}";; esac\n'
    program.write_text(f'#!/bin/bash\n[ "$1" != {command} ] || echo "$*" >> {tmp_path}/{command}\n{digest}')
    program.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name not in ("REGISTRY", "TAG")}
    environment |= {"PATH": f"{tmp_path}:{os.environ['PATH']}", "BUILDER": builder, **(variables or {"TAG": "1"})}
    subprocess.run([ROOT / "tools/images", *names], env=environment, check=True, capture_output=True, timeout=60)
    return (tmp_path / command).read_text().splitlines()


@pytest.mark.parametrize("builder", ["docker", "buildah"])
def test_the_six_are_targets_that_share_layers(tmp_path: Path, builder: str) -> None:
    builds = built(tmp_path, builder=builder)
    for name, build in zip(SIX, builds, strict=True):
        assert build.endswith(f"-t dressage-{name}:1 -f services/Dockerfile --target {name} ."), build
        assert ("--layers" in build) == (builder == "buildah")


@pytest.mark.parametrize("registry", ["registry.example.org/dressage", "registry.example.org/dressage/"])
def test_images_are_pushed_under_the_names_of_the_chart(tmp_path: Path, registry: str) -> None:
    pushed = built(tmp_path, "--push", builder="docker", command="push", REGISTRY=registry, BASE_IMAGE=f"base@{DIGEST}")
    rendered = rendering.template("--set", f"image.registry={registry.rstrip('/')}").stdout
    names = set(re.findall(r"registry\.example\.org/[\w./-]+:[\w.]+", rendered))
    assert {line.removeprefix("push ") for line in pushed} == names and len(names) == len(SIX)


@pytest.mark.parametrize(
    ("builder", "printed"), [("docker", f"python@{DIGEST}"), ("podman", f"python@{DIGEST}"), ("buildah", DIGEST)]
)
@pytest.mark.parametrize(
    ("base", "name"),
    [
        ("", "docker.io/library/python"),
        ("localhost:5000/python:3.11", "localhost:5000/python"),
        ("h:5000/p", "h:5000/p"),
    ],
)
def test_all_images_of_a_run_stand_on_one_digest(
    tmp_path: Path, builder: str, printed: str, base: str, name: str
) -> None:
    builds = built(tmp_path, builder=builder, prints=printed, TAG="1", BASE_IMAGE=base)
    assert len(builds) == len(SIX)
    for build in builds:
        assert f"--build-arg BASE_IMAGE={name}@{DIGEST} " in build
        assert f"--label org.opencontainers.image.base.name={name}@{DIGEST} " in build


def test_images_on_a_tag_are_pushed_on_request_alone(tmp_path: Path) -> None:
    options = {"builder": "docker", "command": "push", "REGISTRY": "registry.example.org/dressage"}
    with pytest.raises(subprocess.CalledProcessError) as refused:
        built(tmp_path, "--push", **options)
    assert refused.value.returncode == 2 and b"BASE_IMAGE to a digest" in refused.value.stderr
    assert len(built(tmp_path, "--push", **options, BASE_BY_TAG="yes")) == len(SIX)


def test_other_trainers_have_files_of_their_own(tmp_path: Path) -> None:
    for name, build in zip(
        ("sb3", "gpu"), built(tmp_path, "trainer-sb3", "trainer-gpu", builder="docker"), strict=True
    ):
        assert f"-f services/trainer/Dockerfile.{name} ." in build and "--target" not in build
        assert (ROOT / f"services/trainer/Dockerfile.{name}").is_file()


@pytest.mark.parametrize("name", SIX)
def test_an_image_has_its_own_extra_and_is_not_root(name: str) -> None:
    text = (ROOT / "services/Dockerfile").read_text()
    assert f"\nFROM shared AS {name}\n" in text and f"\nFROM source AS {name}-code\n" in text
    stage, code = stages()[name], stages()[f"{name}-code"]
    folder = f"services/{name.replace('-', '_')}"
    assert re.findall(r"--extra (\S+)", stage) == [name]
    copied = re.findall(r"^COPY (?:--from=)?(\S+)", stage, re.M)
    assert [entry for entry in copied if not entry.endswith("/NOTICE")] == [f"{name}-code"]
    page = ["services/console/dressage_console", "--from=console-page"]
    assert re.findall(r"^COPY (\S+)", code, re.M) == (page if name == "console" else [folder])
    assert re.findall(r"^USER (\S+)", stage, re.M) == ["10001:10001"]
    assert f'"dressage_{name.replace("-", "_")}"' in stage and (ROOT / folder).is_dir()


def test_the_page_is_built_from_its_lock_and_a_release_needs_it() -> None:
    page, code = stages()["console-page"], stages()["console-code"]
    assert "RUN tools/console build" in page
    assert "npm ci" in (ROOT / "tools/console").read_text() and "DRESSAGE_RELEASE=1" in code
    # The page and the generated API of this machine, which may be of another version, stay outside.
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert {"services/console/dressage_console/static", "services/console/web/src/gen", "**/node_modules"} <= set(
        ignored
    )


def test_packages_are_checked_by_hash() -> None:
    for path in ("services/Dockerfile", "services/install-packages"):
        text = (ROOT / path).read_text().replace("\\\n", " ")
        installs = re.findall(r"pip install [^\n&]*", text)
        assert installs
        # The wheel that the build just made is the only file without a hash.
        assert all(
            "--require-hashes" in line or "--offline dist/" in line.replace(" --compile-bytecode", "")
            for line in installs
        )
    assert "--extra" not in stages()["shared"]
