"""`dressage envs sync isaaclab`: the tasks of an installed pack, listed in its sandboxed process, compared with the registry.

The pack is made up: it has the modules that the listing imports, and registers a few tasks.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import numpy
import pytest
from dressage.cli.main import invoke
from dressage.envs.packs import process, registry
from dressage.envs.packs.batched import tasks
from dressage.envs.packs.batched.tasks import Task
from dressage.sandbox.capabilities import capabilities

needs_sandbox = pytest.mark.skipif(not capabilities().sufficient, reason="this kernel has no Landlock or seccomp")

GYMNASIUM = """
from types import SimpleNamespace

registry = {}


def register(id, entry, config):
    registry[id] = SimpleNamespace(entry_point=entry, kwargs={"env_cfg_entry_point": config})
"""
TASKS = """
import gymnasium

print("Isaac Lab prints when it is imported")
register, core = gymnasium.register, "isaaclab_tasks.core"
register("Isaac-Ant", "isaaclab.envs:ManagerBasedRLEnv", f"{core}.locomotion.ant:AntEnvCfg")
register("Isaac-Cartpole-Direct", f"{core}.cartpole.env:CartpoleEnv", f"{core}.cartpole.env:CartpoleEnvCfg")
register("Isaac-Swarm-Direct", "isaaclab.envs:DirectMARLEnv", f"{core}.swarm.env:SwarmEnvCfg")
register("Isaac-Broken", "isaaclab.envs:ManagerBasedRLEnv", f"{core}.broken.env:BrokenEnvCfg")
register("CartPole-v1", "gymnasium.envs:CartPole", "")
"""
UTILS = """
from types import SimpleNamespace


class NewtonCfg: ...
class PhysxCfg: ...


def parse_env_cfg(name):
    if name == "Isaac-Broken":
        raise ModuleNotFoundError("isaacsim")
    return SimpleNamespace(sim=SimpleNamespace(physics=PhysxCfg() if "Swarm" in name else NewtonCfg()))
"""
LIVE = [
    Task("Isaac-Ant", "locomotion", "manager", "newton"),
    Task("Isaac-Broken", "broken", "manager", "neither"),
    Task("Isaac-Cartpole-Direct", "cartpole", "direct", "newton"),
    Task("Isaac-Swarm-Direct", "swarm", "multi-agent", "physx"),
]


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The packages of an installed pack `isaaclab` for the Python of the tests."""
    monkeypatch.setitem(registry.PACKS, "isaaclab", replace(registry.PACKS["isaaclab"], python=""))
    monkeypatch.setenv(registry.VARIABLE, str(tmp_path / "packs"))
    folder = registry.folder_of("isaaclab")
    packages = folder / registry.PACKAGES
    (packages / "isaaclab_tasks").mkdir(parents=True)
    (folder / registry.MARKER).write_text(json.dumps(registry.PACKS["isaaclab"].identity))
    (packages / "gymnasium.py").write_text(GYMNASIUM)
    (packages / "isaaclab_tasks/__init__.py").write_text(TASKS)
    (packages / "isaaclab_tasks/utils.py").write_text(UTILS)
    (packages / "isaaclab-3.1.4.dist-info").mkdir()
    (packages / "isaaclab-3.1.4.dist-info/METADATA").write_text(
        "Metadata-Version: 2.1\nName: isaaclab\nVersion: 3.1.4\n"
    )
    installed = Path(numpy.__file__).parent
    for part in (installed, installed.with_name("numpy.libs")):
        shutil.copytree(part, packages / part.name, copy_function=_link, ignore=shutil.ignore_patterns("tests"))
    return packages


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


@needs_sandbox
def test_the_tasks_of_the_pack_are_compared_and_written(packages, tmp_path, monkeypatch, capsys):
    known = (LIVE[0], replace(LIVE[2], backend="physx"), Task("Isaac-Gone", "gone", "direct", "newton"))
    monkeypatch.setattr(tasks, "registry", lambda: known)
    written = tmp_path / "tasks.json"
    assert invoke(["envs", "sync", "isaaclab", "--write", str(written)]) in (0, None)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "isaaclab 3.1.4: 4 tasks"
    counts = {"newton": 2, "physx": 1, "neither": 1}
    assert lines[1:4] == [f"{name}: {count} tasks. {tasks.NEEDS[name]}" for name, count in counts.items()]
    assert lines[4:] == [
        "new: Isaac-Broken",
        "new: Isaac-Swarm-Direct",
        "gone: Isaac-Gone",
        f"changed: {known[1]} is now {LIVE[2]}",
    ]
    assert json.loads(written.read_text()) == {"isaaclab": "3.1.4", "tasks": [asdict(task) for task in LIVE]}

    monkeypatch.setattr(tasks, "registry", lambda: tuple(LIVE))
    assert invoke(["envs", "sync", "isaaclab"]) in (0, None)
    assert capsys.readouterr().out.splitlines()[4:] == ["the registry is current"]
    assert invoke(["envs", "sync", "isaaclab", "--json"]) in (0, None)
    answer = json.loads(capsys.readouterr().out)
    assert answer == {"version": "3.1.4", "tasks": [asdict(task) for task in LIVE], "differences": []}


@needs_sandbox
def test_a_pack_that_does_not_work_is_an_error(packages, tmp_path, capsys):
    (packages / "isaaclab_tasks/__init__.py").write_text("raise RuntimeError('half an installation')")
    written = tmp_path / "tasks.json"
    assert invoke(["envs", "sync", "isaaclab", "--write", str(written)]) == 1
    printed = capsys.readouterr()
    assert "the packages of isaaclab do not work: RuntimeError: half an installation" in printed.err
    assert not printed.out and not written.exists()


@needs_sandbox
def test_a_model_that_cannot_be_written_is_reported_and_tried_again(packages, capsys):
    (packages.parent / process.KERNELS).mkdir()  # compiled already
    for _ in range(2):
        assert invoke(["envs", "install", "isaaclab"]) in (0, None)
        lines = capsys.readouterr().out.splitlines()
        assert lines[-3] == "Isaac-Cartpole-Direct: writing its MuJoCo model, from which videos are drawn"
        assert lines[-2].startswith(
            "Isaac-Cartpole-Direct: no model was written, so the simulator's camera draws its videos"
        )
        assert "slowly: TypeError: " in lines[-2]
    written = packages.parent / registry.PACKS["isaaclab"].models["Isaac-Cartpole-Direct"]
    written.parent.mkdir()
    written.touch()
    assert invoke(["envs", "install", "isaaclab"]) in (0, None)
    assert "writing its MuJoCo model" not in capsys.readouterr().out


@needs_sandbox
def test_a_registry_that_cannot_be_written_is_an_error(packages, tmp_path, capsys):
    assert invoke(["envs", "sync", "isaaclab", "--write", str(tmp_path / "no/such/folder.json")]) == 1
    assert "folder.json" in capsys.readouterr().err


def test_a_missing_pack_and_one_without_registry_are_errors(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(registry.VARIABLE, str(tmp_path))
    assert invoke(["envs", "sync", "isaaclab"]) == 1
    assert "dressage envs install isaaclab" in capsys.readouterr().err
    assert invoke(["envs", "sync", "mjlab"]) != 0
    assert "expected a pack with a registry of tasks: isaaclab" in capsys.readouterr().err


def test_the_packaged_registry_is_read_and_states_needs():
    known = {task.id: task for task in tasks.registry()}
    assert len(known) == 142 and tasks.differences(tasks.registry(), tasks.registry()) == []
    for backend, needs in tasks.NEEDS.items():
        ident = next(name for name, task in known.items() if task.backend == backend)
        assert tasks.needs_of(ident) == f"Backend: {backend}. Needed: {needs}"
    assert tasks.needs_of("Hopper-v5") == ""
