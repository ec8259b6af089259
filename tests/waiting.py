"""Waits of tests: until a condition holds, with a deadline. A test never sleeps for a time in which something should happen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def until(condition: Callable[[], T], *, seconds: float = 30.0, every: float = 0.01) -> T:
    """Return the first true value of the condition.

    :raises TimeoutError: if it stays false for so many seconds.
    """
    async with asyncio.timeout(seconds):
        while not (value := condition()):
            await asyncio.sleep(every)
    return value


def wait_until(condition: Callable[[], T], *, seconds: float = 30.0, every: float = 0.01) -> T:
    """Return the first true value of the condition, as `until` does, in a test without an event loop."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:g} s")
        time.sleep(every)
    return value
