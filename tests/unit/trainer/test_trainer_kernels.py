"""Compiled kernels: built by a process of their own, read and never written by sandboxed ones, never needed."""

from __future__ import annotations

import math
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from dressage.envs.reference import StockPlayer
from dressage.policies import Policy
from dressage.policies.kinds import PolicySpec, kind
from dressage.sandbox.capabilities import capabilities
from dressage.sandbox.limits import GIB, Limits
from dressage.sandbox.process import SandboxProcess
from dressage_trainer.lease.compiled import KERNELS, UPDATES, CompiledCache, kernels_of
from dressage_trainer.lease.sandboxes import Sandboxes, SandboxSpec

pytestmark = pytest.mark.skipif(not capabilities().sufficient, reason="this kernel has no Landlock or seccomp")

MAZE = PolicySpec(kind="table", observation_count=9, action_count=4)
TABLE = [1.0, 3.0, 3.0, 2.0, 1.0, 0.0, 2.0, 2.0, 0.0]
REQUEST = {
    "environment": "Maze3x3-v0",
    "options": {},
    "policy": MAZE.to_dict(),
    "parameters": TABLE,
    "seeds": [1, 2, 3],
    "recorded": 0,
    "batched": True,
}
PLAIN = SandboxSpec(limits=Limits(memory_bytes=2 * GIB))


@pytest.fixture(autouse=True)
def _targets(monkeypatch):
    """Let sandboxed processes, which inherit the import path, import the targets in this folder."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def played(spec: SandboxSpec, scratch: Path) -> tuple[dict, str]:
    """Return a sandboxed process's reply and what it logged."""
    scratch.mkdir()
    with SandboxProcess.start(
        "kernel_targets:play", limits=spec.limits, scratch=scratch, read_only=spec.read_only, env=dict(spec.env)
    ) as process:
        process.channel.send(REQUEST)
        reply = process.channel.recv(timeout=240)
        exit_ = process.wait(30)
    assert exit_ is not None and exit_.kind == "ok", exit_
    return reply, exit_.stderr_tail


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("cache")
    root.chmod(0o700)
    return root


@pytest.fixture(scope="module")
def kernels(root, tmp_path_factory) -> CompiledCache:
    cache = CompiledCache(root, Sandboxes(tmp_path_factory.mktemp("sandboxes")))
    cache.prepare_kernels("Maze3x3-v0")
    return cache


def files(kernels: CompiledCache) -> dict[str, float]:
    return {path.name: path.stat().st_mtime for path in kernels.kernels.iterdir()}


def test_a_sandboxed_process_loads_a_read_only_kernel(kernels, tmp_path):
    before = files(kernels)
    assert any(name.startswith("play_maze") for name in before) and "Maze3x3-v0.ready" in before
    reply, log = played(kernels.with_kernels(PLAIN), tmp_path / "s")
    policy = Policy(weights=kind("table").weights(MAZE, TABLE), card=kind("table").card(MAZE, environment="Maze3x3-v0"))
    with StockPlayer("Maze3x3-v0") as player:
        outcomes = [player.play(policy.act, seed) for seed in (1, 2, 3)]
    assert [(one.stock_return, one.length) for one in outcomes] == list(
        zip(reply["returns"].tolist(), reply["lengths"].tolist(), strict=True)
    )
    assert reply["seconds"] < 1.0 and "compiled in memory" not in log
    assert files(kernels) == before


def test_without_a_folder_a_kernel_is_compiled_in_memory_and_says_so(kernels, tmp_path):
    read, _ = played(kernels.with_kernels(PLAIN), tmp_path / "read")
    reply, log = played(PLAIN, tmp_path / "memory")
    np.testing.assert_array_equal(reply["returns"], read["returns"])
    np.testing.assert_array_equal(reply["lengths"], read["lengths"])
    assert reply["seconds"] > 2 * read["seconds"]
    assert log.count("compiled in memory") == 1 and "DRESSAGE_KERNELS is not set" in log


def test_a_damaged_or_missing_kernel_costs_time_only(kernels, tmp_path):
    folder = tmp_path / "damaged"
    folder.mkdir(mode=0o700)
    for path in kernels.kernels.glob("*.kernel"):
        (folder / path.name).write_bytes(b"no pickle")
    spec = replace(PLAIN, env=(("DRESSAGE_KERNELS", str(folder)),), read_only=(folder,))
    reply, log = played(spec, tmp_path / "s")
    assert reply["returns"][0] == 1 - 3 * 0.1 / 9
    assert "cannot be read" in log and f"not in {folder}" in log
    assert all(path.read_bytes() == b"no pickle" for path in folder.iterdir())


def test_kernels_are_compiled_once_also_by_several_threads(kernels, root, tmp_path):
    before = files(kernels)
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(kernels.prepare_kernels, ["Maze3x3-v0"] * 3))
    kernels.prepare_kernels("gymnasium:Anything-v0")
    assert files(kernels) == before
    again = CompiledCache(root, Sandboxes(tmp_path))
    again.prepare_kernels("Maze3x3-v0")
    assert files(again) == before


def test_a_folder_that_others_can_write_to_is_not_used(tmp_path):
    root = tmp_path / "cache"
    (root / "kernels").mkdir(parents=True)
    os.chmod(root / "kernels", 0o777)
    cache = CompiledCache(root, Sandboxes(tmp_path / "sandboxes"))
    assert cache.with_kernels(PLAIN) == PLAIN
    cache.prepare_kernels("Maze3x3-v0")
    assert not list((root / "kernels").glob("*/*.kernel"))


@pytest.mark.parametrize(("kind", "count"), [(KERNELS, 1), (UPDATES, 2)])
def test_a_failed_compilation_is_tried_again_if_nothing_waits_for_it(kind, count, tmp_path, monkeypatch):
    tmp_path.chmod(0o700)
    cache, tries = CompiledCache(tmp_path / "cache", Sandboxes(tmp_path / "sandboxes")), []

    def fail(code, *_):
        tries.append(code.name)
        raise OSError("no room")

    monkeypatch.setattr(cache, "_compile", fail)
    code = replace(kernels_of("Nim-v0"), kind=kind)
    assert [cache.prepare(code), cache.prepare(code)] == [None, None]
    assert tries == ["Nim-v0"] * count


def test_files_without_the_marker_are_not_used(kernels, root, tmp_path):
    code = kernels_of("Maze3x3-v0")
    assert kernels.find(code) == kernels.kernels
    shutil.copytree(root, tmp_path / "copy")
    other = CompiledCache(tmp_path / "copy")
    (other.find(code) / code.marker).unlink()
    assert other.find(code) is None and other.prepare(code) is None


def test_numba_jax_and_torch_work_in_one_sandboxed_process(tmp_path):
    with SandboxProcess.start(
        "kernel_targets:import_all", limits=Limits(memory_bytes=4 * GIB), scratch=tmp_path
    ) as one:
        reply = one.channel.recv(timeout=240)
    assert reply == {"numba": 3.0, "jax": pytest.approx(math.sin(0.5), abs=1e-6), "torch": 3.0}
