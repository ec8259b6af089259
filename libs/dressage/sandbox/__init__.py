"""Runs untrusted code in a locked-down process (Landlock, seccomp, rlimits, a monitoring parent)."""

from dressage.sandbox.call import SandboxFailure, run
from dressage.sandbox.capabilities import Capabilities, capabilities
from dressage.sandbox.limits import Limits
from dressage.sandbox.pipe import Channel, ChannelClosed, ProtocolError
from dressage.sandbox.process import Exit, SandboxProcess

__all__ = [
    "Capabilities",
    "Channel",
    "ChannelClosed",
    "Exit",
    "Limits",
    "ProtocolError",
    "SandboxFailure",
    "SandboxProcess",
    "capabilities",
    "run",
]
