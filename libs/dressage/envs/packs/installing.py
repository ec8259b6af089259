"""Install an environment pack: pinned, hash-checked packages in a folder of their own.

The folder appears whole or not at all. `uv` installs it if it is there, because it is several times as fast; otherwise `pip`
of a temporary virtual environment does.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from dressage.envs.packs.process import ASSETS, interpreter
from dressage.envs.packs.registry import MARKER, PACKAGES, Pack, folder_of, problem_of
from dressage.errors import FailedPrecondition, Unavailable

_SECONDS = 1800.0


def install(pack: Pack, *, again: bool = False, say: Callable[[str], None] = lambda line: None) -> Path:
    """Install a pack, unless it is installed already; return its folder. Assets in the folder stay.

    :param again: replace an installation that appears to be whole.
    :param say: called with a line about each stage.
    :raises Unavailable: if the packages cannot be fetched or do not match their hashes.
    :raises FailedPrecondition: if the pack needs another version of Python, which is not there or has no ``venv``.
    :raises OSError: if the folder cannot be written.
    """
    folder = folder_of(pack.name)
    folder.parent.mkdir(parents=True, exist_ok=True)
    if not again and not problem_of(pack.name):
        say(f"{pack.name} is installed in {folder}")
        return folder
    python = interpreter(pack.name)
    with tempfile.TemporaryDirectory(prefix=f".{pack.name}-", dir=folder.parent) as temporary:
        new = Path(temporary) / "new"
        new.mkdir()
        requirements = Path(temporary) / "requirements.txt"
        requirements.write_bytes(pack.requirements)
        say(f"installing {pack.name} ({pack.title}), about {pack.megabytes} MB on disk")
        _fetch(requirements, new / PACKAGES, Path(temporary), python)
        (new / MARKER).write_text(json.dumps(pack.identity), "utf-8")
        if (folder / ASSETS).is_dir():  # the user's
            (folder / ASSETS).rename(new / ASSETS)
        shutil.rmtree(folder, ignore_errors=True)
        try:
            new.rename(folder)
        except OSError:
            if problem_of(pack.name):  # otherwise another process has just installed it
                raise
    say(f"{pack.name} is installed in {folder}")
    return folder


def _fetch(requirements: Path, target: Path, temporary: Path, python: str) -> None:
    """Install packages for an interpreter, whose version need not be that of this process."""
    options = ["--require-hashes", "--no-deps", "--target", str(target), "-r", str(requirements)]
    uv = shutil.which("uv")
    if uv is not None:
        command = [uv, "pip", "install", "--quiet", "--python", python, *options]
    else:
        command = [_pip_python(python, temporary / "pip"), "-m", "pip", "install", "--quiet"]
        command += ["--disable-pip-version-check", *options]
    done = _run(command)
    if done.returncode != 0:
        raise Unavailable(f"the packages cannot be installed:\n{_tail(done)}", reason="PACK_NOT_FETCHED")


def _pip_python(python: str, folder: Path) -> str:
    """Make a virtual environment with pip; return its interpreter."""
    done = _run([python, "-I", "-m", "venv", "--symlinks", str(folder)])
    if done.returncode != 0:
        message = (
            f"{python} makes no virtual environment. Install its modules venv and ensurepip, or uv:\n{_tail(done)}"
        )
        raise FailedPrecondition(message, reason="PACK_PYTHON_MISSING")
    return str(folder / "bin" / "python")


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"the packages did not arrive in {_SECONDS:g} s", reason="PACK_NOT_FETCHED") from error


def _tail(done: subprocess.CompletedProcess[str]) -> str:
    return "\n".join((done.stderr or done.stdout).strip().splitlines()[-8:])
