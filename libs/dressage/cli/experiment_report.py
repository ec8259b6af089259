"""`dressage report FOLDER…`: the statistics of experiments, as files and on the screen."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dressage.cli import output
from dressage.errors import InvalidArgument
from dressage.experiments import behaviour_report, pictures, program_report, report
from dressage.experiments.analysis import METRICS, Analysis, Metric, analyse
from dressage.experiments.published import Published, load_published
from dressage.experiments.records import RESULTS, Record, ResultFolder, Revision
from dressage.experiments.successes import are_programs, successes
from dressage.sdk.files import read_source

BEGIN, END = "<!-- report: begin (written by `dressage report`) -->", "<!-- report: end -->"
"""Lines of a page between which the report is written."""


def write(
    folders: Sequence[Path],
    *,
    metric: str,
    reference: str,
    beside: Sequence[Path],
    out: Path | None,
    page: Path | None = None,
    as_json: bool,
) -> int:
    """Write the report of the results in the folders, print its tables, and return the exit code.

    :param out: folder of the report; None: that of the first results or, with a page, its path without the suffix.
    :param page: Markdown file that gets the report between its markers; the folder then gets the pictures only.
    :raises InvalidArgument: naming the folder, option or file that is wrong.
    """
    if metric not in METRICS:
        raise InvalidArgument(field="--metric", value=metric, expected=f"one of {', '.join(METRICS)}")
    records, revisions = read(folders)
    chosen: Metric = metric  # type: ignore[assignment]  # checked above
    analysis = analyse(records, revisions, metric=chosen, reference=reference)
    published = [load_published(path) for path in beside]
    target = out or (folders[0] if page is None else page.with_suffix(""))
    before, after = ("", "") if page is None else around_report(page)
    with output.writing("--out", target, expected="a folder that can be written to"):
        target.mkdir(parents=True, exist_ok=True)
        if behaviour_report.are_behaviours(records):
            text, tables, drawn = _behaviours(analysis, folders, target, page=page)
        else:
            text, tables, drawn = _contents(analysis, published, target, page=page)
        tables = tables if page is None else {}
        for name, table in tables.items():
            (target / name).write_text(table, encoding="utf-8")
    written = page or target / "report.md"
    with output.writing("--page" if page else "--out", written, expected="a file that can be written to"):
        written.write_text(before + text + after, encoding="utf-8")
    files = [written, *(target / name for name in tables), *drawn]
    if as_json:
        output.print_json(_document(analysis) | {"files": [str(path) for path in files]})
    else:
        print(text)
        print("\n".join(str(path) for path in files))
    return 0


def _contents(
    analysis: Analysis, published: Sequence[Published], folder: Path, *, page: Path | None
) -> tuple[str, dict[str, str], list[Path]]:
    """Draw the pictures into the folder; return the report, the tables by file and the pictures."""
    tables = {
        "summary.csv": report.summary_csv(analysis),
        "runs.csv": report.runs_csv(analysis),
        "tests.csv": report.tests_csv(analysis),
    }
    place = folder if page is None else page.parent
    if not are_programs(analysis.results.records):
        drawn = pictures.draw(analysis, folder)
        text = report.markdown(analysis, published=published, pictures=[_link(path, place) for path in drawn])
        return text, tables | {"curves.csv": report.curves_csv(analysis)}, drawn
    rows = successes(analysis.results, analysis.reference)
    by_environment = pictures.draw_successes(rows, folder)
    links = {environment: _link(path, place) for environment, path in by_environment.items()}
    text = program_report.markdown(analysis, rows, published=published, pictures=links, title=page is None)
    return text, tables | {"curves.csv": program_report.successes_csv(rows)}, list(by_environment.values())


def _behaviours(
    analysis: Analysis, folders: Sequence[Path], folder: Path, *, page: Path | None
) -> tuple[str, dict[str, str], list[Path]]:
    """Copy the pictures of each intent into the folder; return the report, the table of runs and the pictures.

    A picture that the folder has stays where the results have none: they are not under version control.
    """
    links, shown = {}, []
    for row in behaviour_report.behaviours(analysis):
        target = folder / f"{pictures.file_name(f'{row.environment}-{row.method}')}.jpg"
        sources = [path for source in folders if (path := ResultFolder(source).strip(row.shown)).is_file()]
        if sources:
            target.write_bytes(sources[0].read_bytes())
        if target.is_file():
            links[row.shown] = _link(target, folder if page is None else page.parent)
            shown.append(target)
    text = behaviour_report.markdown(analysis, strips=links, title=page is None)
    return text, {"runs.csv": report.runs_csv(analysis)}, shown


def _link(path: Path, place: Path) -> str:
    return Path(os.path.relpath(path, place)).as_posix()


def around_report(page: Path) -> tuple[str, str]:
    """Return a page's text before and after its report, with the markers.

    :raises InvalidArgument: if it has no markers.
    """
    text = read_source(page, field="--page")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        expected = f"a page with the lines {BEGIN} and {END}"
        raise InvalidArgument(field="--page", problem="no place for the report", value=str(page), expected=expected)
    return f"{before}{begin}\n\n", f"\n{end}{after}"


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
