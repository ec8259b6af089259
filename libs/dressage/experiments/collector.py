"""Follows a benchmark on the server and stores the result of each case that ends.

The benchmark continues without it. Results are made from sessions, so one that was missed is stored the next time.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from typing import Any

from dressage.api.v1 import benchmark_service_pb2 as pb
from dressage.client import AsyncClient
from dressage.client.aio import ENDED
from dressage.errors import DeadlineExceeded, DressageError, FailedPrecondition, Unavailable
from dressage.experiments.records import Record, ResultFolder, record_of

_OUTAGE_SECONDS = 30.0
_OUTAGE_ATTEMPTS = 10
"""Each takes up to a minute (`dressage.client.calls`). The benchmark continues where only the server has no time to answer."""

OnCase = Callable[[pb.BenchmarkCase, Record | None, str], None]
"""Called after each case with its result or, without one, the reason."""


class Collector:
    """Stores the results of the cases of a benchmark.

    :param experiment: name in the results.
    :param machine: description for the results.
    :param on_case: called after each case.
    """

    def __init__(
        self,
        client: AsyncClient,
        folder: ResultFolder,
        *,
        experiment: str,
        machine: Mapping[str, Any],
        on_case: OnCase,
        sleep: Callable[[float], Any] = asyncio.sleep,
    ) -> None:
        self._client = client
        self._folder = folder
        self._experiment = experiment
        self._machine = machine
        self._on_case = on_case
        self._sleep = sleep
        self._end_times = {record.cell: record.end_time for record in folder.records()}
        self.failed: dict[str, str] = {}
        """Why a case has no result, by its session's id."""

    async def follow(self, name: str, cases: set[str]) -> pb.Benchmark:
        """Store the results of cases until the benchmark ends; return it.

        :param cases: ids of their sessions.
        :raises Unavailable: if the server does not answer for some minutes.
        """
        left, outages = set(cases), 0
        while True:
            try:
                async for benchmark in self._client.watch_benchmark(name):
                    for case in benchmark.cases:
                        if case.session_id in left and case.state in ENDED:
                            await self._add(case)
                            left.discard(case.session_id)
                    outages = 0
                for case in benchmark.cases:
                    if case.session_id in left:
                        self._fail(case, benchmark.stopped_reason or "not begun")
                return benchmark
            except (Unavailable, DeadlineExceeded) as error:
                outages += 1
                if outages > _OUTAGE_ATTEMPTS:
                    raise
                print(f"the server does not answer, trying again: {error.message}", file=sys.stderr)
                await self._sleep(_OUTAGE_SECONDS)

    async def _add(self, case: pb.BenchmarkCase) -> None:
        if not case.session:
            self._fail(case, case.reason)
            return
        try:
            session = await self._client.get_session(case.session)
            iterations = [iteration async for iteration in self._client.list_iterations(case.session)]
        except (Unavailable, DeadlineExceeded):
            raise
        except DressageError as error:  # the results of the other cases are stored
            self._fail(case, error.message)
            return
        record = record_of(case, session, iterations, experiment=self._experiment, machine=self._machine)
        if self._end_times.get(record.cell) != record.end_time:
            try:
                await asyncio.to_thread(self._folder.add, record)
            except OSError as error:
                message = f"{self._folder.path}: the result cannot be written: {error.strerror or error}"
                raise FailedPrecondition(message, reason="RESULT_NOT_WRITTEN") from error
        if record.ended_well:
            self._on_case(case, record, "")
        else:
            self._fail(case, f"{record.state}: {record.reason}")

    def _fail(self, case: pb.BenchmarkCase, reason: str) -> None:
        self.failed[case.session_id] = reason
        self._on_case(case, None, reason)
