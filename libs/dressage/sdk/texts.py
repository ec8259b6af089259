"""Numbers, names and places as text."""

from __future__ import annotations

from typing import Any

from dressage.api.v1 import session_pb2


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 episode`, `2,000 episodes`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def queue_text(queue: session_pb2.QueuePlace) -> str:
    """Return a place in the queue as text: ``waits in the queue (2 of 5): the server runs as many …``."""
    return f"waits in the queue ({queue.place} of {queue.length}): {queue.reason}"


def short(name: str) -> str:
    """Return the last part of a resource name; the id of an environment may have a namespace, as in ``karel/DoorKey``."""
    prefix = "environments/"
    return name.removeprefix(prefix) if name.startswith(prefix) else name.rsplit("/", 1)[-1]


def return_text(value: float, *, decimals: int = 0) -> str:
    """Return a return as text, with an exponent if it is large."""
    return f"{value:z.{decimals}f}" if abs(value) < 1e9 else f"{value:.3g}"


def score_text(value: float, *, threshold: float | None = None) -> str:
    """Return a score as text: with two decimals if it is small, else as a return.

    :param threshold: a score close to it gets up to six decimals, until the text is on the score's side of it.
    """
    if abs(value) >= 100:
        return return_text(value)
    texts = (f"{value:z.{decimals}f}" for decimals in range(2, 6))
    clear = (text for text in texts if threshold is None or (float(text) < threshold) == (value < threshold))
    return next(clear, f"{value:z.6f}")


def mean_text(value: float) -> str:
    """Return a mean return as text: `0.74`, `498.2`."""
    return f"{value:z.2f}" if abs(value) < 100 else return_text(value, decimals=1)


def mean(values: Any) -> float | None:
    """Return the mean of numbers; None if there are none."""
    return sum(values) / len(values) if len(values) else None
