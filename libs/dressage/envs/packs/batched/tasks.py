"""The tasks of Isaac Lab: a registry of all ids, and what a user must have to play them.

The registry is a file of this package, written from the installed one by `dressage envs sync isaaclab --write`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Literal

Backend = Literal["newton", "physx", "neither"]
FILE = "isaaclab_tasks.json"
NEEDS: Mapping[Backend, str] = {
    "newton": (
        "The robot's assets. Get them from NVIDIA under their own licence and put them below the folder assets of the pack, in "
        "the layout of ISAACSIM_ASSET_ROOT (assets/Isaac/IsaacLab/Robots/...)."
    ),
    "physx": (
        "The robot's assets and Isaac Sim. Accept NVIDIA's licence and install it: "
        "pip install 'isaacsim[all,extscache]>=6,<7' --extra-index-url https://pypi.nvidia.com. Not tried."
    ),
    "neither": "No physics backend is set by default: choose one in the task's configuration. Not tried.",
}
"""What a task needs besides the pack, by backend."""


@dataclass(frozen=True)
class Task:
    """A task of Isaac Lab.

    :param category: such as ``cartpole`` or ``velocity``: the package that defines it.
    :param workflow: ``direct``, ``manager`` or ``multi-agent``.
    :param backend: physics that it uses by default.
    """

    id: str
    category: str
    workflow: str
    backend: Backend


def registry() -> tuple[Task, ...]:
    """Return all tasks, in the order of their ids."""
    text = resources.files("dressage.envs.packs").joinpath("data", FILE).read_text("utf-8")
    return tuple(Task(**entry) for entry in json.loads(text)["tasks"])


def needs_of(task_id: str) -> str:
    """Return the backend of a registered task and what it needs; empty for other ids."""
    match = next((task for task in registry() if task.id == task_id), None)
    return f"Backend: {match.backend}. Needed: {NEEDS[match.backend]}" if match else ""


def write(path: Path, tasks: Sequence[Task], version: str) -> None:
    """Write a registry."""
    entries = [asdict(task) for task in tasks]
    path.write_text(json.dumps({"isaaclab": version, "tasks": entries}, indent=1) + "\n", "utf-8")


def differences(live: Sequence[Task], registry_tasks: Sequence[Task]) -> list[str]:
    """Return a line for each task that was added, removed or changed since the registry was written."""
    before, now = {task.id: task for task in registry_tasks}, {task.id: task for task in live}
    lines = [f"new: {name}" for name in sorted(now.keys() - before.keys())]
    lines += [f"gone: {name}" for name in sorted(before.keys() - now.keys())]
    changed = [name for name in sorted(now.keys() & before.keys()) if now[name] != before[name]]
    return [*lines, *(f"changed: {before[name]} is now {now[name]}" for name in changed)]
