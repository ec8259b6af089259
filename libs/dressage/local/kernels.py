"""Compiled kernels of this machine's trainers, for a command that plays programs in its own process."""

from __future__ import annotations

import os
from pathlib import Path


def use_kernels() -> None:
    """Read kernels from the trainers' folder, and keep there what this process compiles: it runs no generated code."""
    from dressage_trainer.lease.kernels import Kernels
    from dressage_trainer.speed.compiled import default_folder

    from dressage.episodes import compiling

    folder = Kernels(default_folder(os.environ), scratch=Path(os.devnull)).folder
    if folder is not None:
        compiling.write_to(folder)
