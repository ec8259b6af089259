"""`dressage benchmarks`: cases from a file, and the table of what became of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from dressage import errors
from dressage.api.v1 import benchmark_service_pb2 as pb
from dressage.api.v1 import session_pb2
from dressage.cli import output
from dressage.cli.listings import cut
from dressage.cli.summary import state_name
from dressage.client.names import environment_name
from dressage.local.connection import Connection, execute
from dressage.local.connection import ServerOptions as Where
from dressage.sdk.files import read_source
from dressage.sdk.progress import short

_CASE_FIELDS = ("intent", "environment", "category", "difficulty")


def read_cases(path: Path) -> list[pb.BenchmarkCase]:
    """Cases from a JSON list of {intent, environment, category?, difficulty?}.

    :raises InvalidArgument: naming the case and what is wrong with it.
    """
    try:
        entries = json.loads(read_source(path, field="cases"))
    except ValueError as error:
        raise errors.InvalidArgument(field="cases", value=str(path), expected=f"JSON ({error})") from error
    if not isinstance(entries, list) or not entries:
        raise errors.InvalidArgument(
            field="cases", value=type(entries).__name__, expected="a list of at least one case"
        )
    cases = []
    for number, entry in enumerate(entries, start=1):
        good = isinstance(entry, dict) and set(entry) <= set(_CASE_FIELDS) and {"intent", "environment"} <= set(entry)
        if not good or not all(isinstance(value, str) for value in entry.values()):
            raise errors.InvalidArgument(
                field=f"cases[{number}]", value=entry, expected=f"texts for intent and environment, of {_CASE_FIELDS}"
            )
        cases.append(pb.BenchmarkCase(**{**entry, "environment": environment_name(entry["environment"])}))
    return cases


def run(path: Path, where: Where, *, model: str, iterations: int, as_json: bool) -> None:
    """Creates a benchmark and follows it to its end."""
    cases = read_cases(path)
    template = session_pb2.SessionSpec(model=model, max_iterations=iterations)

    async def work(connection: Connection) -> pb.Benchmark:
        benchmark = await connection.client.create_benchmark(cases, template=template)
        async for changed in connection.client.watch_benchmark(benchmark.name):
            benchmark = changed
            said = f"{benchmark.name}: {benchmark.completed} of {len(cases)} done, {benchmark.passed} passed"
            print(said, file=sys.stderr, flush=True)
        return benchmark

    print_benchmark(execute(where, work, start="full"), as_json=as_json)


def list_all(where: Where, *, as_json: bool) -> None:
    """Prints all benchmarks."""

    async def work(connection: Connection) -> list[pb.Benchmark]:
        return [benchmark async for benchmark in connection.client.list_benchmarks()]

    found = execute(where, work)
    if as_json:
        output.print_json({"benchmarks": [output.message_dict(benchmark) for benchmark in found]})
        return
    rows = [(short(each.name), len(each.cases), each.completed, each.passed) for each in found]
    output.print_table(("benchmark", "cases", "done", "passed"), rows, empty="no benchmarks yet")


def show(name: str, where: Where, *, cancel: bool, as_json: bool) -> None:
    """Prints one benchmark, after ending it if asked."""

    async def work(connection: Connection) -> pb.Benchmark:
        act = connection.client.cancel_benchmark if cancel else connection.client.get_benchmark
        return await act(name)

    print_benchmark(execute(where, work), as_json=as_json)


def print_benchmark(benchmark: pb.Benchmark, *, as_json: bool) -> None:
    """A benchmark's table."""
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
