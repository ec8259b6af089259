"""Runs benchmarks: each case is a session, with a bounded number of sessions at a time.

The state is in rows, and the session of a case has a fixed id and request id. After a crash a driver therefore continues,
and no case runs twice. A session that failed, or that ended at a limit that is larger now, is resumed, not repeated.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections import Counter
from typing import Any

import structlog
from dressage.api.v1 import benchmark_service_pb2 as pb
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as session_api
from dressage.errors import (
    DressageError,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    Unavailable,
)
from dressage.serving.access import current_principal
from dressage.serving.validation import MessageValidator

from dressage_orchestrator import resource_names
from dressage_orchestrator.benchmark_table import (
    DEFAULT_GATE,
    CaseSource,
    StagedCases,
    can_continue,
    environment_label,
    fill_groups,
    stages,
)
from dressage_orchestrator.clock import timestamp
from dressage_orchestrator.database import benchmarks, idempotency, sessions
from dressage_orchestrator.database.engine import DatabaseLost, ExecutorFenced, ReadTransaction, Transaction
from dressage_orchestrator.database.idempotency import RequestKey
from dressage_orchestrator.notifications import Notifier
from dressage_orchestrator.ownership import caller, check_change
from dressage_orchestrator.quotas import WAITING
from dressage_orchestrator.service import Sessions
from dressage_orchestrator.session_ids import STORE_FAILED

_POLL_SECONDS = 2.0
_STORE_SECONDS = 10.0
_MAX_BYTES = 8 * 1024 * 1024
"""Half of the largest message, in which a benchmark with the results of its cases is returned."""
_TEXTS = {"intent", "environment", "category", "difficulty", "environment_label", "method"}
_INPUTS = {*_TEXTS, "session_id", "spec", "run", "score_range"}
"""Fields of a case that a request sets."""


class Benchmarks:
    """Starts benchmarks and drives them.

    :param parallel: sessions of one benchmark at a time, unless it sets another number.
    :param source: where cases come from.
    """

    def __init__(
        self, service: Sessions, notifier: Notifier, *, parallel: int, source: CaseSource | None = None
    ) -> None:
        self._service = service
        self._notifier = notifier
        self._parallel = parallel
        self._source = source or StagedCases()
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
        """Store a benchmark and start it, or add cases to the existing one and continue it.

        :raises InvalidArgument: for the first case that is not a valid session.
        """
        _check_ids(request)
        await self._check_specs(request)
        name = request.name or "benchmarks/b-" + secrets.token_hex(5)
        key, principal = RequestKey(caller(), "CreateBenchmark", request.request_id), current_principal.get()

        def record(tx: Transaction) -> pb.Benchmark:
            earlier = idempotency.find_request(tx, key, request)
            if earlier is not None:
                return benchmarks.get(tx, earlier)
            tx.lock(name)
            owner = benchmarks.owner(tx, name)
            if owner is None:
                benchmarks.create(tx, pb.Benchmark(name=name, owner=key.principal))
            else:  # again, because another caller may have created it since the call was checked
                check_change(principal, name, owner)
            idempotency.record_request(tx, key, request, name)
            return benchmarks.change(tx, name, lambda message: self._extend(tx, message, request))

        benchmark = await self._service.transact(record)
        self._drive(benchmark.name)
        return benchmark

    async def _check_specs(self, request: pb.CreateBenchmarkRequest) -> None:
        kinds = set()
        for number, case in enumerate(request.cases, start=1):
            spec = _spec(request.template, case)
            try:
                # A template alone is no valid spec, so the rules of the proto are not checked before.
                self._validate(spec)
                if (kind := (case.environment, case.environment_label, case.method)) not in kinds:
                    await self._service.prepare(spec)
            except InvalidArgument as error:
                label = f"{case.method} in {environment_label(case)}" if case.method else repr(case.intent[:60])
                message = f"case {number} ({label}): {error.message}"
                raise InvalidArgument(message, field=f"cases[{number - 1}]", reason=error.reason) from error
            if case.method:  # its other runs are not prepared before they begin
                kinds.add(kind)

    def _extend(self, tx: ReadTransaction, benchmark: pb.Benchmark, request: pb.CreateBenchmarkRequest) -> None:
        """Add the cases of a request, and let those continue that failed or whose limit is larger now (decision 0079)."""
        benchmark.template.CopyFrom(request.template)
        benchmark.parallel = request.parallel or self._parallel
        benchmark.staged = request.staged
        benchmark.stage_gate = (request.stage_gate or DEFAULT_GATE) if request.staged else 0.0
        benchmark.cancelled, benchmark.stopped_reason = False, ""
        benchmark.ClearField("end_time")
        begun = {case.session_id: case for case in benchmark.cases if case.session or case.state}
        first = 1 + max((case.stage for case in begun.values()), default=0)
        added = []
        for number, case in enumerate(request.cases, start=1):
            ident = case.session_id or f"{benchmark.name.partition('/')[2]}-{number}"
            if (row := begun.get(ident)) is None:
                inputs = {field.name: value for field, value in case.ListFields() if field.name in _INPUTS}
                row = pb.BenchmarkCase(**{**inputs, "session_id": ident})
                added.append(row)
            elif case.HasField("spec"):
                row.spec.CopyFrom(case.spec)
            _reopen(row, _session(tx, ident), _spec(request.template, case))
        if request.staged:
            for new, stage in zip(added, stages(added, parallel=benchmark.parallel), strict=True):
                new.stage = first + stage - 1
        cases = [*begun.values(), *added]
        del benchmark.cases[:]
        benchmark.cases.extend(cases)
        _summarise(benchmark)
        if benchmark.ByteSize() > _MAX_BYTES:
            expected = f"a benchmark of at most {_MAX_BYTES} bytes, with its template"
            raise InvalidArgument(field="cases", value=f"{benchmark.ByteSize()} bytes", expected=expected)

    async def cancel(self, name: str) -> pb.Benchmark:
        """Cancel a benchmark and its sessions."""

        def mark(message: pb.Benchmark) -> None:
            message.cancelled = True

        changed = await self._service.transact(lambda tx: benchmarks.change(tx, name, mark))
        for case in changed.cases:
            if case.session and case.state not in sessions.ENDED:
                await self._cancel_session(case.session_id)
        return changed

    async def _cancel_session(self, ident: str) -> None:
        await self._service.cancel(ident, "its benchmark was cancelled")

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
        outages = (DatabaseLost, ExecutorFenced)
        cause = error.split(outages)[1] if isinstance(error, BaseExceptionGroup) else error
        if cause is None or isinstance(cause, outages):
            self._log.warning("the database is unavailable; the benchmark is resumed later", benchmark=name)
        else:
            self._log.error("benchmark driver failed", benchmark=name, exc_info=error)

    async def _run(self, name: str) -> None:
        running: dict[str, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as group:
            with self._notifier.subscribe(name) as subscription:
                while True:
                    benchmark, ready = await self._ask(name)
                    if not ready:
                        return
                    running = {ident: task for ident, task in running.items() if ident in ready and not task.done()}
                    for ident in ready[: benchmark.parallel or self._parallel]:
                        if ident not in running:
                            running[ident] = group.create_task(self._case(name, ident))
                    await subscription.wait(_POLL_SECONDS)

    async def _ask(self, name: str) -> tuple[pb.Benchmark, list[str]]:
        """Ask the source for the cases to run, and record the stage and the end; return the benchmark and the cases' ids."""
        benchmark = await self._service.read(lambda tx: benchmarks.get(tx, name))
        stage, count = benchmark.stage, len(benchmark.cases)
        ready = [case.session_id for case in self._source.ask(benchmark)]
        if ready and (stage, count) == (benchmark.stage, len(benchmark.cases)):
            return benchmark, ready

        def record(tx: Transaction) -> pb.Benchmark:
            ready.clear()

            def edit(message: pb.Benchmark) -> None:
                ready[:] = [case.session_id for case in self._source.ask(message)]
                if not ready:
                    message.end_time.CopyFrom(timestamp(tx.now))

            return benchmarks.change(tx, name, edit)

        return await self._service.transact(record), ready

    async def _case(self, name: str, ident: str) -> None:
        """Create or continue the session of a case, and follow it to its end."""
        try:
            session = await self._open_when_admitted(name, ident)
        except (DatabaseLost, ExecutorFenced):
            raise  # not a failure of the case: `recover` resumes the benchmark
        except DressageError as error:
            self._log.warning("a case could not start", benchmark=name, case=ident, reason=error.reason)
            failed = v1.Session(state=v1.SESSION_STATE_FAILED, state_reason=error.message)
            await self._note(name, ident, failed)
            return
        if (await self._service.read(lambda tx: benchmarks.get(tx, name))).cancelled:
            await self._cancel_session(ident)
        await self._follow(name, session)

    async def _open_when_admitted(self, name: str, ident: str) -> v1.Session:
        """Open a session for the benchmark's owner, once other sessions of the owner leave room for it."""
        while True:
            benchmark = await self._service.read(lambda tx: benchmarks.get(tx, name))
            case = _find(benchmark, ident)
            if case is None:
                raise FailedPrecondition("the case is no longer in the benchmark", reason="CASE_REMOVED")
            try:
                return await self._open(benchmark, case)
            except ResourceExhausted as error:
                if error.reason not in WAITING or benchmark.cancelled:
                    raise
                await asyncio.sleep(error.retry_seconds)
            except Unavailable as error:
                if error.reason != STORE_FAILED or benchmark.cancelled:
                    raise
                await asyncio.sleep(_STORE_SECONDS)

    async def _open(self, benchmark: pb.Benchmark, case: pb.BenchmarkCase) -> v1.Session:
        """Return the session of a case: a new one, or the existing one, resumed if the case asks for a later epoch."""
        ident, spec = case.session_id, _spec(benchmark.template, case)
        current = await self._service.read(lambda tx: _session(tx, ident))
        if current is None:
            request_id = _request_id(benchmark, ident, 0)
            request = session_api.CreateSessionRequest(session_id=ident, request_id=request_id, spec=spec)
            return await self._service.create(request, owner=benchmark.owner)
        if current.HasField("delete_time"):
            message = f"{current.name} is deleted. Restore it with `dressage sessions undelete {ident}`"
            raise FailedPrecondition(message, reason="SESSION_DELETED")
        if current.owner != benchmark.owner:
            message = f"{current.name} belongs to {current.owner or 'nobody'}; only its owner may use it"
            raise PermissionDenied(message, reason="NOT_THE_OWNER")
        if current.epoch >= case.epoch or current.state not in sessions.ENDED:
            return current
        more = max(0, spec.max_iterations - current.spec.max_iterations)
        request_id = _request_id(benchmark, ident, current.epoch + 1)
        resumed = session_api.ResumeSessionRequest(name=current.name, additional_iterations=more, request_id=request_id)
        resumed.budget.CopyFrom(spec.budget)
        return await self._service.resume(resumed, principal=benchmark.owner)

    async def _follow(self, name: str, session: v1.Session) -> None:
        ident = resource_names.parse_session(session.name)
        last: Any = None
        with self._notifier.subscribe(session.name) as subscription:
            while True:
                current = await self._service.read(lambda tx: sessions.get(tx, ident))
                facts = (current.state, current.current_iteration, current.best_score)
                if facts != last:
                    last = facts
                    await self._note(name, ident, current)
                if current.state in sessions.ENDED:
                    return
                await subscription.wait(_POLL_SECONDS)

    async def _note(self, name: str, ident: str, session: v1.Session) -> None:
        """Copy the facts of a session into its case."""

        def edit(message: pb.Benchmark, iterations: list[v1.Iteration]) -> None:
            case = _find(message, ident)
            if case is None or (session.name and session.epoch < case.epoch):
                return  # removed meanwhile, or the session is about to continue
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
            _summarise(message)

        def keep(tx: Transaction) -> None:
            iterations = sessions.iterations(tx, ident) if session.name else []
            benchmarks.change(tx, name, lambda message: edit(message, iterations))

        await self._service.transact(keep)


def _check_ids(request: pb.CreateBenchmarkRequest) -> None:
    """Refuse ids of sessions that occur twice, and a named benchmark without ids, whose cases could not be found again."""
    counts = Counter(case.session_id for case in request.cases if case.session_id)
    for place, case in enumerate(request.cases):
        field = f"cases[{place}].session_id"
        if request.name and not case.session_id:
            raise InvalidArgument(field=field, problem="missing", expected="an id, because the benchmark has a name")
        if counts[case.session_id] > 1:
            raise InvalidArgument(field=field, value=case.session_id, expected="an id that no other case has")


def _find(benchmark: pb.Benchmark, ident: str) -> pb.BenchmarkCase | None:
    return next((case for case in benchmark.cases if case.session_id == ident), None)


def _request_id(benchmark: pb.Benchmark, ident: str, epoch: int) -> str:
    """Return an id that begins with the benchmark's name, by which retention keeps it, and that fits into its column."""
    return f"{benchmark.name}/{hashlib.sha256(ident.encode()).hexdigest()[:16]}/{epoch}"


def _session(tx: ReadTransaction, ident: str) -> v1.Session | None:
    try:
        return sessions.get(tx, ident)
    except NotFound:
        return None


def _reopen(case: pb.BenchmarkCase, session: v1.Session | None, spec: v1.SessionSpec) -> None:
    """Let a case run again if its session can continue, or if it failed without one."""
    if session is not None and can_continue(session, spec):
        case.epoch = session.epoch + 1  # whichever server is first resumes it; the others find this epoch
    elif not (session and case.session) and case.state in (v1.SESSION_STATE_FAILED, v1.SESSION_STATE_CANCELLED):
        case.epoch, case.session = 0, ""
    else:
        return
    case.state, case.reason = v1.SESSION_STATE_UNSPECIFIED, ""


def _summarise(benchmark: pb.Benchmark) -> None:
    benchmark.completed = sum(1 for case in benchmark.cases if case.state in sessions.ENDED)
    benchmark.passed = sum(1 for case in benchmark.cases if case.state == v1.SESSION_STATE_SUCCEEDED)
    fill_groups(benchmark)


def _spec(template: v1.SessionSpec, case: pb.BenchmarkCase) -> v1.SessionSpec:
    spec = v1.SessionSpec()
    spec.CopyFrom(template)
    spec.MergeFrom(case.spec)
    spec.intent, spec.environment = case.intent, case.environment
    return spec
