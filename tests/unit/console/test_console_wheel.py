"""The wheel contains the console's page if it is built, and a release's build fails without it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
STATIC = "services/console/dressage_console/static"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What the build reads, without a page."""
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "libs" / "dressage").mkdir(parents=True)
    (tmp_path / "libs" / "dressage" / "__init__.py").touch()
    package = tmp_path / "services" / "console" / "dressage_console"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    shutil.copy(ROOT / "services" / "console_assets.py", tmp_path / "services")
    (tmp_path / ".gitignore").write_text("static/\n")
    return tmp_path


def build(tree: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "dist"],
        cwd=tree,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=100,
    )


def page_files(tree: Path) -> list[str]:
    (wheel,) = (tree / "dist").glob("*.whl")
    return sorted(name for name in zipfile.ZipFile(wheel).namelist() if "/static/" in name)


def test_a_wheel_without_a_page_is_built_with_a_warning(tree: Path):
    pytest.importorskip("hatchling")
    built = build(tree)
    assert built.returncode == 0 and "make console" in built.stdout + built.stderr
    assert page_files(tree) == []


def test_a_release_without_a_page_fails_and_names_the_remedy(tree: Path):
    pytest.importorskip("hatchling")
    built = build(tree, DRESSAGE_RELEASE="1")
    assert built.returncode != 0 and "make console" in built.stderr


def test_a_wheel_contains_the_page_that_git_ignores(tree: Path):
    pytest.importorskip("hatchling")
    (tree / STATIC / "assets").mkdir(parents=True)
    (tree / STATIC / "index.html").write_text("page")
    (tree / STATIC / "assets" / "a.js.br").write_bytes(b"packed")
    assert build(tree, DRESSAGE_RELEASE="1").returncode == 0
    assert page_files(tree) == ["dressage_console/static/assets/a.js.br", "dressage_console/static/index.html"]
