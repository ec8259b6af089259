"""Which tasks the installed Isaac Lab registers, read in a process of its pack."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from dressage.envs.packs.batched import isaacsim
from dressage.envs.packs.batched.stepping import use_kernels
from dressage.envs.packs.batched.tasks import Backend, Task


def list_tasks(channel: Any) -> None:
    """Sandbox target in a process of the pack: send every task of the installed package."""
    use_kernels()
    import contextlib
    import sys
    from importlib.metadata import version

    in_isaac_sim = isaacsim.is_needed()
    with contextlib.redirect_stdout(sys.stderr):
        if in_isaac_sim:
            isaacsim.start("cpu")
        import gymnasium
        import isaaclab_tasks  # noqa: F401  registers the tasks

        names = sorted(name for name in gymnasium.registry if name.startswith("Isaac"))
        physics = _physx if in_isaac_sim else _physics
        tasks = [_task(name, gymnasium.registry[name], physics(name)) for name in names]
        if in_isaac_sim:
            tasks = [replace(task, id=isaacsim.environment_id(task.id)) for task in tasks]
    channel.send({"tasks": [asdict(task) for task in tasks], "version": version("isaaclab")})


def _physx(name: str) -> Backend:
    """Return the only physics of Isaac Lab 2.3."""
    return "physx"


def _physics(name: str) -> Backend:
    """Return the physics that a task of Isaac Lab 3 uses by default."""
    from isaaclab_tasks.utils import parse_env_cfg

    try:
        physics = type(parse_env_cfg(name).sim.physics).__name__.lower()
    except Exception as error:  # a task whose packages are missing still belongs to the registry
        physics = type(error).__name__.lower()
    return "newton" if "newton" in physics else "physx" if "physx" in physics else "neither"


def _task(name: str, spec: Any, backend: Backend) -> Task:
    module = str(spec.kwargs.get("env_cfg_entry_point", ""))
    parts = module.partition(":")[0].split(".")
    category = parts[2] if len(parts) > 3 else parts[-1]
    entry = str(spec.entry_point)
    multi = "marl" in entry.lower() or "multiagent" in module.lower()
    workflow = "multi-agent" if multi else "manager" if entry.endswith("ManagerBasedRLEnv") else "direct"
    return Task(name, category, workflow, backend)
