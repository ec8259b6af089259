"""How this installation of Dressage gets more packages: the command that errors and `dressage doctor` print.

In a checkout whose environment is ``.venv``, the command is `tools/uv sync`; elsewhere it is pip. This module imports only the
standard library, because errors of every layer use it.
"""

from __future__ import annotations

import shlex
import sys
from importlib import util
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_CPU_TORCH = "--extra-index-url https://download.pytorch.org/whl/cpu"
"""The index of PyTorch with builds for the CPU; PyPI's build has gigabytes of GPU libraries."""
_SB3 = ("torch", "stable_baselines3")


def install_command(extra: str) -> str:
    """Return the command that installs an extra of the package, as this installation was made.

    :param extra: a name of `[project.optional-dependencies]`, such as ``local`` or ``sb3``.
    """
    return command_for(extra, root=_ROOT, prefix=Path(sys.prefix), folder=Path.cwd())


def command_for(extra: str, *, root: Path, prefix: Path, folder: Path) -> str:
    """Return the command for an installation.

    :param root: the checkout, if the package is in one.
    :param prefix: the environment of Python.
    :param folder: the current folder.
    """
    uv = root / "tools" / "uv"
    if uv.is_file() and prefix.resolve() == (root / ".venv").resolve():
        program = "tools/uv" if folder.resolve() == root.resolve() else shlex.quote(str(uv))
        return f"{program} sync --inexact --no-default-groups --extra {extra}"
    index = f" {_CPU_TORCH}" if extra == "sb3" else ""
    return f"pip install 'dressage[{extra}]'{index}"


def has_sb3() -> bool:
    """Return whether torch and Stable-Baselines3 are installed, without importing them."""
    return all(util.find_spec(name) is not None for name in _SB3)
