"""The packs, the environments of each, and where an installed pack is."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from dressage.envs.catalogue import catalogue
from dressage.errors import FailedPrecondition, NotFound
from dressage.places import data_dir

VARIABLE = "DRESSAGE_PACKS"
"""Environment variable with the folder of installed packs; by default ``packs`` in the data folder."""
MARKER = "installed.json"
PACKAGES = "packages"
MODELS = "models"
"""Folder of the MuJoCo models that an installation writes, in a pack's folder."""
DAMAGED = "PACK_DAMAGED"
"""Reason of errors about an installed pack that does not work."""


@dataclass(frozen=True)
class Pack:
    """An environment pack.

    :param title: content in a few words.
    :param megabytes: size on disk, about.
    :param single: whether its simulator runs one episode at a time in a process.
    :param batched: whether its simulator steps many environments at once, so that rewards train on them.
    :param python: minor version of Python that its packages need; empty: any that runs Dressage.
    :param gigabytes: memory limit of its processes.
    :param camera: whether the simulator's own camera draws recorded states where there is no model.
    """

    name: str
    title: str
    megabytes: int
    single: bool = False
    batched: bool = False
    python: str = ""
    gigabytes: int = 2
    camera: bool = False

    @property
    def environments(self) -> tuple[str, ...]:
        """Ids of its environments, in the order of listings."""
        return tuple(entry.id for entry in catalogue().values() if entry.pack == self.name)

    @property
    def models(self) -> Mapping[str, str]:
        """Files of MuJoCo models in the pack's folder, by environment, from which recorded states are drawn.

        The simulator writes those in the folder `MODELS` when the pack is installed.
        """
        return {name: catalogue()[name].model for name in self.environments if catalogue()[name].model}

    @property
    def written_models(self) -> Mapping[str, str]:
        """Those of `models` that its simulator writes."""
        return {name: path for name, path in self.models.items() if path.startswith(f"{MODELS}/")}

    @property
    def requirements(self) -> bytes:
        """The pinned packages with their hashes, in pip's format."""
        return resources.files("dressage.envs.packs").joinpath("data", f"{self.name}.txt").read_bytes()

    @property
    def identity(self) -> dict[str, str]:
        """What an installed pack must match: hash of the requirements and version of Python."""
        python = f"cpython-{self.python.replace('.', '')}" if self.python else f"{sys.implementation.cache_tag}"
        return {"requirements": hashlib.sha256(self.requirements).hexdigest(), "python": python}


PACKS = {
    pack.name: pack
    for pack in (
        Pack("robotics", "PointMaze of Gymnasium-Robotics", 220),
        Pack("metaworld", "robot arm tasks of Meta-World", 280),
        Pack("glucose", "insulin for type 1 diabetes, simglucose", 260),
        Pack("traffic", "traffic lights of an intersection, SUMO", 900, single=True),
        Pack(
            "mjlab",
            "legged robots and cart-pole of mjlab, on MuJoCo Warp",
            5_600,
            single=True,
            batched=True,
            gigabytes=6,
        ),
        Pack(
            "isaaclab",
            "cart-pole of Isaac Lab 3, on Newton",
            7_000,
            single=True,
            batched=True,
            python="3.12",
            gigabytes=8,
            camera=True,
        ),
    )
}

PACK_ENVIRONMENT_IDS: tuple[str, ...] = tuple(name for pack in PACKS.values() for name in pack.environments)
"""Environments of all packs, in the order in which they are listed."""


def pack(name: str) -> Pack:
    """Return a pack.

    :raises NotFound: listing the packs.
    """
    if name not in PACKS:
        message = f"unknown environment pack (got {name[:60]!r}); expected {' or '.join(PACKS)}"
        raise NotFound(message, reason="PACK_NOT_FOUND")
    return PACKS[name]


def folder_of(name: str) -> Path:
    """Return the folder in which a pack is installed, which need not exist."""
    folder = os.environ.get(VARIABLE, "")
    return (Path(folder).expanduser().absolute() if folder else data_dir(None) / "packs") / name


def problem_of(name: str) -> str:
    """Return why a pack cannot be used; empty if nothing is known. Only its process shows whether its packages work."""
    try:
        installed = json.loads((folder_of(name) / MARKER).read_bytes())
    except FileNotFoundError:
        return "it is not installed"
    except (OSError, ValueError) as error:
        return f"its installation is damaged: {error}"
    expected = pack(name).identity
    if not isinstance(installed, dict) or installed.get("python") != expected["python"]:
        return f"it was installed for another Python than {expected['python']}"
    if installed != expected:
        return "it was installed for another version of Dressage"
    return "" if (folder_of(name) / PACKAGES).is_dir() else "its installation is damaged: its packages are missing"


def installed_packages(name: str) -> Path:
    """Return the folder of a pack's packages.

    :raises FailedPrecondition: if it is not installed, with the command that installs it.
    """
    problem = problem_of(name)
    if problem:
        remedy = install_remedy(name)
        message = f"environment pack {name}: {problem}. {remedy}"
        raise FailedPrecondition(message, reason="PACK_NOT_INSTALLED", metadata={"pack": name, "remedy": remedy})
    return folder_of(name) / PACKAGES


def install_remedy(name: str) -> str:
    """Return what to do where a pack is not installed."""
    return f"Install it where trainers run: dressage envs install {name}"


def reinstall_remedy(name: str) -> str:
    """Return what to do where an installed pack does not work."""
    return f"Install it again where trainers run: dressage envs install {name} --reinstall"


def broken_pack_error(name: str, environment: str, problem: str) -> FailedPrecondition:
    """Return the error of an installed pack that does not work.

    :param environment: the environment that cannot be played.
    """
    remedy = reinstall_remedy(name)
    message = f"{environment}: its environment pack {name} does not work: {problem}. {remedy}"
    return FailedPrecondition(message, reason=DAMAGED, metadata={"pack": name, "remedy": remedy})
