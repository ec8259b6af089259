"""The channel of a sandboxed process to another one that works for it, such as the simulator of an environment pack.

The supervisor starts both and hands over its end of the other's channel, so that messages take no detour through it. Neither
process trusts the other: the channel checks every size, and the receiver the form of what it gets.
"""

from __future__ import annotations

from dressage.errors import FailedPrecondition
from dressage.sandbox.pipe import Channel


class _Companion:
    """The channel of this process."""

    channel: Channel | None = None


def attach(read_fd: int, write_fd: int) -> None:
    """Set this process's companion; called once, at its start."""
    _Companion.channel = Channel(read_fd, write_fd)


def channel() -> Channel:
    """Return the channel to this process's companion.

    :raises FailedPrecondition: it was started without one.
    """
    if _Companion.channel is None:
        raise FailedPrecondition("this process was started without a companion", reason="NO_COMPANION")
    return _Companion.channel
