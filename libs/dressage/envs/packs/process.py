"""What the player process of a pack may import: the standard library, the pack's packages, and Dressage itself."""

from __future__ import annotations

import importlib.util
import os
import sysconfig
import tempfile
from pathlib import Path

from dressage.envs.packs.registry import folder_of, installed_packages

_OURS = ("dressage", "dressage_trainer")
_LINKS = "dressage"


def import_path(name: str) -> tuple[str, ...]:
    """Return the folders for ``sys.path`` of a pack's process.

    :raises FailedPrecondition: if the pack is not installed.
    """
    packages = installed_packages(name)
    paths = sysconfig.get_paths()
    standard = [paths["stdlib"], paths["platstdlib"], str(Path(paths["stdlib"]) / "lib-dynload")]
    return tuple(dict.fromkeys([*standard, str(packages), str(_links(folder_of(name)))]))


def readable() -> tuple[Path, ...]:
    """Return the folders of Dressage's packages, to which the links of `import_path` lead."""
    return tuple(_package(name) for name in _OURS)


def _links(folder: Path) -> Path:
    """Return a folder with links to Dressage's packages: their own folder has packages that disagree with the pack's."""
    links = folder / _LINKS
    links.mkdir(exist_ok=True)
    for name in _OURS:
        link, target = links / name, _package(name)
        if link.is_symlink() and link.readlink() == target:
            continue
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            new = Path(temporary) / name
            new.symlink_to(target)
            os.replace(new, link)
    return links


def _package(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.origin is not None, name
    return Path(spec.origin).resolve().parent
