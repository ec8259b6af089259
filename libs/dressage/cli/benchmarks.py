"""`dressage bench` and `dressage benchmarks`: create or continue a benchmark, collect its results, print its table and report.

The benchmark runs on the server. Where that is another process, it continues after Ctrl-C; otherwise the next server on the
data folder continues it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dressage.api.v1 import benchmark_service_pb2 as pb
from dressage.api.v1 import session_pb2
from dressage.cli import output
from dressage.cli.benchmark_report import Curves, write_report
from dressage.cli.listings import cut
from dressage.cli.options import CaseOptions
from dressage.errors import InvalidArgument
from dressage.experiments import files, machine
from dressage.experiments.collector import Collector
from dressage.experiments.records import Record, ResultFolder, environment_label, limits_of
from dressage.local.connection import Connection, ServerOptions, execute, refuse_unusable
from dressage.sdk.argument_names import option_names
from dressage.sdk.results import state_name
from dressage.sdk.specs import make_spec
from dressage.sdk.texts import duration, mean_text, quantity, short


@dataclass(frozen=True)
class BenchOptions:
    """How `dressage bench` runs the cases of a file.

    :param resume: name of a benchmark to follow instead of a file; may be empty.
    :param out: folder of the results; None: `results/NAME` next to the file.
    :param parallel: sessions at a time; None: the server's setting.
    """

    staged: bool = True
    gate: float = 0.7
    resume: str = ""
    out: Path | None = None
    parallel: int | None = None
    detach: bool = False
    as_json: bool = False


@dataclass(frozen=True)
class Outcome:
    """What a benchmark has after a run of `dressage bench`."""

    records: Sequence[Record]
    failed: dict[str, str]
    """Why a case has no result, by its session's id."""
    cases: Sequence[pb.BenchmarkCase]
    benchmark: pb.Benchmark | None
    """None if every case had a result before."""
    curves: Curves


def bench(path: Path | None, server: ServerOptions, cases: CaseOptions, options: BenchOptions) -> int:
    """Create, extend or follow a benchmark, and return the exit code: 0 if every case has a result."""
    if (path is None) == (not options.resume):
        problem = "missing" if path is None else "not allowed with --resume"
        raise InvalidArgument(field="FILE", problem=problem, expected="either a file or --resume")
    if path is None:
        plan, folder = None, options.out or Path("results", short(options.resume))
    else:
        plan = read_plan(path, cases, options)
        folder = options.out or path.parent / "results" / plan.name
    results = ResultFolder(folder)

    async def work(connection: Connection) -> Outcome:
        refuse_unusable(server, connection, detach=options.detach)
        return await _run(connection, plan, results, options)

    with output.writing("--out", folder, expected="a folder that can be written to"):
        folder.mkdir(parents=True, exist_ok=True)
        if plan is not None:
            results.set_order(plan.environments, plan.methods)
    with option_names():
        outcome = execute(server, work, start="full")
    if options.detach and outcome.benchmark is not None:
        if options.as_json:
            output.print_json({"benchmark": output.message_dict(outcome.benchmark)})
        return 0
    reports: list[Path] = []
    if outcome.benchmark is not None and not _is_matrix(outcome.cases):
        with output.writing("--out", folder, expected="a folder that can be written to"):
            reports = write_report(outcome.benchmark, outcome.curves, folder)
    if options.as_json:
        output.print_json(_document(outcome, results, reports))
    elif reports and outcome.benchmark is not None:
        print_benchmark(outcome.benchmark, as_json=False)
        print("\n".join(str(report) for report in reports))
    else:
        _print(outcome, results)
    return 0 if len(outcome.records) == len(outcome.cases) and not outcome.failed else 1


def read_plan(path: Path, cases: CaseOptions, options: BenchOptions) -> files.Plan:
    """Read a file of a benchmark.

    :raises InvalidArgument: naming what is wrong in the file, or an option that it does not take.
    """
    if path.suffix.lower() in files.MATRIX_SUFFIXES:
        _refuse_case_options(cases, options)
        plan = files.read_matrix(path)
    else:
        with option_names():  # not around files: their errors name what stands in them
            shared = template(cases)
        plan = files.read_cases(path, shared)
        plan.request.staged, plan.request.stage_gate = options.staged, options.gate
    plan.request.parallel = options.parallel or 0
    return plan


def template(options: CaseOptions) -> session_pb2.SessionSpec:
    """Return the spec that the sessions of a benchmark share.

    :raises InvalidArgument: for an option that the method does not have, or an invalid --set.
    """
    spec = make_spec(options | {"intent": "of the case", "env": "of-the-case"})
    spec.ClearField("intent")
    spec.ClearField("environment")
    return spec


def _refuse_case_options(cases: CaseOptions, options: BenchOptions) -> None:
    """Refuse options that an experiment has in its file.

    :raises InvalidArgument: naming the first option that has a value.
    """
    # The endpoint is an option of the server as well.
    names = (each for each in cases.arguments if each.name in cases and each.name != "api_base")
    changed: dict[str, object] = {each.flag: cases[each.name] for each in names}
    changed |= {} if options.staged else {"--flat": "set"}
    changed |= {} if options.gate == BenchOptions.gate else {"--gate": options.gate}
    for option, value in changed.items():
        problem, remedy = "not an option of experiments", "Set it in the file."
        raise InvalidArgument(field=option, problem=problem, value=str(value), remedy=remedy)


async def _run(connection: Connection, plan: files.Plan | None, folder: ResultFolder, options: BenchOptions) -> Outcome:
    client = connection.client
    if plan is None:
        benchmark = await client.get_benchmark(options.resume)
        cases, left, name = list(benchmark.cases), list(benchmark.cases), short(benchmark.name)
    else:
        cases, left, name = list(plan.request.cases), _without_result(plan, folder), plan.name
        if not left:
            return Outcome(_records(folder, cases), {}, cases, None, {})
        benchmark = await client.create_benchmark(
            left,
            template=plan.request.template,
            name=plan.request.name,
            staged=plan.request.staged,
            stage_gate=plan.request.stage_gate,
            parallel=plan.request.parallel,
        )
    total, done = len(cases), len(cases) - len(left)
    head = f"{quantity(total, 'session')}: {done} with a result, {total - done} to run, {benchmark.parallel} at a time"
    _print_progress(head)
    _print_progress(_after_interruption(benchmark, connection))
    if options.detach:
        return Outcome([], {}, cases, benchmark, {})

    def on_case(case: pb.BenchmarkCase, record: Record | None, reason: str) -> None:
        nonlocal done
        done += 1
        _print_progress(f"[{done}/{total}] {_label(case)}: {reason if record is None else _result(record)}")

    described = machine.describe(server=client.address if connection.kind == "remote" else "")
    collector = Collector(client, folder, experiment=name, machine=described, on_case=on_case)
    benchmark = await collector.follow(benchmark.name, {case.session_id for case in left})
    curves = {} if _is_matrix(cases) else await _curves(benchmark, connection)
    return Outcome(_records(folder, cases), collector.failed, cases, benchmark, curves)


def _print_progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _after_interruption(benchmark: pb.Benchmark, connection: Connection) -> str:
    name = short(benchmark.name)
    if connection.kind == "stack":
        return f"{name} stops with this command, and the same command continues it"
    cancel = f"dressage benchmarks cancel {name}{connection.flags}"
    return f"{name} continues when this command ends; the same command follows it, `{cancel}` cancels it"


def _is_matrix(cases: Sequence[pb.BenchmarkCase]) -> bool:
    """Whether the cases are of several methods and runs, which `dressage report` compares."""
    return any(case.method for case in cases)


def _without_result(plan: files.Plan, folder: ResultFolder) -> list[pb.BenchmarkCase]:
    """Return the cases whose results are missing in the folder or do not stand; without a matrix all, for the report."""
    records = {record.cell: record for record in folder.records()}
    return [
        case
        for case in plan.request.cases
        if not case.method
        or (record := records.get(case.session_id)) is None
        or not record.is_final(limits_of(case.spec))
    ]


def _records(folder: ResultFolder, cases: Sequence[pb.BenchmarkCase]) -> list[Record]:
    ids = {case.session_id for case in cases}
    return [record for record in folder.records() if record.cell in ids]


def _label(case: pb.BenchmarkCase) -> str:
    return f"{environment_label(case)} " + (f"{case.method} run {case.run}" if case.method else cut(case.intent))


def _result(record: Record) -> str:
    parts = [record.state if record.score is None else mean_text(record.score)]
    if record.target is not None and record.score is not None:
        reached = "reached" if record.score >= record.target else "not reached"
        parts.append(f"target {record.target:g} {reached}")
    parts += [quantity(record.episodes, "episode")] if record.episodes else []
    parts += [duration(record.seconds)] if record.seconds is not None else []
    return ", ".join(parts)


def _document(outcome: Outcome, folder: ResultFolder, reports: Sequence[Path]) -> dict[str, object]:
    labels = {case.session_id: _label(case) for case in outcome.cases}
    failed = [{"cell": cell, "label": labels.get(cell, cell), "message": why} for cell, why in outcome.failed.items()]
    benchmark = {} if outcome.benchmark is None else {"benchmark": output.message_dict(outcome.benchmark)}
    return {
        "cells": len(outcome.cases),
        "results": [asdict(record) for record in outcome.records],
        "failed": failed,
        "folder": str(folder.path),
        "files": [str(report) for report in reports],
        **benchmark,
    }


def _print(outcome: Outcome, folder: ResultFolder) -> None:
    rows: dict[tuple[str, str], list[Record]] = {}
    for record in outcome.records:
        rows.setdefault((record.environment, record.method), []).append(record)
    table = []
    for (environment, method), records in rows.items():
        scores = [record.score for record in records if record.score is not None]
        mean = mean_text(sum(scores) / len(scores)) if scores else ""
        reached = sum(1 for record in records if record.state == "succeeded")
        table.append((environment, method, len(records), mean, reached))
    output.print_table(("environment", "method", "runs", "mean score", "reached target"), table, empty="no results")
    labels = {case.session_id: _label(case) for case in outcome.cases}
    for cell, reason in outcome.failed.items():
        print(f"no result: {labels.get(cell, cell)}: {reason}")
    print(f"{len(outcome.records)} of {len(outcome.cases)} cells; report with: dressage report {folder.path}")


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
    matrix = _is_matrix(benchmark.cases)
    rows: list[tuple[Any, ...]] = [
        (
            *((case.method, environment_label(case), case.run) if matrix else _case_columns(case)),
            state_name(case.state) if case.state else "",
            f"{case.score:.2f}" if case.HasField("score") else "",
            case.iterations or "",
            short(case.session),
        )
        for case in benchmark.cases
    ]
    head = ("method", "environment", "run") if matrix else ("intent", "environment", "difficulty")
    output.print_table((*head, "state", "score", "iterations", "session"), rows)
    stopped = f"; stopped: {benchmark.stopped_reason}" if benchmark.stopped_reason else ""
    print(f"{benchmark.completed} of {len(benchmark.cases)} done, {benchmark.passed} passed{stopped}")


def _case_columns(case: pb.BenchmarkCase) -> tuple[str, str, str]:
    return cut(case.intent), short(case.environment), case.difficulty
