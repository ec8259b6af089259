"""A sandboxed process with the packages of an environment pack instead of ours."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dressage.envs.packs import process
from dressage.envs.packs.registry import PACKS
from dressage.errors import DressageError
from dressage.sandbox.gpu import gpu_access
from dressage.sandbox.limits import simulator_limits
from dressage.sandbox.process import SandboxProcess


@contextmanager
def pack_process(name: str, target: str, *, with_gpu: bool = False) -> Iterator[SandboxProcess]:
    """Run a function of Dressage in a sandboxed process with the packages of an installed pack, and end it.

    :param target: ``module:function``.
    :param with_gpu: give it the GPU of this machine, if there is one.
    :raises FailedPrecondition: if the pack is not installed.
    """
    gpu = gpu_access() if with_gpu else None
    with (
        tempfile.TemporaryDirectory() as scratch,
        SandboxProcess.start(
            target,
            limits=simulator_limits(PACKS[name].gigabytes),
            scratch=Path(scratch),
            packages=process.import_path(name),
            read_only=(*process.readable(name), *(gpu.read_only if gpu else ())),
            devices=gpu.devices if gpu else (),
            python=process.interpreter(name),
            env={**process.variables(name), **({**dict(gpu.env), process.DEVICE: process.GPU} if gpu else {})},
        ) as running,
    ):
        yield running


def last_line(running: SandboxProcess, error: DressageError) -> str:
    """End a failed process and return the last line that it wrote, or the message of the error that showed the failure."""
    return (running.kill().stderr_tail.strip().splitlines() or [error.message])[-1]
