"""Which tasks the installed Isaac Lab registers, read in a process of its pack."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from dressage.envs.packs.batched.stepping import use_kernels
from dressage.envs.packs.batched.tasks import Backend, Task


def list_tasks(channel: Any) -> None:
    """Sandbox target in a process of the pack: send every task of the installed package."""
    use_kernels()
    import contextlib
    import sys
    from importlib.metadata import version

    with contextlib.redirect_stdout(sys.stderr):
        import gymnasium
        import isaaclab_tasks  # noqa: F401  registers the tasks

        names = sorted(name for name in gymnasium.registry if name.startswith("Isaac"))
        tasks = [_task(name, gymnasium.registry[name], _physics(name)) for name in names]
    channel.send({"tasks": [asdict(task) for task in tasks], "version": version("isaaclab")})


def _physics(name: str) -> Backend:
    """Return the physics that a task uses by default."""
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
