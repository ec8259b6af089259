"""Runs untrusted code in a locked-down process (Landlock, seccomp, rlimits, a monitoring parent).

Names are imported when they are first used: a sandboxed process imports a few modules only, so that it starts quickly.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dressage.sandbox.call import SandboxFailure as SandboxFailure
    from dressage.sandbox.call import run as run
    from dressage.sandbox.limits import Limits as Limits
    from dressage.sandbox.pipe import Channel as Channel
    from dressage.sandbox.pipe import ChannelClosed as ChannelClosed
    from dressage.sandbox.pipe import ProtocolError as ProtocolError
    from dressage.sandbox.process import Exit as Exit
    from dressage.sandbox.process import SandboxProcess as SandboxProcess

_MODULES = {
    "SandboxFailure": "dressage.sandbox.call",
    "run": "dressage.sandbox.call",
    "Limits": "dressage.sandbox.limits",
    "Channel": "dressage.sandbox.pipe",
    "ChannelClosed": "dressage.sandbox.pipe",
    "ProtocolError": "dressage.sandbox.pipe",
    "Exit": "dressage.sandbox.process",
    "SandboxProcess": "dressage.sandbox.process",
}


if not TYPE_CHECKING:  # else a type checker would accept every name

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_MODULES[name]), name)
        return value


__all__ = sorted(_MODULES)
