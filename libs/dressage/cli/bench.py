"""`dressage bench`: cases from a CSV, followed to their end, and the report that is left behind."""

from __future__ import annotations

import csv
import sys
from dataclasses import dataclass
from pathlib import Path

from dressage import errors
from dressage.api.v1 import benchmark_service_pb2 as pb
from dressage.api.v1 import session_pb2
from dressage.cli import output
from dressage.cli.bench_report import Curves, write_report
from dressage.cli.tables import print_benchmark, read_cases
from dressage.client.names import environment_name
from dressage.local.connection import Connection, execute
from dressage.local.connection import ServerOptions as Where
from dressage.sdk.files import read_source

COLUMNS = ("env_id", "instruction", "category", "difficulty")
_NEEDED = COLUMNS[:2]


@dataclass(frozen=True)
class Plan:
    """What is asked of a benchmark.

    :param resume: an earlier benchmark to follow instead of starting one; empty: none.
    :param out: folder of the report.
    """

    template: session_pb2.SessionSpec
    staged: bool
    gate: float
    resume: str
    out: Path


def csv_cases(path: Path) -> list[pb.BenchmarkCase]:
    """Cases from a CSV with the columns env_id, instruction and, if wanted, category and difficulty.

    :raises InvalidArgument: naming the column that is missing, or the line and what is wrong with it.
    """
    lines = read_source(path, field="cases").splitlines()
    reader = csv.DictReader(lines)
    columns = [name.strip() for name in reader.fieldnames or ()]
    reader.fieldnames = columns
    if missing := [name for name in _NEEDED if name not in columns]:
        expected = f"a CSV whose first line names {', '.join(COLUMNS)}"
        raise errors.InvalidArgument(field=f"cases, column {missing[0]}", value=columns, expected=expected)
    cases = []
    for row in reader:
        values = {name: (row.get(name) or "").strip() for name in COLUMNS}
        empty = [name for name in _NEEDED if not values[name]]
        if empty:
            field = f"cases, line {reader.line_num}, {empty[0]}"
            raise errors.InvalidArgument(field=field, value="", expected="a text")
        cases.append(
            pb.BenchmarkCase(
                intent=values["instruction"],
                environment=environment_name(values["env_id"]),
                category=values["category"],
                difficulty=values["difficulty"],
            )
        )
    if not cases:
        raise errors.InvalidArgument(field="cases", value=str(path), expected="at least one case below the first line")
    return cases


def run(path: Path | None, where: Where, plan: Plan, *, as_json: bool) -> int:
    """Creates a benchmark, or takes up an earlier one, follows it to its end and writes the report; the exit code."""
    if (path is None) == (not plan.resume):
        raise errors.InvalidArgument(
            field="CASES.csv", value=str(path), expected="a file of cases, or --resume, not both"
        )
    cases = [] if path is None else csv_cases(path) if path.suffix.lower() != ".json" else read_cases(path)

    async def work(connection: Connection) -> tuple[pb.Benchmark, Curves]:
        client = connection.client
        if plan.resume:
            benchmark = await client.get_benchmark(plan.resume)
        else:
            benchmark = await client.create_benchmark(
                cases, template=plan.template, staged=plan.staged, stage_gate=plan.gate
            )
            print(f"{benchmark.name} has begun; `dressage bench --resume` goes on with it", file=sys.stderr, flush=True)
        async for changed in client.watch_benchmark(benchmark.name):
            benchmark = changed
            print(line(benchmark), file=sys.stderr, flush=True)
        return benchmark, await curves(benchmark, connection)

    benchmark, found = execute(where, work, start="full")
    with output.writing("--out", plan.out, expected="a folder that can be written to"):
        written = write_report(benchmark, found, plan.out)
    if as_json:
        document = output.message_dict(benchmark)
        output.print_json({"benchmark": document, "files": [str(file) for file in written]})
    else:
        print_benchmark(benchmark, as_json=False)
        print("\n".join(str(file) for file in written))
    return 0 if benchmark.completed == len(benchmark.cases) else 1


def line(benchmark: pb.Benchmark) -> str:
    """Where a benchmark stands, in one line."""
    stage = f", stage {benchmark.stage}" if benchmark.staged else ""
    stopped = f": {benchmark.stopped_reason}" if benchmark.stopped_reason else ""
    done = f"{benchmark.completed} of {len(benchmark.cases)} done"
    return f"{benchmark.name}: {done}, {benchmark.passed} passed{stage}{stopped}"


async def curves(benchmark: pb.Benchmark, connection: Connection) -> Curves:
    """The learning curves of each case's iterations, by the case's number from 1."""
    found: dict[int, list[tuple[int, list[session_pb2.CurvePoint]]]] = {}
    for number, case in enumerate(benchmark.cases, start=1):
        if case.session:
            iterations = connection.client.list_iterations(case.session)
            found[number] = [(entry.number, list(entry.reward.curve)) async for entry in iterations]
    return found
