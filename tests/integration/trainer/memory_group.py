"""A control group with a memory limit for one process and its children, and the learner that fills it.

As a program (``memory_group.py FOLDER``) it trains a reward that takes memory without end, as the supervisor of a trainer
would in this container, and prints the result of the assignment as JSON.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

REWARD = """
LATEX = "1"
TERMS = {"up": "stay up"}
MEMORY = {"steps": 0.0}

def reward(state, action, next_state, memory, np):
    memory.steps = memory.steps + 1.0
    late = float(np.max(memory.steps)) > 5
    hoard = [np.ones(10**5) * k for k in range(10**6)] if late else []
    return {"up": 0.0 * next_state.time + 1.0 + len(hoard)}
"""


class NoGroup(Exception):
    """No memory group can be made here; the message states why."""


@contextmanager
def memory_group(limit: int) -> Iterator[Path]:
    """A new group below the one of this process, removed at the end.

    :param limit: bytes.
    :raises NoGroup: without cgroups, or without the rights to make one.
    """
    folder, file = _place()
    group = folder / f"dressage-test-{uuid.uuid4().hex[:8]}"
    try:
        group.mkdir()
        (group / file).write_text(str(limit))
    except OSError as error:
        with contextlib.suppress(OSError):
            group.rmdir()
        raise NoGroup(f"no memory cgroup can be made in {folder}: {error}") from error
    try:
        yield group
    finally:
        for _ in range(100):  # until the kernel has removed the last process
            with contextlib.suppress(OSError):
                group.rmdir()
                break
            time.sleep(0.1)


def _place() -> tuple[Path, str]:
    """Return the folder of this process's memory group, and the name of the file with its limit."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        base = Path("/sys/fs/cgroup") / controllers / path.lstrip("/")
        name = "memory.limit_in_bytes" if controllers else "memory.max"
        if (base / "cgroup.procs").exists() and (controllers or "memory" in (base / "cgroup.controllers").read_text()):
            return base, name
    raise NoGroup("the kernel shows no memory cgroup of this process")


def run_in(group: Path, scratch: Path, *, seconds: float) -> str:
    """Run this program in a group and return what it prints.

    :raises subprocess.CalledProcessError: if it ends with another status than 0, as when the kernel kills it.
    """
    # The shell enters the group before the program starts, so that all memory of the program counts.
    script = 'echo $$ > "$0/cgroup.procs" && exec "$@"'
    command = ["sh", "-c", script, str(group), sys.executable, __file__, str(scratch)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, timeout=seconds, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def main(scratch: Path) -> None:
    """Train the reward."""
    from dressage.sandbox.machine import Machine
    from dressage.sandbox.pipe import ChannelClosed
    from dressage_trainer.assignments.learner_process import LEARNER, exit_result, learner_sandbox
    from dressage_trainer.lease.sandboxes import Sandboxes
    from dressage_trainer.messages import MemberTask, TrainSpec
    from google.protobuf.json_format import MessageToJson

    algorithm = {"num_envs": 4, "num_steps": 64, "minibatch_size": 64, "epochs": 1, "hidden_sizes": [8]}
    spec = TrainSpec(
        environment="InvertedPendulum-v5",
        reward_source=REWARD,
        members=(MemberTask("a", algorithm, 1),),
        steps_per_member=256 * 8,
        threads=1,
    )
    sandboxes = Sandboxes(scratch, machine=Machine.here(scratch))
    process = sandboxes.start(learner_sandbox(backend="jax", cores=1, compiled=None), LEARNER)
    try:
        process.channel.send(spec.to_dict())
        with contextlib.suppress(ChannelClosed):
            while True:
                process.channel.recv(timeout=200)
        print(MessageToJson(exit_result(process.wait(30.0))))
    finally:
        sandboxes.end(process)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
