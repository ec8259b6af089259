"""Rows of benchmarks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from dressage.api.v1 import benchmark_service_pb2 as pb
from dressage.errors import NotFound

from dressage_orchestrator.clock import micros, timestamp
from dressage_orchestrator.database import pages, summaries
from dressage_orchestrator.database.engine import ReadTransaction, Transaction
from dressage_orchestrator.database.pages import Page
from dressage_orchestrator.database.tables import BENCHMARKS
from dressage_orchestrator.database.transactions import swap


def _id(name: str) -> str:
    return name.partition("/")[2]


def create(tx: Transaction, benchmark: pb.Benchmark) -> pb.Benchmark:
    """Store a new benchmark."""
    benchmark.create_time.CopyFrom(timestamp(tx.now))
    row = {"id": _id(benchmark.name), "data": benchmark.SerializeToString(), "ended": False, "version": 1}
    row["summary"] = summaries.of_benchmark(benchmark)
    tx.execute(sa.insert(BENCHMARKS).values(**row, create_micros=micros(tx.now)))
    return benchmark


def get(tx: ReadTransaction, name: str) -> pb.Benchmark:
    """Read a benchmark.

    :raises NotFound: when there is none.
    """
    row = tx.execute(sa.select(BENCHMARKS.c.data).where(BENCHMARKS.c.id == _id(name))).one_or_none()
    if row is None:
        raise NotFound(f"no benchmark {name!r}", reason="BENCHMARK_NOT_FOUND")
    return pb.Benchmark.FromString(row.data)


def owner(tx: ReadTransaction, name: str) -> str | None:
    """Name of the principal that owns a benchmark; None if there is no such benchmark."""
    try:
        return get(tx, name).owner
    except NotFound:
        return None


def page(
    tx: ReadTransaction, *, limit: int, before: tuple[int, str] | None, whole: bool = False
) -> Page[tuple[pb.Benchmark, tuple[int, str]]]:
    """List benchmarks, newest first, each with its position.

    :param whole: with all fields; otherwise with those of a summary.
    """
    message = BENCHMARKS.c.data if whole else BENCHMARKS.c.summary
    query = sa.select(message.label("data"), BENCHMARKS.c.id, BENCHMARKS.c.create_micros)
    if before is not None:
        older = sa.and_(BENCHMARKS.c.create_micros == before[0], BENCHMARKS.c.id < before[1])
        query = query.where(sa.or_(BENCHMARKS.c.create_micros < before[0], older))
    newest_first = query.order_by(BENCHMARKS.c.create_micros.desc(), BENCHMARKS.c.id.desc())
    rows, more = pages.read(tx, newest_first, sa.func.length(message), limit=limit)
    return Page([(pb.Benchmark.FromString(row.data), (row.create_micros, row.id)) for row in rows], more)


def pending(tx: ReadTransaction) -> list[str]:
    """Names of the benchmarks that have not ended."""
    rows = tx.execute(sa.select(BENCHMARKS.c.id).where(BENCHMARKS.c.ended.is_(False)))
    return [f"benchmarks/{row.id}" for row in rows]


def change(tx: Transaction, name: str, edit: Callable[[pb.Benchmark], None]) -> pb.Benchmark:
    """Change a benchmark by compare-and-swap.

    :raises NotFound: when there is none.
    """
    tx.lock(name)

    def columns(message: pb.Benchmark) -> dict[str, Any]:
        return {"ended": message.HasField("end_time"), "summary": summaries.of_benchmark(message)}

    swapped = swap(tx, BENCHMARKS, {"id": _id(name)}, pb.Benchmark, edit, columns)
    if swapped is None:
        raise NotFound(f"no benchmark {name!r}", reason="BENCHMARK_NOT_FOUND")
    tx.touch(name)
    return swapped[0]
