"""`dressage bench EXPERIMENT.yaml`: the cells of an experiment, their progress and their results."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

from dressage.cli import output
from dressage.cli.options import CaseOptions
from dressage.errors import InvalidArgument
from dressage.experiments import machine
from dressage.experiments.cells import Cell, cells
from dressage.experiments.driver import Driver, Outcome
from dressage.experiments.records import Record, ResultFolder
from dressage.experiments.schema import load_experiment
from dressage.local.connection import Connection, ServerOptions, execute
from dressage.sdk.texts import counted, duration, mean_text

SUFFIXES = (".yaml", ".yml")
DEFAULT_PARALLEL = 2


def bench(path: Path, server: ServerOptions, *, out: Path | None, parallel: int, as_json: bool) -> int:
    """Run an experiment, or continue it, and return the exit code: 0 if every cell has a result.

    :param out: folder of the results; None: `results/NAME` next to the file.
    :raises InvalidArgument: naming the path of a wrong field.
    """
    experiment = load_experiment(path)
    planned = cells(experiment)
    if not planned:
        raise InvalidArgument(field=path.name, problem="no cells", expected="a method that runs in an environment")
    folder = ResultFolder(out or path.parent / "results" / experiment.name)
    with output.writing("--out", folder.path, expected="a folder that can be written to"):
        folder.path.mkdir(parents=True, exist_ok=True)
        folder.set_order([cell.environment for cell in planned], [method.name for method in experiment.methods])

    def started(done: int) -> None:
        sessions, left = counted(len(planned), "session"), len(planned) - done
        print(f"{sessions}: {done} with a result, {left} to run, {parallel} at a time", file=sys.stderr, flush=True)

    def shown(cell: Cell, record: Record | None, problem: str, done: int) -> None:
        text = problem if record is None else _result(record)
        print(f"[{done}/{len(planned)}] {cell.label}: {text}", file=sys.stderr, flush=True)

    async def work(connection: Connection) -> Outcome:
        elsewhere = connection.client.address if connection.kind == "remote" else ""
        described = machine.describe(server=elsewhere)
        driver = Driver(
            connection.client, folder, parallel=parallel, machine=described, on_cell=shown, on_start=started
        )
        return await driver.run(planned)

    outcome = execute(server, work, start="full")
    if as_json:
        output.print_json(_document(outcome, folder))
    else:
        _print(outcome, folder)
    return 0 if len(outcome.records) == outcome.total and not outcome.failed else 1


def refuse_case_options(options: CaseOptions, *, staged: bool, gate: float, resume: str) -> None:
    """Refuse options that an experiment has in its file.

    :raises InvalidArgument: naming the first option that is given.
    """
    # The endpoint is an option of the server as well.
    names = (each for each in options.arguments if each.name in options and each.name != "api_base")
    given = {each.flag: options[each.name] for each in names}
    given |= {"--resume": resume} if resume else {}
    given |= {} if staged else {"--flat": "set"}
    given |= {} if gate == 0.7 else {"--gate": gate}
    for option, value in given.items():
        remedy = "The same command continues it." if option == "--resume" else "Set it in the file."
        problem = "not an option of experiments"
        raise InvalidArgument(field=option, problem=problem, value=str(value), remedy=remedy)


def _result(record: Record) -> str:
    if not record.ended_well:
        return f"{record.state}: {record.reason}"
    parts = [record.state if record.score is None else mean_text(record.score)]
    if record.target is not None and record.score is not None:
        reached = "reached" if record.score >= record.target else "not reached"
        parts.append(f"target {record.target:g} {reached}")
    parts += [counted(record.episodes, "episode")] if record.episodes else []
    parts += [duration(record.seconds)] if record.seconds is not None else []
    return ", ".join(parts)


def _document(outcome: Outcome, folder: ResultFolder) -> dict[str, object]:
    failed = [{"cell": each.cell.session, "label": each.cell.label, "message": each.message} for each in outcome.failed]
    return {
        "cells": outcome.total,
        "results": [asdict(record) for record in outcome.records],
        "failed": failed,
        "folder": str(folder.path),
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
    for failed in outcome.failed:
        print(f"no result: {failed.cell.label}: {failed.message}")
    print(f"{len(outcome.records)} of {outcome.total} cells; report with: dressage report {folder.path}")
