"""Waiting for the first of several things."""

from __future__ import annotations

import asyncio
from typing import Any


async def first_of(*awaited: asyncio.Event | asyncio.Future[Any], timeout: float | None = None) -> None:
    """Waits until one of these has happened, or for ``timeout`` seconds. The caller looks at which, in its own order.

    :param awaited: events, and futures, which are neither cancelled nor asked for their result.
    """
    made = [asyncio.ensure_future(one.wait()) for one in awaited if isinstance(one, asyncio.Event)]
    given = [one for one in awaited if not isinstance(one, asyncio.Event)]
    try:
        await asyncio.wait([*made, *given], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in made:
            wait.cancel()
        await asyncio.gather(*made, return_exceptions=True)
