"""Many sessions at once on one server: latency of reads, memory of a session, and whether anything is lost.

A real orchestrator without admission runs `--sessions` sessions at the same time, each of `--iterations` iterations: a
conversation with a scripted llm-agent that takes `--think` seconds, and an assignment of an instant trainer over a real stream.
`--watchers` clients follow sessions, readers call the API all the time. Three processes share `--cores` cores: the server, its
neighbours, and the clients. Nothing is lost if each session ends with all its iterations, each watcher receives each event
once and in order, and the neighbours did the work once.

`--soak SECONDS` keeps the number of sessions up with new ones instead, and compares memory, descriptors, threads and tasks of
the server over time. `--waiting N` lets as many sessions wait for `--running` places, see `support/load_waiting.py`.
Prints one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
import itertools
import json
import os
import platform
import statistics
import time
from typing import Any

from dressage.api.v1 import session_pb2 as v1
from support.load_clients import READERS, SLACK_SECONDS, database, percentile, stack
from support.load_waiting import run_waiting

LIMIT_MS, LIMIT_MIB = 100.0, 1.0
EVENT_LIMIT_MS, RESTART_LIMIT_SECONDS = 1000.0, 10.0


async def run_load(given: argparse.Namespace, url: str) -> dict[str, Any]:
    """All sessions at once, to their ends."""
    async with stack(given, url) as opened:
        server, peers, load = opened.server, opened.peers, opened.load
        before, began = await server.ask(), time.perf_counter()
        gate = asyncio.Semaphore(16)

        async def create(number: int) -> None:
            async with gate:
                await load.create(f"load-{number}")

        await asyncio.gather(*(create(number) for number in range(given.sessions)))
        created = time.perf_counter() - began
        watching = [asyncio.create_task(load.watch(name)) for name in sorted(load.names)[: given.watchers]]
        readers = [asyncio.create_task(load.read(number)) for number in range(READERS)]
        most_running, peak = 0, before
        deadline = given.think * given.iterations + SLACK_SECONDS
        async with asyncio.timeout(deadline):
            while True:
                counts, used = await load.active(), await server.ask()
                most_running = max(most_running, counts[v1.SESSION_STATE_RUNNING])
                peak = {key: max(peak[key], used[key]) for key in used}
                if not any(counts.values()):
                    break
                await asyncio.sleep(5.0)
            await asyncio.gather(*watching)
        for reader in readers:
            reader.cancel()
        sessions = [await load.session(name) for name in load.names]
        done = await peers.ask()
        total = given.sessions * given.iterations
        lost = [
            s.name for s in sessions if s.state != v1.SESSION_STATE_EXHAUSTED or s.current_iteration != given.iterations
        ]
        gaps = [name for name, seen in load.events.items() if seen != list(range(1, len(seen) + 1)) or not seen]
        latencies = list(itertools.chain.from_iterable(load.reads.values()))
        return {
            "p99_ms": percentile(latencies, 0.99),
            "p50_ms": percentile(latencies, 0.5),
            "p99_ms_by_method": {kind: percentile(values, 0.99) for kind, values in sorted(load.reads.items())},
            "reads": len(latencies),
            "most_running_at_once": most_running,
            "mib_per_session": round((peak["rss"] - before["rss"]) / given.sessions / 2**20, 3),
            "peak": {**peak, "rss": round(peak["rss"] / 2**20)},
            "before": {**before, "rss": round(before["rss"] / 2**20)},
            "seconds": round(time.perf_counter() - began, 1),
            "seconds_to_create": round(created, 1),
            "server_processor_seconds": round(server.seconds(), 1),
            "lost": {
                "sessions": lost[:10],
                "watchers_with_gaps": gaps[:10],
                "failed_calls": load.failures[:10],
                "assignments": total - done["assignments"],
                "conversations": total - done["tasks"],
                "failed_trainers": done["failed"],
            },
            "nothing_lost": not lost
            and not gaps
            and not load.failures
            and done["assignments"] == done["tasks"] == total,
        }


async def run_soak(given: argparse.Namespace, url: str) -> dict[str, Any]:
    """Keep the number of sessions up with new ones for a time."""
    async with stack(given, url) as opened:
        server, peers, load = opened.server, opened.peers, opened.load
        began, samples = time.perf_counter(), []
        stopping = asyncio.Event()
        numbers = itertools.count()

        async def place() -> None:
            while not stopping.is_set():
                name = await load.create(f"soak-{next(numbers)}")
                await load.watch(name)
                load.events.pop(name)
                load.names.remove(name)
                load.ended += 1

        await load.create("soak-first")  # for readers, before there is another one
        places = [asyncio.create_task(place()) for _ in range(given.sessions)]
        readers = [asyncio.create_task(load.read(number)) for number in range(READERS)]
        while time.perf_counter() - began < given.soak:
            await asyncio.sleep(max(1.0, given.soak / 60))
            samples.append(await server.ask())
            load.reads = {kind: values[-10_000:] for kind, values in load.reads.items()}
        stopping.set()
        async with asyncio.timeout(given.think * given.iterations + SLACK_SECONDS):
            await asyncio.gather(*places)
        for reader in readers:
            reader.cancel()
        quarter = max(1, len(samples) // 4)
        early, late = samples[quarter : 2 * quarter], samples[-quarter:]
        means = [{key: statistics.mean(sample[key] for sample in part) for key in samples[0]} for part in (early, late)]
        growth = {key: round(means[1][key] / means[0][key] - 1, 4) for key in samples[0]}
        return {
            "seconds": round(time.perf_counter() - began, 1),
            "sessions_ended": load.ended,
            "growth_from_second_to_last_quarter": growth,
            "rss_mib": [round(sample["rss"] / 2**20) for sample in samples[:: max(1, len(samples) // 12)]],
            "descriptors": [sample["descriptors"] for sample in samples[:: max(1, len(samples) // 12)]],
            "tasks": [sample["tasks"] for sample in samples[:: max(1, len(samples) // 12)]],
            "p99_ms": percentile(list(itertools.chain.from_iterable(load.reads.values())), 0.99),
            "failed_calls": load.failures[:10],
            "failed_trainers": (await peers.ask())["failed"],
        }


MODES = {"load": run_load, "soak": run_soak, "waiting": run_waiting}


def main() -> None:
    """Measure and print the object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--watchers", type=int, default=500)
    parser.add_argument("--iterations", type=int, default=4)
    parser.add_argument(
        "--think", type=float, default=0.0, help="seconds of a conversation [a twentieth of the sessions]"
    )
    parser.add_argument("--database", choices=("sqlite", "postgresql", "both"), default="both")
    parser.add_argument("--cores", type=int, default=2, help="cores of all processes")
    parser.add_argument("--soak", type=float, default=0.0, metavar="SECONDS", help="keep sessions coming for this long")
    parser.add_argument("--waiting", type=int, default=0, help="sessions that wait in the queue")
    parser.add_argument("--running", type=int, default=20, help="sessions that run at once, with --waiting")
    parser.add_argument("--seconds", type=float, default=45.0, help="time of the measurement, with --waiting")
    given = parser.parse_args()
    given.think = given.think or (20.0 if given.waiting else given.sessions / 20)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: given.cores])
    mode = "waiting" if given.waiting else "soak" if given.soak else "load"
    figures = {}
    for kind in ("sqlite", "postgresql") if given.database == "both" else (given.database,):
        with database(kind) as url:
            figures[kind] = asyncio.run(MODES[mode](given, url))
    what = f"{given.sessions} sessions at once with {given.watchers} watchers: p99 of reads, MiB of a session, losses"
    limit, limits = LIMIT_MS, {"p99_ms": LIMIT_MS, "mib_per_session": LIMIT_MIB}
    if mode == "waiting":
        what = f"{given.waiting} waiting sessions with {given.watchers} watchers: p99 from an event to its watcher"
        limit = EVENT_LIMIT_MS
        limits = {"events_p99_ms": limit, "reads_p99_ms": LIMIT_MS, "restart_seconds": RESTART_LIMIT_SECONDS}
    report = {
        "name": "sessions_load",
        "mode": mode,
        "what": what,
        "unit": "milliseconds",
        "ours": max(figure["p99_ms"] for figure in figures.values()),
        "peer": None,
        "ratio": None,
        "limit": limit,
        "limits": limits,
        "figures": figures,
        "options": {key: value for key, value in vars(given).items()},
        "cores": given.cores,
        "load_average": os.getloadavg(),
        "versions": {
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in ("dressage", "dbos", "grpcio", "sqlalchemy")},
        },
        "notes": f"{'Sessions wait' if given.waiting else 'Admission is off'}. DBOS has a thread for each running session; "
        "calls use the pools of the orchestrator. PostgreSQL runs without fsync. "
        "The server's memory includes the streams of watchers and trainers.",
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
