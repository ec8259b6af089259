"""Runs benchmarks: each case is a session, with a bounded number of sessions at a time.

The state is in rows, and the session of a case has a fixed id and request id. After a crash a driver therefore continues,
and no case runs twice.
"""

from __future__ import annotations

import asyncio
import secrets
from functools import partial
from typing import Any

import structlog
from dressage.api.v1 import benchmark_service_pb2 as pb
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as session_api
from dressage.errors import DressageError, InvalidArgument, ResourceExhausted
from dressage.serving.validation import MessageValidator

from dressage_orchestrator import resource_names
from dressage_orchestrator.benchmark_table import DEFAULT_GATE, fill_groups, gate_score, stages
from dressage_orchestrator.clock import timestamp
from dressage_orchestrator.database import benchmarks, request_ids, sessions
from dressage_orchestrator.database.engine import DatabaseLost, Fenced, Transaction
from dressage_orchestrator.notifications import Notifier
from dressage_orchestrator.quotas import WAITING
from dressage_orchestrator.service import Sessions, caller

_POLL_SECONDS = 2.0


class Benchmarks:
    """Starts benchmarks and drives them.

    :param parallel: sessions of one benchmark at a time.
    """

    def __init__(self, service: Sessions, notifier: Notifier, *, parallel: int) -> None:
        self._service = service
        self._notifier = notifier
        self._parallel = parallel
        self._validate = MessageValidator()
        self._drivers: dict[str, asyncio.Task[None]] = {}
        self._log = structlog.get_logger("dressage.benchmarks")

    async def recover(self) -> None:
        """Resume all pending benchmarks that this server does not drive yet; called periodically.

        All servers that share a database drive all benchmarks. The session of a case is created once, by the first of them.
        """
        for name in await self._service.read(benchmarks.pending):
            self._drive(name)

    async def close(self) -> None:
        """Stop driving; benchmarks can be resumed."""
        tasks = list(self._drivers.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def create(self, request: pb.CreateBenchmarkRequest) -> pb.Benchmark:
        """Store a benchmark and start it.

        :raises InvalidArgument: for the first case that is not a valid session.
        """
        for number, case in enumerate(request.cases, start=1):
            try:
                spec = _spec(request.template, case)
                self._validate(
                    spec
                )  # a template alone is no valid spec, so the rules of the proto are not checked before
                await self._service.prepare(spec)
            except InvalidArgument as error:
                message = f"case {number} ({case.intent[:60]!r}): {error.message}"
                raise InvalidArgument(message, field=f"cases[{number - 1}]", reason=error.reason) from error
        name, owner = "benchmarks/b-" + secrets.token_hex(5), caller()

        def record(tx: Transaction) -> pb.Benchmark:
            known = request_ids.find(tx, "CreateBenchmark", request.request_id, request)
            if known is not None:
                return benchmarks.get(tx, known)
            benchmark = pb.Benchmark(name=name, template=request.template, staged=request.staged, owner=owner)
            benchmark.stage_gate = (request.stage_gate or DEFAULT_GATE) if request.staged else 0.0
            stage_of = stages(request.cases, parallel=self._parallel) if request.staged else [0] * len(request.cases)
            for case, stage in zip(request.cases, stage_of, strict=True):
                kept = benchmark.cases.add(intent=case.intent, environment=case.environment, stage=stage)
                kept.category, kept.difficulty = case.category, case.difficulty
            fill_groups(benchmark)
            request_ids.record(tx, "CreateBenchmark", request.request_id, request, name)
            return benchmarks.create(tx, benchmark)

        benchmark = await self._service.transact(record)
        self._drive(benchmark.name)
        return benchmark

    async def cancel(self, name: str) -> pb.Benchmark:
        """Cancel a benchmark and its sessions."""

        def mark(message: pb.Benchmark) -> None:
            message.cancelled = True

        changed = await self._service.transact(lambda tx: benchmarks.change(tx, name, mark))
        for case in changed.cases:
            if case.session and case.state not in sessions.ENDED:
                await self._service.cancel(resource_names.parse_session(case.session), "its benchmark was cancelled")
        return changed

    def _drive(self, name: str) -> None:
        if name not in self._drivers:
            task = asyncio.create_task(self._run(name), name=name)
            self._drivers[name] = task
            task.add_done_callback(lambda done: self._forget(name, done))

    def _forget(self, name: str, task: asyncio.Task[None]) -> None:
        self._drivers.pop(name, None)
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        outages = (DatabaseLost, Fenced)
        cause = error.split(outages)[1] if isinstance(error, BaseExceptionGroup) else error
        if cause is None or isinstance(cause, outages):
            self._log.warning("the database is unavailable; the benchmark is resumed later", benchmark=name)
        else:
            self._log.error("benchmark driver failed", benchmark=name, exc_info=error)

    async def _run(self, name: str) -> None:
        slots = asyncio.Semaphore(self._parallel)
        benchmark = await self._service.read(lambda tx: benchmarks.get(tx, name))
        order = sorted({case.stage for case in benchmark.cases})
        stopped = ""
        for stage in order:
            benchmark = await self._enter(name, stage)
            async with asyncio.TaskGroup() as group:
                for index, case in enumerate(benchmark.cases):
                    if case.stage == stage:
                        group.create_task(self._case(name, index, slots))
            benchmark = await self._service.read(lambda tx: benchmarks.get(tx, name))
            score = gate_score(benchmark)
            if benchmark.cancelled:
                stopped = "cancelled"
                break
            if benchmark.staged and stage != order[-1] and score < benchmark.stage_gate:
                stopped = f"stage {stage}: the mean score {score:.2f} is below the gate of {benchmark.stage_gate:g}"
                break

        def end(tx: Transaction) -> None:
            def close(message: pb.Benchmark) -> None:
                message.stopped_reason = stopped
                message.end_time.CopyFrom(timestamp(tx.now))

            benchmarks.change(tx, name, close, ended=True)

        await self._service.transact(end)

    async def _enter(self, name: str, stage: int) -> pb.Benchmark:
        def mark(message: pb.Benchmark) -> None:
            message.stage = stage

        return await self._service.transact(lambda tx: benchmarks.change(tx, name, mark))

    async def _case(self, name: str, index: int, slots: asyncio.Semaphore) -> None:
        async with slots:
            benchmark = await self._service.read(lambda tx: benchmarks.get(tx, name))
            if benchmark.cancelled or benchmark.cases[index].state in sessions.ENDED:
                return
            ident = f"{name.partition('/')[2]}-{index + 1}"
            request = session_api.CreateSessionRequest(session_id=ident, request_id=f"{name}/{index + 1}")
            request.spec.CopyFrom(_spec(benchmark.template, benchmark.cases[index]))
            try:
                session = await self._admitted(request, benchmark)
            except (DatabaseLost, Fenced):
                raise  # not a failure of the case: `recover` resumes the benchmark
            except DressageError as error:
                self._log.warning("a case could not start", benchmark=name, case=index + 1, reason=error.reason)
                failed = v1.Session(state=v1.SESSION_STATE_FAILED, state_reason=error.message)
                await self._note(name, index, failed)
                return
            await self._follow(name, index, session)

    async def _admitted(self, request: session_api.CreateSessionRequest, benchmark: pb.Benchmark) -> v1.Session:
        """Create a session for the benchmark's owner, once other sessions of the owner leave room for it."""
        while True:
            try:
                return await self._service.create(request, owner=benchmark.owner)
            except ResourceExhausted as error:
                stored = await self._service.read(partial(benchmarks.get, name=benchmark.name))
                if error.reason not in WAITING or stored.cancelled:
                    raise
                await asyncio.sleep(error.retry_seconds)

    async def _follow(self, name: str, index: int, session: v1.Session) -> None:
        ident = resource_names.parse_session(session.name)
        noted: Any = None
        with self._notifier.subscribe(session.name) as subscription:
            while True:
                current = await self._service.read(lambda tx: sessions.get(tx, ident))
                facts = (current.state, current.current_iteration, current.best_score)
                if facts != noted:
                    noted = facts
                    await self._note(name, index, current)
                if current.state in sessions.ENDED:
                    return
                await subscription.wait(_POLL_SECONDS)

    async def _note(self, name: str, index: int, session: v1.Session) -> None:
        def edit(message: pb.Benchmark, iterations: list[v1.Iteration]) -> None:
            case = message.cases[index]
            case.cost.CopyFrom(session.cost)
            case.env_steps = session.env_steps
            case.iteration_scores[:] = [entry.score for entry in iterations if entry.HasField("score")]
            case.reason = "" if session.state == v1.SESSION_STATE_SUCCEEDED else session.state_reason
            case.session, case.state, case.iterations = session.name, session.state, session.current_iteration
            if session.HasField("best_score"):
                case.score = session.best_score
            if session.HasField("best_judgment"):
                best = session.best_judgment
                case.interval_low, case.interval_high = best.interval_low, best.interval_high
                case.judged_by, case.without_video = best.judged_by, best.without_video
            message.completed = sum(1 for entry in message.cases if entry.state in sessions.ENDED)
            message.passed = sum(1 for entry in message.cases if entry.state == v1.SESSION_STATE_SUCCEEDED)
            fill_groups(message)

        def keep(tx: Transaction) -> None:
            ident = session.name.partition("/")[2]
            iterations = sessions.iterations(tx, ident) if ident else []
            benchmarks.change(tx, name, lambda message: edit(message, iterations))

        await self._service.transact(keep)


def _spec(template: v1.SessionSpec, case: pb.BenchmarkCase) -> v1.SessionSpec:
    spec = v1.SessionSpec()
    spec.CopyFrom(template)
    spec.intent, spec.environment = case.intent, case.environment
    return spec
