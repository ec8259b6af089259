from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from dressage.episodes import compiling
from dressage.programs.warm import compile_kernels

USE = """
import numpy as np, sys
{imports}
from dressage.programs.karel.machine import KarelScorer
from dressage.programs.karel.tasks import task_class
from dressage.programs.karel.worlds import Worlds
from dressage.programs.search.climbing import Search
from dressage.programs.search.parallel import Scorers
from dressage.programs.search.settings import SearchSettings
with Scorers(lambda: KarelScorer(Worlds.of(task_class("Maze"), range(4)))) as scorers:
    search = Search(scorers, SearchSettings(budget=200, target=2.0))
    search.run()
    print(search.programs)
"""


def used(folder: Path, imports: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DRESSAGE_KERNELS": str(folder)}
    command = [sys.executable, "-c", USE.format(imports=imports)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=True)


def test_a_process_that_cannot_write_reads_the_warm_kernels(kernels: None, tmp_path: Path) -> None:
    shared = compiling._Place.folder
    assert shared is not None
    compile_kernels(shared)
    folder = tmp_path / "kernels"  # tests beside this one write to the shared folder
    folder.mkdir()
    for file in shared.glob("*.kernel"):
        shutil.copy2(file, folder)
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    result = used(folder)
    assert result.stdout == "200\n" and "compiled in memory" not in result.stderr
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    assert {name.rsplit("-", 1)[0] for name in before} >= {
        "programs-compile",
        "programs-draw",
        "programs-karel-play",
        "programs-karel-score",
        "programs-karel-search",
    }


def test_kernels_work_beside_jax_and_torch(kernels: None) -> None:
    folder = compiling._Place.folder
    assert folder is not None
    compile_kernels(folder)
    assert used(folder, imports="import jax, torch; jax.numpy.ones(2) + 1; torch.ones(2) + 1").stdout == "200\n"
