"""`dressage report FOLDER…`: the statistics of experiments, as files and on the screen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dressage.cli import output
from dressage.errors import InvalidArgument
from dressage.experiments import pictures, report
from dressage.experiments.analysis import METRICS, Analysis, Metric, analyse
from dressage.experiments.records import RESULTS, Record, ResultFolder


def write(folders: Sequence[Path], *, metric: str, reference: str, out: Path | None, as_json: bool) -> int:
    """Write the report of the results in the folders, print its tables, and return the exit code.

    :param out: folder of the report; None: that of the first results.
    :raises InvalidArgument: naming the folder or option that is wrong.
    """
    if metric not in METRICS:
        raise InvalidArgument(field="--metric", value=metric, expected=f"one of {', '.join(METRICS)}")
    chosen: Metric = metric  # type: ignore[assignment]  # checked above
    analysis = analyse(read(folders), metric=chosen, reference=reference)
    target = out or folders[0]
    with output.writing("--out", target, expected="a folder that can be written to"):
        target.mkdir(parents=True, exist_ok=True)
        drawn = pictures.draw(analysis, target)
        text = report.markdown(analysis, pictures=[path.name for path in drawn])
        contents = {
            "report.md": text,
            "summary.csv": report.summary_csv(analysis),
            "runs.csv": report.runs_csv(analysis),
            "tests.csv": report.tests_csv(analysis),
            "curves.csv": report.curves_csv(analysis),
        }
        for name, content in contents.items():
            (target / name).write_text(content, encoding="utf-8")
    files = [str(path) for path in (*(target / name for name in contents), *drawn)]
    if as_json:
        output.print_json(_document(analysis) | {"files": files})
    else:
        print(text)
        print("\n".join(files))
    return 0


def read(folders: Sequence[Path]) -> list[Record]:
    """Return the results of folders. A method of several experiments is named `experiment:method`.

    :raises InvalidArgument: for a folder without results.
    """
    records: dict[str, Record] = {}
    for folder in folders:
        entries = ResultFolder(folder).records()
        if not entries:
            expected = f"a folder with {RESULTS}, as `dressage bench EXPERIMENT.yaml` writes it"
            raise InvalidArgument(field="FOLDER", problem="no results", value=str(folder), expected=expected)
        records |= {record.cell: record for record in entries}
    owners: dict[str, set[str]] = {}
    for record in records.values():
        owners.setdefault(record.method, set()).add(record.experiment)
    return [
        replace(record, method=f"{record.experiment}:{record.method}") if len(owners[record.method]) > 1 else record
        for record in records.values()
    ]


def _document(analysis: Analysis) -> dict[str, Any]:
    return {
        "metric": analysis.metric,
        "reference": analysis.reference,
        "summary": [
            {
                "environment": row.environment,
                "method": row.method,
                "runs": row.runs,
                "reached": row.reached,
                "target": row.target,
                "metrics": {name: vars(value) for name, value in row.metrics.items()},
                "episodes": row.episodes,
                "tokens": row.tokens,
                "dollars": row.dollars,
                "seconds": row.seconds,
            }
            for row in analysis.rows
        ],
        "tests": [vars(entry) | {"verdict": report.verdict(entry)} for entry in analysis.comparisons],
        "aggregates": [
            {
                "method": entry.method,
                "iqm": vars(entry.iqm),
                "improvement": None if entry.improvement is None else vars(entry.improvement),
            }
            for entry in analysis.aggregates
        ],
    }
