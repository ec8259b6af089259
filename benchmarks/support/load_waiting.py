"""Thousands of sessions in the queue: how soon an event of a running session reaches its watcher, and what reads cost.

`--running` sessions run, `--waiting` ones wait behind them; places become free as sessions end. Half of the `--watchers` follow
the sessions that run or are next, the others are spread over the queue. Events are timed from the transaction that writes
them to the client that receives them, on one machine's clock. Then the server is stopped and started again.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import time
from dataclasses import dataclass, field
from typing import Any

from dressage.api.v1 import session_service_pb2 as pb

from support.load_clients import READERS, Load, percentile, stack

CREATORS = 4
WARMUP_SECONDS = 5.0


@dataclass
class Watched:
    """What the watchers have received."""

    connected: set[str] = field(default_factory=set)
    delays: list[float] = field(default_factory=list)  # ms
    places: int = 0
    since: float = float("inf")
    """Events since this time of the clock are measured."""

    async def watch(self, load: Load, name: str) -> None:
        """Follow a session, until cancelled."""
        try:
            async for answer in load.stub(name).WatchSession(pb.WatchSessionRequest(name=name)):
                self.connected.add(name)
                created = answer.event.time.ToMicroseconds() / 1e6
                if answer.HasField("queue"):
                    self.places += 1
                elif created >= self.since:
                    self.delays.append(1000 * (time.time() - created))
        except Exception as error:
            load.failures.append(f"watch: {error}"[:200])


def watched_names(names: list[str], count: int) -> list[str]:
    """Half of them the first ones, the others at equal distances."""
    first = names[: count // 2]
    rest = names[len(first) :]
    return first + rest[:: max(1, len(rest) // max(1, count - len(first)))][: count - len(first)]


async def create_all(load: Load, count: int) -> list[float]:
    """Create sessions; return the milliseconds of each creation, in order."""
    numbers, taken = itertools.count(), [0.0] * count

    async def create() -> None:
        while (number := next(numbers)) < count:
            began = time.perf_counter()
            await load.create(f"load-{number:05}")
            taken[number] = 1000 * (time.perf_counter() - began)

    await asyncio.gather(*(create() for _ in range(CREATORS)))
    load.names.sort()
    return taken


async def run_waiting(given: argparse.Namespace, url: str) -> dict[str, Any]:
    """Fill the queue, measure events and reads, and start the server again."""
    async with stack(given, url, running=given.running) as opened:
        load, watched = opened.load, Watched()
        began = time.perf_counter()
        creations = await create_all(load, given.running + given.waiting)
        seconds_to_create, created = time.perf_counter() - began, await opened.server.ask()
        names = watched_names(load.names, given.watchers)
        watching = [asyncio.create_task(watched.watch(load, name)) for name in names]
        began = time.perf_counter()
        async with asyncio.timeout(120):
            while len(watched.connected) < len(names) and not load.failures:
                await asyncio.sleep(0.05)
        seconds_to_watch = time.perf_counter() - began
        readers = [asyncio.create_task(load.read(number)) for number in range(READERS)]
        await asyncio.sleep(WARMUP_SECONDS)
        load.reads.clear()
        watched.since, watched.places, busy = time.time(), 0, opened.server.seconds()
        await asyncio.sleep(given.seconds)
        busy = opened.server.seconds() - busy
        used, failures = await opened.server.ask(), list(load.failures)
        for task in [*readers, *watching]:
            task.cancel()
        await asyncio.gather(*readers, *watching, return_exceptions=True)
        last = load.names[-1]
        before = (await load.session(last)).queue
        began = time.perf_counter()
        await opened.stop()
        stopped = time.perf_counter()
        await opened.start()
        after = (await load.session(last)).queue
        answered = time.perf_counter()
        await load.create("load-after-restart")
        accepted = time.perf_counter()
        reads = list(itertools.chain.from_iterable(load.reads.values()))
        tenth = max(1, len(creations) // 10)
        return {
            "p99_ms": percentile(watched.delays, 0.99),
            "p50_ms": percentile(watched.delays, 0.5),
            "events": len(watched.delays),
            "places": watched.places,
            "reads_p99_ms": percentile(reads, 0.99),
            "reads_p50_ms": percentile(reads, 0.5),
            "reads_p99_ms_by_method": {kind: percentile(ms, 0.99) for kind, ms in sorted(load.reads.items())},
            "reads": len(reads),
            "creation_p50_ms_by_tenth": [
                percentile(creations[begin : begin + tenth], 0.5) for begin in range(0, tenth * 10, tenth)
            ],
            "seconds_to_create": round(seconds_to_create, 1),
            "seconds_to_watch": round(seconds_to_watch, 1),
            "server_cores": round(busy / given.seconds, 2),
            "stop_seconds": round(stopped - began, 1),
            "restart_seconds": {
                "first_read": round(answered - stopped, 1),
                "first_creation": round(accepted - stopped, 1),
            },
            "waiting": {"before_restart": before.length, "after_restart": after.length},
            "rss_mib": {"created": round(created["rss"] / 2**20), "watched": round(used["rss"] / 2**20)},
            "failed_calls": failures[:10],
        }
