from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
GUIDE = ROOT / "docs" / "own-languages.md"
DRESSAGE = Path(sys.executable).with_name("dressage")

Run = Callable[[str], subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("own-languages")


@pytest.fixture(scope="module")
def run(home: Path) -> Run:
    """Run a command line with a data folder of its own; relative paths of files to write are in it."""

    def command(line: str) -> subprocess.CompletedProcess[str]:
        words = [str(DRESSAGE), *shlex.split(line, comments=True)[1:]]
        words = [str(home / word) if word in ("clean.py", "run.png") else word for word in words]
        environment = {
            **os.environ,
            "DRESSAGE_HOME": str(home),
            "HOME": str(home),
            "XDG_CACHE_HOME": str(home / "cache"),
        }
        environment.pop("DRESSAGE_ENVIRONMENTS", None)
        return subprocess.run(
            words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500, check=False
        )

    return command


@pytest.fixture(scope="session")
def guide() -> list[str]:
    """The command lines of the first block of the guide."""
    (block, *_) = re.findall(r"^```sh\n(.*?)^```", GUIDE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return [line for line in block.splitlines() if line.startswith("dressage ")]


@pytest.fixture(scope="module")
def vacuum(run: Run, guide: list[str], home: Path) -> Path:
    """The folder of environments with the registered example."""
    registered = run(guide[0])
    assert registered.returncode == 0, registered.stderr
    assert registered.stdout == "language vacuum: vacuum/Corridor, vacuum/CleanRoom\n"
    return home / "environments"
