"""Measurements in fresh interpreters, with capped threads and chosen cores, and the versions for their report."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from dressage.sandbox.gpu import gpu_access
from dressage_trainer.speed.threads import learner_environment

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NPROC")
PACKAGES = ("dressage", "jax", "mujoco", "gymnasium", "numpy", "stable-baselines3", "torch")
LEARNERS = ("ours", "passing")
"""Modules that train with our learner, in the environment that the trainer gives it."""
BENCHMARKS = Path(__file__).resolve().parents[1]


def start(module: str, arguments: Mapping[str, Any], *, threads: int | None, cores: int) -> subprocess.Popen[str]:
    """Starts ``python -m support.MODULE`` with one JSON argument.

    :param threads: cap of every numerical library; None: as the libraries have it by themselves.
    :param cores: the first so many processors that this process may use.
    """
    environment = {name: value for name, value in os.environ.items() if name not in THREAD_VARIABLES}
    if threads is not None:
        environment.update(dict.fromkeys(THREAD_VARIABLES, str(threads)))
    if module in LEARNERS:
        on_gpu = bool(arguments.get("on_device")) and gpu_access() is not None
        environment.update(learner_environment(on_gpu=on_gpu))
    code = f"import os; os.sched_setaffinity(0, {processors(cores)}); from support.{module} import main; main()"
    environment["PYTHONPATH"] = str(BENCHMARKS)
    command = [sys.executable, "-c", code, json.dumps(arguments)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def finish(child: subprocess.Popen[str], *, timeout: float = 3000.0) -> dict[str, Any]:
    """The JSON object that a child printed last.

    :raises SystemExit: if it failed.
    """
    text, _ = child.communicate(timeout=timeout)
    if child.returncode != 0:
        raise SystemExit(f"a measurement ended with status {child.returncode}")
    result: dict[str, Any] = json.loads(text.strip().splitlines()[-1])
    return result


def measure(
    module: str, arguments: Mapping[str, Any], *, threads: int | None, cores: int, timeout: float = 3000.0
) -> dict[str, Any]:
    """One measurement by itself."""
    return finish(start(module, arguments, threads=threads, cores=cores), timeout=timeout)


def measure_together(
    module: str, arguments: Sequence[Mapping[str, Any]], *, threads: int | None, cores: int
) -> list[dict[str, Any]]:
    """Several at the same time."""
    children = [start(module, given, threads=threads, cores=cores) for given in arguments]
    return [finish(child) for child in children]


def processors(count: int) -> list[int]:
    """The first ``count`` processors that this process may use."""
    return sorted(os.sched_getaffinity(0))[:count]


def available() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0))


def versions() -> dict[str, str]:
    """Versions of what was measured."""
    return {"python": platform.python_version(), **{name: metadata.version(name) for name in PACKAGES}}
