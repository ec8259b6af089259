"""Compiles what `lease.compiled` keeps: a sandboxed process that never sees generated code.

Later processes load what it writes, so it reads nothing that could be forged: no reward, no checkpoint. Compilers and
simulators are imported where they are used, because each takes seconds to import.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dressage.errors import DressageError
from dressage.sandbox.pipe import Channel

_TIMEOUT = 60.0


def warm(channel: Channel) -> None:
    """Sandbox target: receive ``kind`` and what to compile, write into the folder of that name, and reply "warmed" or
    "failed"."""
    message = channel.recv(timeout=_TIMEOUT)
    folder = Path.cwd() / message["kind"]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        {"updates": compile_updates, "kernels": _compile_kernels, "warp": _compile_warp}[message["kind"]](
            message, folder
        )
        channel.send({"type": "warmed"})
    except (DressageError, OSError) as error:
        channel.send({"type": "failed", "message": str(error)})


def compile_updates(message: dict[str, Any], folder: Path) -> None:
    """Compile the update of every group of members, from shapes alone."""
    from dressage.envs import EnvOptions, make_batch
    from dressage.training.preset import complete_hyperparameters

    from dressage_trainer.ppo.inputs import seen_by_networks
    from dressage_trainer.ppo.members import MemberSpec, group_members
    from dressage_trainer.speed.lanes import PpoLanes, SacLanes

    use_compilation_cache(str(folder))
    name, options = message["algorithm"], EnvOptions.from_dict(message["options"])
    environment: Any = make_batch(message["environment"], 1, num_threads=1, options=options, fields=())
    members = [
        MemberSpec(f"m{index}", complete_hyperparameters(name, values, message["environment"]), index)
        for index, values in enumerate(message["members"])
    ]
    update, threads = SacLanes if name == "sac" else PpoLanes, message["threads"]
    updates = [
        update(group, environment=seen_by_networks(environment, group[0].hyperparameters), threads=threads)
        for group in group_members(members)
    ]
    for one in updates:
        one.compilation.result()


def _compile_kernels(message: dict[str, Any], folder: Path) -> None:
    from dressage.programs.families import has_programs

    if has_programs(message["environment"]):
        from dressage.programs.warm import compile_kernels

        compile_kernels(folder)
    else:
        from dressage.episodes.warm import compile_for

        compile_for(message["environment"], folder)


def _compile_warp(message: dict[str, Any], folder: Path) -> None:
    """Start and step the environment once: what that launches is compiled, and stays in Warp's cache, which is ``folder``."""
    import jax
    import jax.numpy as jnp
    from dressage.envs import EnvOptions
    from dressage.envs.on_device import make_device_env

    env = make_device_env(message["environment"], 1, options=EnvOptions.from_dict(message["options"]))
    carry = jax.jit(env.init)(jax.random.key(0))
    _, step = jax.jit(env.step)(carry, jnp.zeros((1, env.action_size)))
    step.observation.block_until_ready()


def use_compilation_cache(directory: str) -> None:
    """Keep compiled updates in ``directory`` and reuse them; a read-only one is only read."""
    import jax

    config: Any = jax.config
    config.update("jax_compilation_cache_dir", directory)
    config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    # The caches of XLA itself are for GPUs; they put the folder's name into the key, which would miss in any other folder.
    config.update("jax_persistent_cache_enable_xla_caches", "none")
