"""The process of a pack: its interpreter, and what it may import, which is the standard library, the pack's packages and
Dressage itself."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from dressage.envs.packs.registry import PACKS, folder_of, installed_packages
from dressage.errors import FailedPrecondition

KERNELS = "kernels"
"""Folder of compiled kernels in a pack's folder."""
ASSETS = "assets"
"""Folder of assets in a pack's folder, which the user fills."""
DEVICE = "DRESSAGE_DEVICE"
"""Variable with the device of a batched simulator, in Warp's words."""
GPU = "cuda:0"
"""The device of a simulator that uses a GPU."""
_KERNELS = "DRESSAGE_KERNELS"
ASSET_ROOT = "ISAACSIM_ASSET_ROOT"
"""Variable with the folder of Isaac Lab's assets."""
_SECONDS = 60.0
_PATHS = """import json, sys, sysconfig
paths = sysconfig.get_paths()
print(json.dumps([sys.executable, paths["stdlib"], paths["platstdlib"], paths["stdlib"] + "/lib-dynload"]))
"""
_OURS = ("dressage", "dressage_trainer")
"""What a pack's process imports of ours. The renderer, which draws only, has no trainer."""
_LINKS = "dressage"


def import_path(name: str) -> tuple[str, ...]:
    """Return the folders for ``sys.path`` of a pack's process.

    :raises FailedPrecondition: if the pack is not installed.
    """
    packages = installed_packages(name)
    _, standard = _interpreter(PACKS[name].python)
    return tuple(dict.fromkeys([*standard, str(packages), str(_links(folder_of(name)))]))


def interpreter(name: str) -> str:
    """Return the interpreter of a pack's process.

    :raises FailedPrecondition: if the pack needs another version of Python, which is not there.
    """
    return _interpreter(PACKS[name].python)[0]


def variables(name: str) -> dict[str, str]:
    """Return the variables of a pack's process."""
    folders = {_KERNELS: KERNELS, ASSET_ROOT: ASSETS}
    present = {variable: folder_of(name) / folder for variable, folder in folders.items()}
    return {variable: str(folder) for variable, folder in present.items() if folder.is_dir()}


@functools.cache
def _interpreter(version: str) -> tuple[str, tuple[str, ...]]:
    """Return an interpreter and the folders of its standard library.

    :param version: such as ``3.12``; empty: the interpreter that runs Dressage.
    """
    current = f"{sys.version_info.major}.{sys.version_info.minor}"
    path = sys.executable if version in ("", current) else shutil.which(f"python{version}")
    command = [path or "", "-I", "-c", _PATHS]  # a launcher on PATH may stand for another file, or for none
    answer = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False) if path else None
    if answer is None or answer.returncode != 0:
        message = f"the pack needs Python {version}, which PATH does not offer. Put python{version} on PATH where trainers run"
        raise FailedPrecondition(message, reason="PACK_PYTHON_MISSING", metadata={"python": version})
    executable, *standard = json.loads(answer.stdout)
    return executable, tuple(standard)


def readable(name: str) -> tuple[Path, ...]:
    """Return what a pack's process also reads: Dressage's packages, to which links of `import_path` lead, kernels, assets."""
    return (*_packages().values(), folder_of(name) / KERNELS, folder_of(name) / ASSETS)


def _links(folder: Path) -> Path:
    """Return a folder with links to Dressage's packages: their own folder has packages that disagree with the pack's."""
    links = folder / _LINKS
    links.mkdir(exist_ok=True)
    for name, target in _packages().items():
        link = links / name
        if link.is_symlink() and link.readlink() == target:
            continue
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            new = Path(temporary) / name
            new.symlink_to(target)
            os.replace(new, link)
    return links


def _packages() -> dict[str, Path]:
    """Return the folders of those of our packages that are installed here, by name."""
    specs = {name: importlib.util.find_spec(name) for name in _OURS}
    return {name: Path(spec.origin).resolve().parent for name, spec in specs.items() if spec and spec.origin}
