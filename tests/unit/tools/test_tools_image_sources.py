"""What the Dockerfiles copy suffices to build the wheel: hatchling builds it from these files alone, as in the image."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FILES = ("services/Dockerfile", "services/trainer/Dockerfile.gpu", "services/trainer/Dockerfile.sb3")
BUILDS = "python -m hatchling build"


@dataclass(frozen=True)
class Stage:
    """A stage of a Dockerfile.

    :param base: the stage or image that it begins with.
    """

    name: str
    base: str
    text: str


def stages(file: str) -> Mapping[str, Stage]:
    sections = re.findall(r"^FROM (\S+)(?: AS (\S+))?\n(.*?)(?=^FROM |\Z)", (ROOT / file).read_text(), re.M | re.S)
    return {name: Stage(name, base, text) for base, name, text in sections if name}


def copied(stage: Stage, known: Mapping[str, Stage]) -> Iterator[tuple[list[str], str]]:
    """Sources in the repository and the target of each COPY before the wheel is built, those of the stages below first."""
    if stage.base in known:
        yield from copied(known[stage.base], known)
    for line in re.findall(r"^COPY (?!--)(.+)$", stage.text.partition(BUILDS)[0], re.M):
        *sources, target = line.split()
        yield sources, target


CASES = [(file, name) for file in FILES for name, stage in stages(file).items() if BUILDS in stage.text]


@pytest.mark.parametrize(("file", "name"), CASES)
def test_the_wheel_of_an_image_is_built_from_what_its_stage_copies(file: str, name: str, tmp_path: Path) -> None:
    known = stages(file)
    for sources, target in copied(known[name], known):
        for source in sources:
            at = tmp_path / target if not target.endswith("/") else tmp_path / target / Path(source).name
            at.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / source).is_dir():
                unwanted = shutil.ignore_patterns("node_modules", "__pycache__", "static")
                shutil.copytree(ROOT / source, at, ignore=unwanted, dirs_exist_ok=True)
            else:
                shutil.copy(ROOT / source, at)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "dist"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    packages = {entry.partition("/")[0] for entry in zipfile.ZipFile(wheel).namelist()}
    service = name.removesuffix("-code").replace("-", "_") if name != "build" else "trainer"
    assert {"dressage", f"dressage_{service}"} <= packages
