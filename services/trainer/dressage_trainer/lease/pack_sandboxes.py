"""Sandboxed processes with the packages of an environment pack instead of ours."""

from __future__ import annotations

from dataclasses import replace

from dressage.envs.packs import process
from dressage.envs.packs.registry import PACKS
from dressage.sandbox.gpu import gpu_access
from dressage.sandbox.limits import simulator_limits

from dressage_trainer.lease.sandboxes import SandboxSpec


def of_pack(spec: SandboxSpec, pack: str, *, with_gpu: bool = False) -> SandboxSpec:
    """Return how the same process is started with the packages of a pack.

    :param with_gpu: give it the GPU of this machine, if there is one.
    :raises FailedPrecondition: if the pack is not installed.
    """
    env = process.variables(pack)
    gpu = gpu_access() if with_gpu else None
    if gpu is not None:
        env |= {**dict(gpu.env), process.DEVICE: process.GPU}
    return replace(
        spec,
        packages=process.import_path(pack),
        read_only=(*process.readable(pack), *(gpu.read_only if gpu else ())),
        devices=gpu.devices if gpu else (),
        python=process.interpreter(pack),
        limits=simulator_limits(PACKS[pack].gigabytes),
        env=tuple(sorted(env.items())),
    )
