"""Many sessions at once on one server: latency of reads, memory of a session, and whether anything is lost.

A real orchestrator without admission runs `--sessions` sessions at the same time, each of `--iterations` iterations: a
conversation with a scripted llm-agent that takes `--think` seconds, and an assignment of an instant trainer over a real stream.
`--watchers` clients follow sessions, readers call the API all the time. Three processes share `--cores` cores: the server, its
neighbours, and the clients. Nothing is lost if each session ends with all its iterations, each watcher receives each event
once and in order, and the neighbours did the work once.

`--soak SECONDS` keeps the number of sessions up with new ones instead, and compares memory, descriptors, threads and tasks of
the server over time. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.metadata
import itertools
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb
from dressage.api.v1 import session_service_pb2_grpc
from dressage.serving.channels import connect
from google.protobuf.wrappers_pb2 import Int32Value

ROOT = Path(__file__).parents[1]
SUPPORT = Path(__file__).parent / "support"
CHANNELS, READERS, READ_PAUSE, PAGE = 8, 4, 0.05, 100
LIMIT_MS, LIMIT_MIB = 100.0, 1.0
SLACK_SECONDS = 900.0
"""Time beyond that of the model after which sessions that have not ended are lost."""


class Process:
    """A process of the benchmark, which answers each line of its input with one line of JSON."""

    def __init__(self, module: str, *arguments: str, log: Path) -> None:
        command = [sys.executable, str(SUPPORT / module), *arguments]
        self._log = log.open("wb")
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True
        )

    def read(self) -> dict[str, Any]:
        """The next object that it prints."""
        assert self.process.stdout is not None
        while line := self.process.stdout.readline():
            with contextlib.suppress(json.JSONDecodeError):  # a line of the log
                document = json.loads(line)
                if "event" not in document:
                    return dict(document)
        raise SystemExit(f"a process of the benchmark has ended; see {self._log.name}")

    async def ask(self) -> dict[str, Any]:
        """What it uses, or has done."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return await asyncio.to_thread(self.read)

    def seconds(self) -> float:
        """Processor time so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        """End it."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self._log.close()


@dataclass
class Load:
    """The clients, and what they have seen."""

    given: argparse.Namespace
    stubs: list[Any]
    reads: dict[str, list[float]] = field(default_factory=dict)
    events: dict[str, list[int]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    ended: int = 0

    def stub(self, name: str) -> Any:
        return self.stubs[hash(name) % len(self.stubs)]

    async def create(self, ident: str) -> str:
        spec = v1.SessionSpec(
            intent="load", environment="environments/CartPole-v1", max_iterations=self.given.iterations
        )
        spec.custom.Pack(Int32Value())
        request = pb.CreateSessionRequest(spec=spec, session_id=ident, request_id=ident)
        name: str = (await self.stub(ident).CreateSession(request, timeout=SLACK_SECONDS)).name
        self.names.append(name)
        return name

    async def watch(self, name: str) -> None:
        """Follow a session to its end, also when a stream breaks."""
        seen = self.events.setdefault(name, [])
        token = ""
        while True:
            try:
                request = pb.WatchSessionRequest(name=name, resume_token=token)
                async for answer in self.stub(name).WatchSession(request):
                    token = answer.resume_token
                    seen.append(answer.event.sequence)
                return
            except Exception as error:  # a stream that breaks is counted and taken up again
                self.failures.append(f"watch: {type(error).__name__}")
                await asyncio.sleep(1)

    async def read(self, number: int) -> None:
        """Call the API as a page or a script does, until cancelled."""
        choice = random.Random(number)
        while True:
            name, stub = choice.choice(self.names), self.stub(f"reader-{number}")
            calls: tuple[tuple[Any, Any], ...] = (
                (stub.GetSession, pb.GetSessionRequest(name=name)),
                (stub.ListSessions, pb.ListSessionsRequest(page_size=50)),
                (stub.ListIterations, pb.ListIterationsRequest(parent=name)),
                (stub.GetLineage, pb.GetLineageRequest(name=name)),
            )
            call, request = choice.choice(calls)
            kind = type(request).__name__.removesuffix("Request")
            began = time.perf_counter()
            try:
                await call(request, timeout=30)
                self.reads.setdefault(kind, []).append(1000 * (time.perf_counter() - began))
            except Exception as error:
                self.failures.append(f"{kind}: {error}"[:200])
            await asyncio.sleep(READ_PAUSE)

    async def session(self, name: str) -> v1.Session:
        """A session as it is now."""
        session: v1.Session = await self.stub(name).GetSession(pb.GetSessionRequest(name=name), timeout=120)
        return session

    async def active(self) -> dict[int, int]:
        """Number of sessions in each state that is not final."""
        counts = {}
        for state in (v1.SESSION_STATE_PENDING, v1.SESSION_STATE_RUNNING):
            count, token = 0, ""
            while True:
                request = pb.ListSessionsRequest(page_size=PAGE, page_token=token, state=state)
                page = await self.stubs[0].ListSessions(request, timeout=120)
                count += len(page.sessions)
                token = page.next_page_token
                if not token:
                    break
            counts[state] = count
        return counts


@contextlib.asynccontextmanager
async def stack(given: argparse.Namespace, url: str) -> AsyncIterator[tuple[Process, Process, Load]]:
    """The processes, and clients of the server."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        socket = folder / "trainers.sock"
        peers = Process("load_peers.py", "--think", str(given.think), "--socket", str(socket), log=folder / "peers.log")
        agent = peers.read()["agent"]
        arguments = ["--data-dir", str(folder / "data"), "--agent", agent, "--socket", str(socket), "--database", url]
        server = Process("load_server.py", *arguments, log=folder / "server.log")
        channels = []
        try:
            address = server.read()["address"]
            channels = [connect(address) for _ in range(CHANNELS)]
            yield server, peers, Load(given, [session_service_pb2_grpc.SessionServiceStub(c) for c in channels])
        finally:
            for channel in channels:
                await channel.close()
            server.close()
            peers.close()


@contextlib.contextmanager
def database(kind: str) -> Iterator[str]:
    """URL of a database; empty for SQLite."""
    if kind == "sqlite":
        yield ""
        return
    sys.path.insert(0, str(ROOT))
    from tests.servers.postgres import postgres

    with postgres() as server:
        yield server.database()


def percentile(values: list[float], share: float) -> float:
    """The value below which a share of the values is."""
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 1) if ordered else 0.0


async def run_load(given: argparse.Namespace, url: str) -> dict[str, Any]:
    """All sessions at once, to their ends."""
    async with stack(given, url) as (server, peers, load):
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
    async with stack(given, url) as (server, peers, load):
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
    given = parser.parse_args()
    given.think = given.think or given.sessions / 20
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: given.cores])
    figures = {}
    for kind in ("sqlite", "postgresql") if given.database == "both" else (given.database,):
        with database(kind) as url:
            figures[kind] = asyncio.run(run_soak(given, url) if given.soak else run_load(given, url))
    report = {
        "name": "sessions_load",
        "mode": "soak" if given.soak else "load",
        "what": f"{given.sessions} sessions at once with {given.watchers} watchers: p99 of reads, MiB of a session, losses",
        "unit": "milliseconds",
        "ours": max(figure["p99_ms"] for figure in figures.values()),
        "peer": None,
        "ratio": None,
        "limit": LIMIT_MS,
        "limits": {"p99_ms": LIMIT_MS, "mib_per_session": LIMIT_MIB},
        "figures": figures,
        "options": {key: value for key, value in vars(given).items()},
        "cores": given.cores,
        "load_average": os.getloadavg(),
        "versions": {
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in ("dressage", "dbos", "grpcio", "sqlalchemy")},
        },
        "notes": "Admission is off. DBOS has a thread for each running session; calls use the pools of the orchestrator. "
        "PostgreSQL runs without fsync. The server's memory includes the streams of watchers and trainers.",
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
