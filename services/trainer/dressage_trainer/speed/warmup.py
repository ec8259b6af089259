"""Compiles a run's updates from their shapes alone, into a folder: a sandboxed process that never sees generated code.

Later learners may load what it writes, so it reads nothing that could be forged: no reward, no checkpoint.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dressage.envs import EnvOptions, make_batch
from dressage.errors import DressageError
from dressage.sandbox.pipe import Channel
from dressage.training.algorithms import complete

from dressage_trainer.ppo.members import MemberSpec, group_members

FOLDER = "compiled"
_TIMEOUT = 60.0


def warm(channel: Channel) -> None:
    """Sandbox target: receive a request (see `compiled.request_of`), compile, and reply "warmed" or "failed"."""
    message = channel.recv(timeout=_TIMEOUT)
    try:
        seconds = compile_updates(message, Path.cwd() / FOLDER)
        channel.send({"type": "warmed", "seconds": seconds})
    except DressageError as error:
        channel.send({"type": "failed", "message": error.message})


def compile_updates(message: dict[str, Any], folder: Path) -> float:
    """Compile the update of every group of members; the seconds that it took."""
    from dressage_trainer.ppo.inputs import seen_by_networks
    from dressage_trainer.speed.lanes import LaneUpdate
    from dressage_trainer.speed.sac_lanes import SacLanes

    folder.mkdir(parents=True, exist_ok=True)
    use_compilation_cache(str(folder))
    environment: Any = make_batch(
        message["environment"], 1, num_threads=1, options=EnvOptions.from_dict(message["options"]), fields=()
    )
    name = message["algorithm"]
    members = [
        MemberSpec(f"m{index}", complete(name, values, message["environment"]), index)
        for index, values in enumerate(message["members"])
    ]
    update, threads = SacLanes if name == "sac" else LaneUpdate, message["threads"]
    updates = [
        update(group, environment=seen_by_networks(environment, group[0].hyperparameters), threads=threads)
        for group in group_members(members)
    ]
    seconds: float = sum(update.compilation.result()[1] for update in updates)
    return seconds


def use_compilation_cache(directory: str) -> None:
    """Keep compiled updates in ``directory`` and reuse them; a read-only one is only read."""
    import jax

    config: Any = jax.config
    config.update("jax_compilation_cache_dir", directory)
    config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    # The caches of XLA itself are for GPUs; they put the folder's name into the key, which would miss in any other folder.
    config.update("jax_persistent_cache_enable_xla_caches", "none")
