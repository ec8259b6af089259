"""Numbers and places as text."""

from __future__ import annotations

from dressage.api.v1 import session_pb2


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 episode`, `2,000 episodes`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def queue_text(queue: session_pb2.QueuePlace) -> str:
    """Return a place in the queue as text: ``waits in the queue (2 of 5): the server runs as many …``."""
    return f"waits in the queue ({queue.place} of {queue.length}): {queue.reason}"
