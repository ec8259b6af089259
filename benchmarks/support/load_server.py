"""The server of `sessions_load.py`: a real orchestrator whose trainers are streams of another process.

Prints its address as JSON. For each line of its input it prints what it uses: memory, descriptors, threads, tasks.
"""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import json
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.internal.v1 import run_service_pb2 as work
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import Unavailable
from dressage_orchestrator import wiring
from dressage_orchestrator.launch.protocol import AttemptResult, ExitKind, Launch
from dressage_orchestrator.lifecycle import assignments, conversations, method
from dressage_orchestrator.lifecycle.registry import Methods
from dressage_orchestrator.lifecycle.steering import Directions
from dressage_orchestrator.settings import Settings
from google.protobuf.wrappers_pb2 import Int32Value
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_fixed


class LoadSession(method.MethodSession):
    """Each iteration asks the model once and has one candidate evaluated by a trainer."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def revise(self, number: int, directions: Directions) -> method.Proposal:
        def ask() -> str:
            task = agent_pb.Task(key=conversations.key_of(self._context, f"iterations/{number}/number"))
            task.reward_author.brief.CopyFrom(conversations.brief(self._context))
            return conversations.converse(self._context, number, task).reward.reasoning

        return method.Proposal(self._context.step(f"ask:{number}", ask))

    def check(self, number: int, proposal: method.Proposal) -> method.Proposal:
        author = v1.Iteration(author="scripted")
        self._context.step(
            f"check:{number}", lambda: self._context.store.update_iteration(number, author, ["author"]) and None
        )
        return proposal

    def evaluate(self, number: int, proposal: method.Proposal) -> method.EvaluationResult:
        evaluate = work.EvaluateAssignment(environment="CartPole-v1", seeds=[number])
        evaluate.policy.CopyFrom(work.PolicySpec(kind="linear", bias=False))
        evaluate.candidates.add(id="c").parameters.values.extend([1.0] * 8)
        name = assignments.assign(self._context, number, "candidate", work.Assignment(evaluate=evaluate))
        assignments.wait(self._context, name)
        self._context.step(f"score:{number}", lambda: self._context.store.record_score(number, 0.1))
        return method.EvaluationResult(passed=False, score=0.1)

    def confirm(self, number: int, proposal: method.Proposal) -> method.EvaluationResult:
        return method.EvaluationResult(passed=True)

    def deliverable(self) -> None:
        return None


class LoadMethod(method.Method):
    """See `LoadSession`."""

    name, spec_type = "load", Int32Value

    def open(self, context: Any) -> LoadSession:
        return LoadSession(context)


def _retrying() -> AsyncRetrying:
    """The local launcher's retries while the database is busy."""
    return AsyncRetrying(
        retry=retry_if_exception_type(Unavailable), stop=stop_after_delay(600.0), wait=wait_fixed(2.0), reraise=True
    )


class StreamLauncher:
    """A launcher of trainers that are streams of the process behind a socket."""

    pools: frozenset[str] | None = None
    attempts_per_launch = 1
    scheduling_seconds = 1.0

    def __init__(self, socket: Path, on_result: Callable[[AttemptResult], Awaitable[None]]) -> None:
        self._socket, self._on_result = socket, on_result
        self._active: dict[str, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def cores(self, pool: str) -> int:
        return 1

    async def start(self) -> int:
        self._reader, self._writer = await asyncio.open_unix_connection(str(self._socket))
        self._spawn(self._listen())
        return 0

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _listen(self) -> None:
        while line := await self._reader.readline():
            ended = json.loads(line)
            self._active.pop(ended["run"], None)
            result = AttemptResult(ended["run"], ended["attempt"], ExitKind.DONE, "")
            await _retrying()(self._on_result, result)

    def submit(self, launch: Launch, starting: Callable[[], Awaitable[bool]]) -> None:
        if self._active.get(launch.run) == launch.attempt:
            return
        self._active[launch.run] = launch.attempt
        self._spawn(self._begin(launch, starting))

    async def _begin(self, launch: Launch, starting: Callable[[], Awaitable[bool]]) -> None:
        if not await _retrying()(starting):
            self._active.pop(launch.run, None)
            return
        self._send(run=launch.run, attempt=launch.attempt, address=launch.address, token=launch.token)

    def _send(self, **message: Any) -> None:
        self._writer.write(json.dumps(message).encode() + b"\n")

    def has_trainer(self, run: str, attempt: int) -> bool:
        return self._active.get(run) == attempt

    def active_runs(self) -> frozenset[str]:
        return frozenset(self._active)

    def trainer_connected(self, run: str, attempt: int) -> None:
        return None

    async def stop(self, run: str, attempt: int | None = None) -> None:
        if run in self._active:
            self._send(stop=run)

    async def logs(self, run: str, *, tail_bytes: int) -> bytes | None:
        return None

    def delete_logs(self, run: str) -> None:
        return None

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        self._writer.close()


def usage() -> dict[str, int]:
    """What this process uses now."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {
        "rss": int(status["VmRSS"].split()[0]) * 1024,
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "tasks": len(asyncio.all_tasks()),
    }


async def serve(given: argparse.Namespace) -> None:
    """Serve until the end of the input."""

    async def open_launcher(settings: Settings, *, pools: Any, folder: Path, controller: Any) -> StreamLauncher:
        return StreamLauncher(given.socket, controller.handle_result)

    wiring.open_launcher = open_launcher  # type: ignore[assignment]
    settings = Settings(
        data_dir=given.data_dir,
        database_url=given.database or None,
        executor_name="load",
        address="127.0.0.1:0",
        llm_agent_address=given.agent,
        max_running_sessions=given.max_running,
        default_model="test/model",
        max_reviews=0,
        log_level="warning",
    )
    service = await wiring.start(settings, methods=Methods({"load": LoadMethod()}))
    print(json.dumps({"address": service.address}), flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(usage()), flush=True)
    await service.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    faulthandler.register(signal.SIGUSR1)  # its stacks, for a server that does not answer
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--database", default="")
    parser.add_argument("--max-running", type=int, default=0, help="sessions that run at once; 0: any")
    parser.add_argument("--agent", required=True)
    parser.add_argument("--socket", type=Path, required=True)
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
