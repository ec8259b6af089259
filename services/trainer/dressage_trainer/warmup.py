"""Compiles a run's updates for their shapes alone, into a folder: a sandboxed process that never sees generated code.

What it writes is what later learners may load, so nothing that could be forged takes part: no reward, no checkpoint.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dressage.envs import EnvOptions, make_batch
from dressage.errors import DressageError
from dressage.sandbox.pipe import Channel

from dressage_trainer.messages import MemberTask, TrainSpec
from dressage_trainer.ppo.members import group_members
from dressage_trainer.run_members import member_specs

FOLDER = "compiled"
_TIMEOUT = 60.0


class _NoReward:
    """Stands where a reward is asked for; it is never called."""

    def __call__(self, state: Any, action: Any, next_state: Any) -> Any:
        raise AssertionError("nothing is collected here")

    def reset(self, mask: Any = None) -> None:
        """Nothing to forget."""

    def snapshot(self) -> dict[str, Any]:
        """Nothing to keep."""
        return {}

    def restore(self, arrays: Any) -> None:
        """Nothing to put back."""


def warm(channel: Channel) -> None:
    """Sandbox target: receives the shapes' facts, compiles, and says whether that went well."""
    message = channel.recv(timeout=_TIMEOUT)
    try:
        seconds = compile_updates(message, Path.cwd() / FOLDER)
        channel.send({"type": "warmed", "seconds": seconds})
    except DressageError as error:
        channel.send({"type": "failed", "message": error.message})


def compile_updates(message: dict[str, Any], folder: Path) -> float:
    """Compiles the update of every group of members; the seconds that it took."""
    from dressage_trainer.ppo.stacked import StackedPPO, use_compilation_cache

    folder.mkdir(parents=True, exist_ok=True)
    use_compilation_cache(str(folder))
    members = tuple(MemberTask(f"m{i}", dict(given), i) for i, given in enumerate(message["members"]))
    spec = TrainSpec(environment=message["environment"], options=message["options"], members=members)
    seconds = 0.0
    for group in group_members(member_specs(spec)):
        rows = len(group) * group[0].hyperparameters.num_envs
        options = EnvOptions.from_dict(spec.options)
        environment: Any = make_batch(spec.environment, rows, num_threads=1, options=options, fields=())
        ppo = StackedPPO(group, environment=environment, reward=_NoReward(), threads=message["threads"])
        seconds += ppo.compile()
    return seconds
