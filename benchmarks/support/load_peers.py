"""The neighbours of `load_server.py`: a scripted llm-agent, and instant trainers that speak `Work` as real ones do.

Prints the address of llm-agent as JSON. For each line of its input it prints what it has done.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.internal.v1 import agent_service_pb2_grpc as agent_rpc
from dressage.api.internal.v1 import run_service_pb2 as work
from dressage.api.internal.v1 import run_service_pb2_grpc as rpc
from dressage.api.v1 import session_pb2 as v1
from dressage.serving.channels import connect
from dressage.serving.server import GrpcServer

CHANNELS = 8


class ScriptedAgent(agent_rpc.AgentServiceServicer):
    """Answers each task with the same proposal, after the time that a model would take."""

    def __init__(self, think: float) -> None:
        self.think, self.tasks = think, 0

    async def Converse(  # noqa: N802
        self, requests: AsyncIterator[Any], context: Any
    ) -> AsyncIterator[agent_pb.ConverseResponse]:
        task = (await anext(requests)).task
        self.tasks += 1
        await asyncio.sleep(self.think)
        result = agent_pb.TaskResult(model=task.model, cost=v1.Cost(requests=1, input_tokens=1000, output_tokens=100))
        result.reward.CopyFrom(agent_pb.RewardProposal(source="# none\n", reasoning="a proposal"))
        yield agent_pb.ConverseResponse(result=result)

    async def DescribeModel(  # noqa: N802
        self, request: Any, context: Any
    ) -> agent_pb.DescribeModelResponse:
        return agent_pb.DescribeModelResponse(
            model=request.model,
            language_model=True,
            configured=True,
            input_dollars_per_million=1.0,
            output_dollars_per_million=10.0,
        )


class Trainers:
    """Trainers as tasks, one for each run."""

    def __init__(self) -> None:
        self.assignments, self.failed = 0, 0
        self._channels: list[grpc.aio.Channel] = []
        self._running: dict[str, asyncio.Task[None]] = {}

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Start what the launcher asks for, and report the ends."""

        def ended(task: asyncio.Task[None], run: str, attempt: int) -> None:
            self._running.pop(run, None)
            if not task.cancelled() and task.exception() is not None:
                self.failed += 1
                print(f"{run}: {task.exception()!r}", file=sys.stderr, flush=True)
            writer.write(json.dumps({"run": run, "attempt": attempt}).encode() + b"\n")

        while line := await reader.readline():
            message = json.loads(line)
            if "stop" in message:
                if message["stop"] in self._running:
                    self._running[message["stop"]].cancel()
                continue
            task = asyncio.create_task(self._train(message))
            self._running[message["run"]] = task
            task.add_done_callback(
                lambda task, run=message["run"], attempt=message["attempt"]: ended(task, run, attempt)
            )

    def _channel(self, address: str, run: str) -> grpc.aio.Channel:
        if not self._channels:
            self._channels = [connect(address) for _ in range(CHANNELS)]
        return self._channels[hash(run) % CHANNELS]

    async def _train(self, launch: dict[str, Any]) -> None:
        stub = rpc.RunServiceStub(self._channel(launch["address"], launch["run"]))
        stream: Any = stub.Work()
        hello = work.Hello(run=launch["run"], attempt=launch["attempt"], token=launch["token"], version="instant")
        hello.sandbox_capabilities.extend(["landlock-5", "seccomp"])
        await stream.write(work.WorkRequest(hello=hello))
        sequence = 0
        async for answer in stream:
            kind = answer.WhichOneof("message")
            if kind in ("no_more_work", "stop"):
                break
            if kind != "assignment":
                continue
            number, task = answer.assignment.id, answer.assignment.evaluate
            seeds = len(task.seeds)
            for candidate in task.candidates:
                sequence += 1
                result = v1.CandidateResult(id=candidate.id, returns=[1.0] * seeds, lengths=[1] * seeds)
                item = f"candidate/{candidate.id}"
                report = work.Report(sequence=sequence, assignment=number, item=item, candidate=result)
                await stream.write(work.WorkRequest(report=report))
            sequence += 1
            done = work.AssignmentResult(evaluate=work.EvaluateResult(episodes=seeds * len(task.candidates)))
            report = work.Report(sequence=sequence, assignment=number, item="result", result=done)
            await stream.write(work.WorkRequest(report=report))
            self.assignments += 1
        await stream.done_writing()


async def serve(think: float, socket: Path) -> None:
    """Serve until the end of the input."""
    agent, trainers = ScriptedAgent(think), Trainers()
    server = GrpcServer(service_name="peers", address="127.0.0.1:0", grace_seconds=0.2)
    server.add(agent_rpc.add_AgentServiceServicer_to_server, agent, "dressage.internal.v1.AgentService")
    address = await server.start()
    listening = await asyncio.start_unix_server(trainers.accept, str(socket))
    print(json.dumps({"agent": address}), flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        counts = {"tasks": agent.tasks, "assignments": trainers.assignments, "failed": trainers.failed}
        print(json.dumps(counts), flush=True)
    listening.close()
    await server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--think", type=float, required=True)
    parser.add_argument("--socket", type=Path, required=True)
    given = parser.parse_args()
    asyncio.run(serve(given.think, given.socket))


if __name__ == "__main__":
    main()
