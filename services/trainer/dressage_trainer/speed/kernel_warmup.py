"""Compiles the kernels of one environment into a folder: a sandboxed process that never sees generated code."""

from __future__ import annotations

from pathlib import Path

from dressage.errors import DressageError
from dressage.sandbox.pipe import Channel

_FOLDER = "kernels"
_TIMEOUT = 60.0


def warm(channel: Channel) -> None:
    """Sandbox target: receive ``environment``, compile, and reply "warmed" or "failed"."""
    message = channel.recv(timeout=_TIMEOUT)
    try:
        _compile(message["environment"], Path.cwd() / _FOLDER)
        channel.send({"type": "warmed"})
    except (DressageError, OSError) as error:
        channel.send({"type": "failed", "message": str(error)})


def _compile(environment: str, folder: Path) -> None:
    """Compile with what the environment needs, imported only here: the compiler takes seconds to import."""
    from dressage.programs.families import has_programs

    if has_programs(environment):
        from dressage.programs.warm import compile_kernels

        compile_kernels(folder)
    else:
        from dressage.episodes.warm import compile_for

        compile_for(environment, folder)
