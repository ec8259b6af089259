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
from dressage.experiments.published import load_published
from dressage.experiments.records import RESULTS, Record, ResultFolder, Revision


def write(
    folders: Sequence[Path], *, metric: str, reference: str, beside: Sequence[Path], out: Path | None, as_json: bool
) -> int:
    """Write the report of the results in the folders, print its tables, and return the exit code.

    :param out: folder of the report; None: that of the first results.
    :raises InvalidArgument: naming the folder, option or file that is wrong.
    """
    if metric not in METRICS:
        raise InvalidArgument(field="--metric", value=metric, expected=f"one of {', '.join(METRICS)}")
    records, revisions = read(folders)
    chosen: Metric = metric  # type: ignore[assignment]  # checked above
    analysis = analyse(records, revisions, metric=chosen, reference=reference)
    published = [load_published(path) for path in beside]
    target = out or folders[0]
    texts = {
        "summary.csv": report.summary_csv(analysis),
        "runs.csv": report.runs_csv(analysis),
        "tests.csv": report.tests_csv(analysis),
        "curves.csv": report.curves_csv(analysis),
    }
    with output.writing("--out", target, expected="a folder that can be written to"):
        target.mkdir(parents=True, exist_ok=True)
        drawn = pictures.draw(analysis, target)
        texts["report.md"] = report.markdown(analysis, published=published, pictures=[path.name for path in drawn])
        for name, text in texts.items():
            (target / name).write_text(text, encoding="utf-8")
    files = [target / "report.md", *(target / name for name in texts if name != "report.md"), *drawn]
    if as_json:
        output.print_json(_document(analysis) | {"files": [str(path) for path in files]})
    else:
        print(texts["report.md"])
        print("\n".join(str(path) for path in files))
    return 0


def read(folders: Sequence[Path]) -> tuple[list[Record], dict[str, list[Revision]]]:
    """Return the results and revisions of folders. A method of several experiments is named `experiment:method`.

    :raises InvalidArgument: for a folder without results.
    """
    records: dict[str, Record] = {}
    revisions: dict[str, list[Revision]] = {}
    for folder in folders:
        results = ResultFolder(folder)
        entries = results.records()
        if not entries:
            expected = f"a folder with {RESULTS}, as `dressage bench EXPERIMENT.yaml` writes it"
            raise InvalidArgument(field="FOLDER", problem="no results", value=str(folder), expected=expected)
        records |= {record.cell: record for record in entries}
        revisions |= results.revisions()
    owners: dict[str, set[str]] = {}
    for record in records.values():
        owners.setdefault(record.method, set()).add(record.experiment)
    return [
        replace(record, method=f"{record.experiment}:{record.method}") if len(owners[record.method]) > 1 else record
        for record in records.values()
    ], revisions


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
        "salience": {method: vars(counts) for method, counts in analysis.salience.items()},
    }
