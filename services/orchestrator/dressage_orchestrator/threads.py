"""Bounded pools of threads for blocking work, one for each kind of caller.

Callers of one kind wait for each other and for no other kind: however many clients watch sessions, requests and trainers are
served. Background work of the server (leases, reconciliation, gauges) and of sessions (tools of conversations, reports of
outages) uses the event loop's own pool; no request does. Workflows have the threads of DBOS.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

REQUESTS = ThreadPoolExecutor(6, thread_name_prefix="requests")
"""Requests of the public API."""
WATCHERS = ThreadPoolExecutor(2, thread_name_prefix="watchers")
"""Reads of clients that watch sessions."""
TRAINERS = ThreadPoolExecutor(4, thread_name_prefix="trainers")
"""Reports and polls of trainers."""
# Together at most 12 connections to the database of 16; workflows have four at a time (`Database.workflow_turn`).


async def run(pool: ThreadPoolExecutor, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run work in a thread of a pool, in the context of the caller, as `asyncio.to_thread` does in the loop's own."""
    call = functools.partial(contextvars.copy_context().run, work, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(pool, call)
