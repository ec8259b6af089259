"""Compiled kernels of this machine's trainers, for a command that plays programs in its own process."""

from __future__ import annotations

import os
from collections.abc import Callable

from dressage.episodes.versions import FOLDER_VARIABLE


def use_kernels(progress: Callable[[str], None] | None = None) -> None:
    """Read kernels from the trainers' folder, and keep there what this process compiles: it runs no generated code.

    A folder that ``DRESSAGE_KERNELS`` names is only read.

    :param progress: called with the name of each kernel that is about to be compiled.
    """
    if os.environ.get(FOLDER_VARIABLE):
        return
    from dressage_trainer.lease.compiled import CompiledCache, default_folder

    from dressage.episodes import compiling

    folder = CompiledCache(default_folder(os.environ)).kernels
    if folder is not None:
        compiling.write_to(folder, progress)
