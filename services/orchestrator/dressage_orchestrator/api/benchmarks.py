"""`BenchmarkService`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from dressage.api.v1 import benchmark_service_pb2 as pb

from dressage_orchestrator import threads
from dressage_orchestrator.api import paging
from dressage_orchestrator.api.read_masks import ReadMask
from dressage_orchestrator.benchmarks import Benchmarks
from dressage_orchestrator.database import benchmarks
from dressage_orchestrator.notifications import Notifier
from dressage_orchestrator.service import Sessions

_POLL_SECONDS = 2.0


class BenchmarkServicer:
    """Creates and reads benchmarks."""

    def __init__(self, driver: Benchmarks, service: Sessions, notifier: Notifier, pages: paging.PageTokens) -> None:
        self._driver = driver
        self._pages = pages
        self._service = service
        self._notifier = notifier

    async def CreateBenchmark(self, request: pb.CreateBenchmarkRequest, context: Any) -> pb.Benchmark:
        return await self._driver.create(request)

    async def GetBenchmark(self, request: pb.GetBenchmarkRequest, context: Any) -> pb.Benchmark:
        return await self._service.read(lambda tx: benchmarks.get(tx, request.name))

    async def ListBenchmarks(self, request: pb.ListBenchmarksRequest, context: Any) -> pb.ListBenchmarksResponse:
        mask = ReadMask(request.read_mask, pb.Benchmark)
        position = self._pages.decode(request.page_token, "benchmarks", mask.paths)
        before, size = tuple(position) if position else None, paging.page_size(request.page_size)
        rows, more = await self._service.read(
            lambda tx: benchmarks.page(tx, limit=size, before=before, whole=mask.is_set)
        )
        token = self._pages.encode(rows[-1][1], "benchmarks", mask.paths) if more else ""
        return pb.ListBenchmarksResponse(benchmarks=[mask.apply(entry) for entry, _ in rows], next_page_token=token)

    async def WatchBenchmark(
        self, request: pb.WatchBenchmarkRequest, context: Any
    ) -> AsyncIterator[pb.WatchBenchmarkResponse]:
        last = None
        with self._notifier.subscribe(request.name) as subscription:
            while True:
                current = await self._service.read(lambda tx: benchmarks.get(tx, request.name), pool=threads.WATCHERS)
                if current != last:
                    last = current
                    yield pb.WatchBenchmarkResponse(benchmark=current)
                if current.HasField("end_time") or current.completed == len(current.cases):
                    return
                await subscription.wait(_POLL_SECONDS)

    async def CancelBenchmark(self, request: pb.CancelBenchmarkRequest, context: Any) -> pb.Benchmark:
        return await self._driver.cancel(request.name)
