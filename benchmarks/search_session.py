"""Seconds of a whole R2PO session on CartPole-v1, outside the model's latency.

One real session: the four services in one process, SQLite, DBOS, a real trainer as a child process, and a provider of
scripted replies over HTTP in a process of its own. The session plays 20 episodes of the warm-up, 100 iterations with two
candidates of 20 episodes each, and a report of 100 episodes. Its target cannot be reached, so that it uses its whole budget.

The figure is the time from the creation of the session to its end, without the time in which the provider made its replies. The
start of the services is left out, that of the trainer is not. Prints one JSON object; the limit is the goal.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import platform
import resource
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from importlib import metadata
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb
from dressage.api.v1 import session_service_pb2_grpc
from dressage.local.stack import LocalStack
from dressage.serving.channels import connect

FAKES = Path(__file__).resolve().parent.parent / "tests" / "fakes"
PACKAGES = ("dressage", "dbos", "grpcio", "litellm", "sqlalchemy")
GOAL = 15.0
"""Seconds."""
SECONDS = 300.0
EPISODES, EPISODE_BUDGET = 20, 4000


def provide(pipe: Connection) -> None:
    """Serve scripted replies until a message arrives; send the address, and then the seconds that the replies took."""
    sys.path.insert(0, str(FAKES))
    from openai_server import Answer, Request, ScriptedServer
    from search_authors import SearchAuthors

    spent: list[float] = []

    def timed(answer: Answer) -> Answer:
        def reply(request: Request) -> str:
            began = time.perf_counter()
            text = answer.reply(request) if answer.reply else answer.text
            spent.append(time.perf_counter() - began)
            return text

        return replace(answer, reply=reply)

    with ScriptedServer([timed(answer) for answer in SearchAuthors(seed=4).answers()]) as server:
        pipe.send(server.url)
        pipe.recv()
        pipe.send((len(spent), sum(spent)))


async def play(folder: Path, api_base: str, episodes: int) -> v1.Session:
    """Run the session to its end."""
    stack = await LocalStack.start(folder, api_base=api_base)
    try:
        async with connect(stack.address, token=stack.token) as channel:
            stub: Any = session_service_pb2_grpc.SessionServiceStub(channel)
            spec = v1.SessionSpec(intent="balance", environment="environments/CartPole-v1", model="openai/scripted")
            budget = {"episode_budget": episodes, "episodes": EPISODES, "warmup": EPISODES, "target": 1e9}
            spec.parameters.CopyFrom(v1.ParameterSpec(search="r2po", **budget))
            created = await stub.CreateSession(pb.CreateSessionRequest(spec=spec))
            async for _ in stub.WatchSession(pb.WatchSessionRequest(name=created.name), timeout=SECONDS):
                pass
            return await stub.GetSession(pb.GetSessionRequest(name=created.name))
    finally:
        await stack.stop()


def measure(episodes: int) -> dict[str, float]:
    """One session in a new folder: seconds in total, of the provider, and of processor time of this process and its trainer."""
    mine, other = multiprocessing.get_context("spawn").Pipe()
    provider = multiprocessing.get_context("spawn").Process(target=provide, args=(other,), daemon=True)
    provider.start()
    before = _processor_seconds()
    with tempfile.TemporaryDirectory() as folder:
        session = asyncio.run(play(Path(folder), mine.recv(), episodes))
    after = _processor_seconds()
    mine.send("end")
    requests, model_seconds = mine.recv()
    provider.join(10)
    if session.state != v1.SESSION_STATE_EXHAUSTED or session.episodes + session.cache_hits * EPISODES < episodes:
        raise SystemExit(f"the session ended as {session.state} after {session.episodes} episodes: {session.failure}")
    total = (session.end_time.ToMicroseconds() - session.create_time.ToMicroseconds()) / 1e6
    return {
        "seconds": total - model_seconds,
        "model_seconds": model_seconds,
        "requests": requests,
        "iterations": session.spec.max_iterations,
        "processor_seconds": after[0] - before[0],
        "trainer_processor_seconds": after[1] - before[1],
    }


def _processor_seconds() -> tuple[float, float]:
    """Processor time of this process and of its ended children."""
    parts = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    mine, children = (part.ru_utime + part.ru_stime for part in parts)
    return mine, children


def main() -> int:
    """Measure and print the object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--cores", type=int, default=min(2, len(os.sched_getaffinity(0))), help="cores of all processes"
    )
    parser.add_argument("--repeats", type=int, default=3, help="sessions")
    parser.add_argument("--episodes", type=int, default=EPISODE_BUDGET, help="episode budget of a session")
    given = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: given.cores])
    runs = [measure(given.episodes) for _ in range(given.repeats)]
    seconds = sorted(run["seconds"] for run in runs)
    median = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
    report = {
        "name": "search_session",
        "what": f"A whole R2PO session on CartPole-v1, {given.episodes} episodes, scripted replies; the limit is the goal",
        "unit": "seconds",
        "ours": round(median["seconds"], 1),
        "peer": None,
        "ratio": None,
        "limit": GOAL,
        "share_of_limit": round(median["seconds"] / GOAL, 3),
        "repeats": given.repeats,
        "spread": {"seconds": [round(seconds[0], 1), round(seconds[-1], 1)]},
        "cores": given.cores,
        "versions": {"python": platform.python_version(), **{name: metadata.version(name) for name in PACKAGES}},
        "notes": f"{median['iterations']:.0f} iterations, {median['requests']:.0f} replies, which took the provider "
        f"{median['model_seconds']:.1f} s. Processor time: {median['processor_seconds']:.1f} s of the services and "
        f"{median['trainer_processor_seconds']:.1f} s of the trainer. The limit is the goal.",
    }
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
