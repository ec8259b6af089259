"""The link of a learner to the process that simulates for it, which the learner sets before it makes a batch of a pack."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from dressage.errors import FailedPrecondition


class Link(Protocol):
    """A channel of messages, see `dressage.sandbox.pipe.Channel`."""

    def send(self, message: Mapping[str, Any], *, timeout: float | None = None) -> None:
        """Send a message."""
        ...

    def recv(self, *, timeout: float | None) -> dict[str, Any]:
        """Receive a message."""
        ...


class _Current:
    link: Link | None = None


def use(link: Link) -> None:
    """Set this process's link."""
    _Current.link = link


def current() -> Link:
    """Return this process's link.

    :raises FailedPrecondition: if it has none.
    """
    if _Current.link is None:
        message = "the environments of this pack need a simulator's process, which only a trainer starts"
        raise FailedPrecondition(message, reason="NO_SIMULATOR")
    return _Current.link
