"""`dressage bench` and `dressage benchmarks`: cases from a file, the sessions of a benchmark, its table and its report."""

from __future__ import annotations

import csv
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dressage import errors
from dressage.api.v1 import benchmark_service_pb2 as pb
from dressage.api.v1 import session_pb2
from dressage.cli import output
from dressage.cli.benchmark_report import Curves, write_report
from dressage.cli.listings import cut
from dressage.cli.options import CaseOptions
from dressage.client.names import environment_name
from dressage.local.connection import Connection, ServerOptions, execute
from dressage.sdk.files import read_source
from dressage.sdk.results import state_name
from dressage.sdk.specs import make_spec
from dressage.sdk.texts import short

COLUMNS = ("env_id", "instruction", "category", "difficulty")
_REQUIRED_COLUMNS = COLUMNS[:2]
_CASE_FIELDS = ("intent", "environment", "category", "difficulty")


@dataclass(frozen=True)
class Plan:
    """How `dressage bench` runs its cases.

    :param resume: name of a benchmark to follow instead of a new one; may be empty.
    :param out: folder of the report.
    """

    template: session_pb2.SessionSpec
    staged: bool
    gate: float
    resume: str
    out: Path


def template(options: CaseOptions) -> session_pb2.SessionSpec:
    """Return the spec that the sessions of a benchmark share.

    :raises InvalidArgument: for an option that the method does not have, or an invalid --set.
    """
    spec = make_spec(options | {"intent": "of the case", "env": "of-the-case"})
    spec.ClearField("intent")
    spec.ClearField("environment")
    return spec


def read_cases(path: Path) -> list[pb.BenchmarkCase]:
    """Read the cases of a JSON or CSV file.

    :raises InvalidArgument: naming the invalid column, line or case.
    """
    return json_cases(path) if path.suffix.lower() == ".json" else csv_cases(path)


def csv_cases(path: Path) -> list[pb.BenchmarkCase]:
    """Read cases from a CSV with the columns env_id, instruction and, optionally, category and difficulty.

    :raises InvalidArgument: naming the missing column, or the line and what is missing in it.
    """
    lines = read_source(path, field="CASES").splitlines()
    reader = csv.DictReader(lines)
    columns = [name.strip() for name in reader.fieldnames or ()]
    reader.fieldnames = columns
    if missing := [name for name in _REQUIRED_COLUMNS if name not in columns]:
        expected = f"a CSV whose first line has the columns {', '.join(COLUMNS)}"
        raise errors.InvalidArgument(
            field=f"CASES, column {missing[0]}", problem="missing", value=columns, expected=expected
        )
    cases = []
    for row in reader:
        values = {name: (row.get(name) or "").strip() for name in COLUMNS}
        empty = [name for name in _REQUIRED_COLUMNS if not values[name]]
        if empty:
            field = f"CASES, line {reader.line_num}, {empty[0]}"
            raise errors.InvalidArgument(field=field, problem="missing", expected="a text")
        cases.append(
            pb.BenchmarkCase(
                intent=values["instruction"],
                environment=environment_name(values["env_id"]),
                category=values["category"],
                difficulty=values["difficulty"],
            )
        )
    if not cases:
        raise errors.InvalidArgument(
            field="CASES", problem="no cases", value=str(path), expected="at least one line after the first"
        )
    return cases


def json_cases(path: Path) -> list[pb.BenchmarkCase]:
    """Read cases from a JSON list of {intent, environment, category?, difficulty?}.

    :raises InvalidArgument: naming the invalid case.
    """
    try:
        entries = json.loads(read_source(path, field="CASES"))
    except ValueError as error:
        raise errors.InvalidArgument(
            field="CASES", problem=f"not JSON: {error}", value=str(path), expected="a JSON list of cases"
        ) from error
    if not isinstance(entries, list) or not entries:
        raise errors.InvalidArgument(
            field="CASES", problem="no cases", value=type(entries).__name__, expected="a list of at least one case"
        )
    cases = []
    for number, entry in enumerate(entries, start=1):
        valid = isinstance(entry, dict) and set(entry) <= set(_CASE_FIELDS) and {"intent", "environment"} <= set(entry)
        if not valid or not all(isinstance(value, str) for value in entry.values()):
            expected = "an object with texts for intent and environment, and optionally category and difficulty"
            raise errors.InvalidArgument(field=f"CASES[{number}]", value=entry, expected=expected)
        cases.append(pb.BenchmarkCase(**{**entry, "environment": environment_name(entry["environment"])}))
    return cases


def bench(path: Path | None, server: ServerOptions, plan: Plan, *, as_json: bool) -> int:
    """Create or resume a benchmark, follow it to its end and write the report; return the exit code."""
    if (path is None) == (not plan.resume):
        problem = "missing" if path is None else "not allowed with --resume"
        raise errors.InvalidArgument(field="CASES", problem=problem, expected="either a file of cases or --resume")
    cases = [] if path is None else read_cases(path)

    async def work(connection: Connection) -> tuple[pb.Benchmark, Curves]:
        client = connection.client
        if plan.resume:
            benchmark = await client.get_benchmark(plan.resume)
        else:
            benchmark = await client.create_benchmark(
                cases, template=plan.template, staged=plan.staged, stage_gate=plan.gate
            )
            command = f"dressage bench --resume {short(benchmark.name)}{connection.flags}"
            print(
                f"{benchmark.name} started; after an interruption, `{command}` resumes it", file=sys.stderr, flush=True
            )
        benchmark = await _follow(benchmark, connection)
        return benchmark, await _curves(benchmark, connection)

    benchmark, curves = execute(server, work, start="full")
    with output.writing("--out", plan.out, expected="a folder that can be written to"):
        files = write_report(benchmark, curves, plan.out)
    if as_json:
        output.print_json({"benchmark": output.message_dict(benchmark), "files": [str(file) for file in files]})
    else:
        print_benchmark(benchmark, as_json=False)
        print("\n".join(str(file) for file in files))
    return 0 if benchmark.completed == len(benchmark.cases) else 1


def run(path: Path, server: ServerOptions, *, model: str, iterations: int, as_json: bool) -> None:
    """Create a benchmark, follow it to its end and print its table."""
    cases = read_cases(path)
    spec = session_pb2.SessionSpec(model=model, max_iterations=iterations)

    async def work(connection: Connection) -> pb.Benchmark:
        benchmark = await connection.client.create_benchmark(cases, template=spec)
        return await _follow(benchmark, connection)

    print_benchmark(execute(server, work, start="full"), as_json=as_json)


async def _follow(benchmark: pb.Benchmark, connection: Connection) -> pb.Benchmark:
    """Print the progress to standard error whenever it changes, until the benchmark ends; return it."""
    last = ""
    async for changed in connection.client.watch_benchmark(benchmark.name):
        benchmark = changed
        if (text := progress_line(benchmark)) != last:  # a benchmark also changes when one of its sessions begins
            print(last := text, file=sys.stderr, flush=True)
    return benchmark


def progress_line(benchmark: pb.Benchmark) -> str:
    """Return the progress of a benchmark in one line."""
    stage = f", stage {benchmark.stage}" if benchmark.staged else ""
    stopped = f": {benchmark.stopped_reason}" if benchmark.stopped_reason else ""
    done = f"{benchmark.completed} of {len(benchmark.cases)} done"
    return f"{benchmark.name}: {done}, {benchmark.passed} passed{stage}{stopped}"


async def _curves(benchmark: pb.Benchmark, connection: Connection) -> Curves:
    """Return the learning curves of each case's iterations, by the number of the case from 1."""
    curves: dict[int, list[tuple[int, list[session_pb2.CurvePoint]]]] = {}
    for number, case in enumerate(benchmark.cases, start=1):
        if case.session:
            iterations = connection.client.list_iterations(case.session)
            curves[number] = [(entry.number, list(entry.reward.curve)) async for entry in iterations]
    return curves


def list_all(server: ServerOptions, *, as_json: bool) -> None:
    """Print all benchmarks."""

    async def work(connection: Connection) -> list[pb.Benchmark]:
        return [benchmark async for benchmark in connection.client.list_benchmarks()]

    benchmarks = execute(server, work)
    if as_json:
        output.print_json({"benchmarks": [output.message_dict(benchmark) for benchmark in benchmarks]})
        return
    rows = [(short(each.name), len(each.cases), each.completed, each.passed) for each in benchmarks]
    output.print_table(("benchmark", "cases", "done", "passed"), rows, empty="no benchmarks yet")


def show(name: str, server: ServerOptions, *, cancel: bool, as_json: bool) -> None:
    """Print one benchmark, and cancel it first if ``cancel`` is set."""

    async def work(connection: Connection) -> pb.Benchmark:
        act = connection.client.cancel_benchmark if cancel else connection.client.get_benchmark
        return await act(name)

    print_benchmark(execute(server, work), as_json=as_json)


def print_benchmark(benchmark: pb.Benchmark, *, as_json: bool) -> None:
    """Print the table of a benchmark."""
    if as_json:
        output.print_json(output.message_dict(benchmark))
        return
    rows: list[tuple[Any, ...]] = [
        (
            cut(case.intent),
            short(case.environment),
            case.difficulty,
            state_name(case.state) if case.state else "",
            f"{case.score:.2f}" if case.HasField("score") else "",
            case.iterations or "",
            short(case.session),
        )
        for case in benchmark.cases
    ]
    output.print_table(("intent", "environment", "difficulty", "state", "score", "iterations", "session"), rows)
    print(f"{benchmark.completed} of {len(benchmark.cases)} done, {benchmark.passed} passed")
