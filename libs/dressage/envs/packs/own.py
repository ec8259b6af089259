"""Installations of the user's own that serve as a pack, where only the user can accept the licence of the packages.

`dressage envs install isaaclab --from PYTHON` examines an installation and records where it is. Isaac Lab 2.3 on Isaac Sim 5.1
has not been tried.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dressage.envs.packs.process import KERNELS
from dressage.envs.packs.registry import MARKER, MODELS, OWN, PACKAGES, Own, Pack, folder_of
from dressage.errors import InvalidArgument

FIELD = "--from"
_SECONDS = 120.0
_EULA = "OMNI_KIT_ACCEPT_EULA"
"""Isaac Sim's variable for the acceptance of its licence."""
_EXAMINE = """import importlib.metadata, importlib.util, json, os, sys
package, *modules = sys.argv[1:]
try:
    version = importlib.metadata.version(package)
except importlib.metadata.PackageNotFoundError:
    version = ""
print(json.dumps({
    "interpreter": sys.executable,
    "python": "%d.%d" % sys.version_info[:2],
    "version": version,
    "missing": [name for name in modules if importlib.util.find_spec(name) is None],
    "import_path": [entry for entry in sys.path if os.path.isdir(entry)],
}))
"""


@dataclass(frozen=True)
class Accepted:
    """Which installations may serve as a pack.

    :param package: the distribution whose version counts.
    :param version: its major and minor version.
    :param python: minor version of Python.
    :param modules: what must be installed there, with the command that installs each.
    :param gigabytes: memory limit of its processes.
    """

    package: str
    version: str
    python: str
    modules: Mapping[str, str]
    gigabytes: int


_ISAAC = "pip install 'isaaclab[isaacsim]==2.3.*' --extra-index-url https://pypi.nvidia.com"
ACCEPTED: Mapping[str, Accepted] = {
    "isaaclab": Accepted(
        "isaaclab",
        "2.3",
        "3.11",
        {
            "isaacsim": _ISAAC,
            "torch": _ISAAC,
            "gymnasium": _ISAAC,
            "numpy": _ISAAC,
            "safetensors": "pip install safetensors",
        },
        gigabytes=32,
    )
}


def use(pack: Pack, interpreter: str) -> Own:
    """Record an installation as the pack, in the place of one that Dressage made. Assets in the folder stay.

    :raises InvalidArgument: if it cannot serve as the pack.
    :raises OSError: if the folder cannot be written.
    """
    own = examine(pack, interpreter)
    folder = folder_of(pack.name)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{MARKER}-", dir=folder) as temporary:
        new = Path(temporary) / MARKER
        new.write_text(json.dumps({OWN: asdict(own)}), "utf-8")
        new.rename(folder / MARKER)
    for part in (PACKAGES, KERNELS, MODELS):
        shutil.rmtree(folder / part, ignore_errors=True)
    return own


def examine(pack: Pack, interpreter: str) -> Own:
    """Return an installation that can serve as the pack.

    :param interpreter: path of its Python.
    :raises InvalidArgument: naming what is wrong, and the remedy.
    """
    accepted = ACCEPTED.get(pack.name)
    if accepted is None:
        raise InvalidArgument(
            field=FIELD,
            problem=f"the pack {pack.name} cannot be an installation of yours",
            value=interpreter,
            expected=f"one of the packs {', '.join(ACCEPTED)}",
            remedy=f"Install it without the option: dressage envs install {pack.name}",
        )
    expected = f"the Python {accepted.python} of an installation of {accepted.package} {accepted.version}"
    answer = _answer(interpreter, accepted, expected)
    if answer["python"] != accepted.python:
        remedy = f"Make an environment with Python {accepted.python} and install there: {_ISAAC}"
        raise _wrong(f"it is Python {answer['python']}", interpreter, expected, remedy)
    if not answer["version"]:
        raise _wrong(f"{accepted.package} is not installed there", interpreter, expected, f"Run there: {_ISAAC}")
    if not f"{answer['version']}.".startswith(f"{accepted.version}."):
        problem = f"it has {accepted.package} {answer['version']}"
        raise _wrong(problem, interpreter, expected, f"Run there: {_ISAAC}")
    if answer["missing"]:
        commands = dict.fromkeys(accepted.modules[name] for name in answer["missing"])
        problem = f"{', '.join(answer['missing'])} not installed there"
        raise _wrong(problem, interpreter, expected, f"Run there: {'; '.join(commands)}")
    variables = {name: os.environ[name] for name in (_EULA,) if name in os.environ}
    return Own(answer["interpreter"], answer["version"], tuple(answer["import_path"]), accepted.gigabytes, variables)


def _answer(interpreter: str, accepted: Accepted, expected: str) -> dict[str, Any]:
    path = Path(interpreter).expanduser().absolute()  # not resolved: the link of a virtual environment leads out of it
    if not os.access(path, os.X_OK) or path.is_dir():
        raise _wrong("there is no such program", interpreter, expected, "Give the path of python in its environment.")
    command = [str(path), "-I", "-c", _EXAMINE, accepted.package, *accepted.modules]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
        answer: dict[str, Any] = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        problem = f"it does not run as a Python ({type(error).__name__})"
        raise _wrong(problem, interpreter, expected, "Give the path of python in its environment.") from error
    return answer


def _wrong(problem: str, interpreter: str, expected: str, remedy: str) -> InvalidArgument:
    return InvalidArgument(
        field=FIELD, problem=problem, value=interpreter, expected=expected, remedy=remedy, reason="PACK_PYTHON_WRONG"
    )
