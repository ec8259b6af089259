"""Import this module to load the compiler and its tables ahead, in a process that is kept ready."""

from __future__ import annotations

from numba.core.registry import cpu_target

from dressage.episodes import compiled

__all__ = ["compiled"]

cpu_target.typing_context.refresh()
cpu_target.target_context.refresh()
