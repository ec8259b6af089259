"""Time from a workflow's request of a trivial candidate to its receipt of the result, on a live lease.

One real session in one process: SQLite, DBOS, a real trainer as a child process. Its method, which exists for this
benchmark, evaluates one candidate after another: a linear policy on CartPole-v1 that falls at once, for one episode.
The time of the first candidate, which waits for the trainer to start, is left out of the figures. Prints one JSON
object; ``spread`` has the quartiles. The goal is 50 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
import json
import os
import platform
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from dressage.api.internal.v1 import run_service_pb2 as work
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb
from dressage.api.v1 import session_service_pb2_grpc
from dressage.serving.channels import connect
from dressage_orchestrator.lifecycle import assignments, method
from dressage_orchestrator.lifecycle.registry import Methods
from dressage_orchestrator.lifecycle.steering import Directions
from dressage_orchestrator.settings import Settings
from dressage_orchestrator.wiring import start
from google.protobuf.wrappers_pb2 import Int32Value

SECONDS = 300.0
seconds: list[float] = []


class LatencySession(method.MethodSession):
    """Evaluates candidates one after another."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def revise(self, number: int, directions: Directions) -> method.Proposal:
        return method.Proposal("candidates that fall at once")

    def check(self, number: int, proposal: method.Proposal) -> method.Proposal:
        return proposal

    def evaluate(self, number: int, proposal: method.Proposal) -> method.EvaluationResult:
        for index in range(method.custom_spec(self._context.spec, Int32Value).value):
            evaluate = work.EvaluateAssignment(environment="CartPole-v1", seeds=[index])
            evaluate.policy.CopyFrom(work.PolicySpec(kind="linear", bias=False))
            evaluate.candidates.add(id="c").parameters.values.extend([1.0] * 4 + [0.0] * 4)
            begin = time.perf_counter()
            name = assignments.assign(self._context, number, f"candidate-{index}", work.Assignment(evaluate=evaluate))
            row = assignments.wait(self._context, name)
            seconds.append(time.perf_counter() - begin)
            result = row.assignment.candidates[0]
            if result.HasField("failure") or len(result.returns) != 1:
                raise RuntimeError(f"the candidate was not evaluated: {row.assignment}")
        return method.EvaluationResult(passed=True)

    def confirm(self, number: int, proposal: method.Proposal) -> method.EvaluationResult:
        return method.EvaluationResult(passed=True)

    def deliverable(self) -> None:
        return None


class LatencyMethod(method.Method):
    """See `LatencySession`; its settings are the number of candidates."""

    name, spec_type = "latency", Int32Value

    def open(self, context: Any) -> LatencySession:
        return LatencySession(context)


async def measure(folder: Path, repeats: int) -> v1.Session:
    nowhere = "127.0.0.1:9"  # no author, judge or renderer takes part
    settings = Settings(
        data_dir=folder,
        address="127.0.0.1:0",
        llm_agent_address=nowhere,
        judge_address=nowhere,
        renderer_address=nowhere,
    )
    service = await start(settings, methods=Methods({"latency": LatencyMethod()}))
    try:
        async with connect(service.address) as channel:
            stub: Any = session_service_pb2_grpc.SessionServiceStub(channel)
            spec = v1.SessionSpec(intent="measure", environment="environments/CartPole-v1", max_iterations=1)
            spec.custom.Pack(Int32Value(value=repeats + 1))
            created = await stub.CreateSession(pb.CreateSessionRequest(spec=spec))
            watched = stub.WatchSession(pb.WatchSessionRequest(name=created.name), timeout=SECONDS)
            async for _ in watched:
                pass
            return await stub.GetSession(pb.GetSessionRequest(name=created.name))
    finally:
        await service.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=100)
    repeats = parser.parse_args().repeats
    with tempfile.TemporaryDirectory() as folder:
        session = asyncio.run(measure(Path(folder), repeats))
    if session.state != v1.SESSION_STATE_SUCCEEDED:
        raise SystemExit(f"the session ended as {session.state}: {session.state_reason}")
    times = sorted(1000 * value for value in seconds[1:])
    median = statistics.median(times)
    result = {
        "name": "assignment_latency",
        "what": "Latency of an assignment with one trivial candidate; the limit is the goal, 50 ms",
        "unit": "milliseconds",
        "ours": round(median, 1),
        "peer": None,
        "ratio": None,
        "limit": 50.0,
        "share_of_limit": round(median / 50.0, 3),
        "repeats": repeats,
        "spread": {"quartiles": [round(times[len(times) // 4], 1), round(times[3 * len(times) // 4], 1)]},
        "cores": os.cpu_count() or 1,
        "versions": {
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in ("dressage", "dbos", "grpcio", "gymnasium")},
        },
        "notes": f"Numeric candidates. The first, with the start of the trainer: {1000 * seconds[0]:.0f} ms; 95 % of the "
        f"others within {times[int(0.95 * len(times))]:.1f} ms. The limit is the goal.",
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
