"""The report of experiments as Markdown and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence

from dressage.experiments.analysis import METRICS, Analysis, Comparison, Metric, Row
from dressage.experiments.records import Record
from dressage.sdk.texts import duration, quantity
from dressage.statistics import CONFIDENCE, Interval, Summary

_SIGNIFICANT = 0.05


def markdown(analysis: Analysis, *, pictures: Sequence[str] = ()) -> str:
    """Return the report.

    :param pictures: names of pictures in the folder of the report.
    """
    experiments = dict.fromkeys(record.experiment for record in analysis.results.records)
    lines = [f"# {', '.join(experiments)}", "", *facts(analysis), ""]
    for metric in METRICS:
        lines += score_table(analysis, metric)
    lines += [*_tests(analysis), *aggregate_table(analysis), *_effort(analysis)]
    if pictures:
        lines += [
            "## Learning curves",
            "",
            "Highest score so far on search seeds: mean over runs with its interval.",
            "",
        ]
        lines += [line for name in pictures for line in (f"![{name}]({name})", "")]
    lines += [
        f"Intervals are {CONFIDENCE:.0%} percentile bootstrap intervals of the mean over runs; ± is the sample standard "
        "deviation.",
        "",
    ]
    return "\n".join(lines)


def facts(analysis: Analysis) -> list[str]:
    """Return the lines with the extent of the experiments, their machines and targets."""
    records = analysis.results.records
    machines = dict.fromkeys(_machine(record) for record in records)
    targets = {row.environment: row.target for row in analysis.rows if row.target is not None}
    runs = f"{quantity(len(records), 'session')}: {quantity(len(analysis.results.methods), 'method')}"
    lines = [f"{runs} in {quantity(len(analysis.results.environments), 'environment')}."]
    lines += [f"Machine: {machine}." for machine in machines if machine]
    if len(targets) > 1 and len(set(targets.values())) == 1:
        lines += [f"Target: a mean return of {next(iter(targets.values())):g}."]
    elif targets:
        lines += [f"Targets: {', '.join(f'{name} {value:g}' for name, value in targets.items())}."]
    return lines


def _machine(record: Record) -> str:
    machine = record.machine.get("client", record.machine)
    place = f"server {record.machine['server']}, client " if record.machine.get("server") else ""
    parts = [machine.get("processor", ""), quantity(machine.get("cores", 0), "core"), machine.get("system", "")]
    parts += [f"Python {machine['python']}"] if "python" in machine else []
    parts += [f"{name} {version}" for name, version in machine.get("versions", {}).items()]
    return place + ", ".join(part for part in parts if part) if machine else ""


def number(value: float) -> str:
    """Return a number with two decimals, or one if it is large."""
    return f"{value:z.2f}" if abs(value) < 1000 else f"{value:z,.1f}"


def _summary(value: Summary) -> str:
    return f"{number(value.mean)} ± {number(value.deviation)} [{number(value.low)}, {number(value.high)}]"


def _interval(value: Interval) -> str:
    return f"{value.value:.3f} [{value.low:.3f}, {value.high:.3f}]"


def score_table(
    analysis: Analysis, metric: Metric, further: Mapping[str, Mapping[str, str]] | None = None
) -> list[str]:
    """Return the table of a metric: environments × methods.

    :param further: columns that were not produced here: by title the cell of each environment.
    """
    cells = {(row.environment, row.method): row.metrics.get(metric) for row in analysis.rows}
    methods = [
        name for name in analysis.results.methods if any(cells.get((e, name)) for e in analysis.results.environments)
    ]
    columns = further or {}
    if not methods and not columns:
        return []
    rows = []
    for environment in analysis.results.environments:
        ours = [_summary(value) if (value := cells.get((environment, name))) else "–" for name in methods]
        rows.append([environment, *ours, *(column.get(environment, "–") for column in columns.values())])
    title = {"score": "Score", "best": "Best score of the search", "mean_winner": "Mean over iterations"}[metric]
    about = f"{METRICS[metric][0].upper()}{METRICS[metric][1:]}."
    return [f"## {title}", "", about, "", *table(["environment", *methods, *columns], rows), ""]


def _tests(analysis: Analysis) -> list[str]:
    if not analysis.comparisons:
        return []
    head = ("baseline", "environment", "difference", "t", "p", "p (Holm)", "")
    rows = [
        (
            entry.baseline,
            entry.environment,
            number(entry.difference),
            f"{entry.statistic:.2f}",
            f"{entry.p:.3g}",
            f"{entry.holm:.3g}",
            verdict(entry),
        )
        for entry in analysis.comparisons
    ]
    about = (
        f"{analysis.reference} against each other method, on the {METRICS[analysis.metric]}: Welch's two-sided test in each "
        "environment, with Holm's correction over the environments of each baseline. Where the statistic is undefined, t is 0 "
        "and p is 1."
    )
    return ["## Tests", "", about, "", *table(head, rows), ""]


def verdict(comparison: Comparison) -> str:
    """Return `better` or `worse` for a significant difference, else an empty text."""
    if comparison.holm >= _SIGNIFICANT:
        return ""
    return "better" if comparison.difference > 0 else "worse"


def aggregate_table(analysis: Analysis) -> list[str]:
    """Return the section with aggregates over environments; nothing for a single environment."""
    if not analysis.aggregates:
        return []
    head = ("method", "environments", "IQM", f"P({analysis.reference} is better)")
    rows = [
        (
            entry.method,
            entry.environments,
            _interval(entry.iqm),
            "–" if entry.improvement is None else _interval(entry.improvement),
        )
        for entry in analysis.aggregates
    ]
    bounds = ", ".join(f"{name} {low:g} to {high:g}" for name, (low, high) in analysis.bounds.items())
    about = (
        f"Each method over the environments that it shares with {analysis.reference}, after Agarwal et al. 2021: interquartile "
        "mean of normalised scores and probability of improvement, with stratified bootstrap intervals. Scores are normalised "
        f"to 0 … 1 between these returns: {bounds}."
    )
    return ["## All environments together", "", about, "", *table(head, rows), ""]


def _effort(analysis: Analysis) -> list[str]:
    head = ("environment", "method", "runs", "reached target", "episodes", "tokens", "dollars", "time of a run")
    rows = [
        (
            row.environment,
            row.method,
            row.runs,
            f"{row.reached}/{row.runs}",
            f"{row.episodes:,.0f}",
            f"{row.tokens:,.0f}",
            "unknown" if row.dollars is None else f"{row.dollars:.4f}",
            "–" if row.seconds is None else duration(row.seconds),
        )
        for row in analysis.rows
    ]
    about = (
        "Episodes, tokens and time are means over runs, dollars a sum. Runs that share a machine wait for each other."
    )
    return ["## Effort", "", about, "", *table(head, rows), ""]


def table(head: Sequence[object], rows: Iterable[Sequence[object]]) -> list[str]:
    """Return the lines of a Markdown table."""

    def cells(row: Sequence[object]) -> str:
        return "| " + " | ".join(" ".join(str(cell).replace("|", "\\|").split()) for cell in row) + " |"

    return [cells(head), "|" + " --- |" * len(head), *(cells(row) for row in rows)]


# CSV.


def summary_csv(analysis: Analysis) -> str:
    """Return one line for each environment, method and metric."""
    head = ["environment", "method", "metric", "runs", "mean", "deviation", "low", "high"]
    head += ["reached", "target", "episodes", "tokens", "dollars", "seconds"]
    return csv_text(head, (line for row in analysis.rows for line in _summary_rows(row)))


def _summary_rows(row: Row) -> Iterable[list[object]]:
    for metric, value in row.metrics.items():
        yield [
            *(row.environment, row.method, metric, value.count),
            *(value.mean, value.deviation, value.low, value.high),
            *(row.reached, "" if row.target is None else row.target),
            *(row.episodes, row.tokens, "" if row.dollars is None else row.dollars),
            "" if row.seconds is None else row.seconds,
        ]


def runs_csv(analysis: Analysis) -> str:
    """Return one line for each run."""
    names = ["environment", "method", "run", "seed", "state", "score", "best", "mean_winner", "last_winner", "target"]
    names += ["episodes", "candidates", "cache_hits", "input_tokens", "output_tokens", "dollars", "seconds", "cell"]
    rows = ([getattr(record, name) for name in names] for record in analysis.results.records)
    return csv_text(names, ([_blank(value) for value in row] for row in rows))


def tests_csv(analysis: Analysis) -> str:
    """Return one line for each test."""
    head = ["metric", "reference", "baseline", "environment", "difference", "t", "p", "p_holm", "verdict"]
    rows = (
        [
            *(analysis.metric, analysis.reference, entry.baseline, entry.environment, entry.difference),
            *(entry.statistic, entry.p, entry.holm, verdict(entry)),
        ]
        for entry in analysis.comparisons
    )
    return csv_text(head, rows)


def curves_csv(analysis: Analysis) -> str:
    """Return one line for each point of the learning curves."""
    head = ["axis", "environment", "method", "position", "best", "low", "high"]
    rows = (
        [line.axis, line.environment, line.method, *(round(float(value), 6) for value in point)]
        for line in analysis.curves
        for point in zip(line.positions, line.mean, line.low, line.high, strict=True)
    )
    return csv_text(head, rows)


def _blank(value: object) -> object:
    return "" if value is None else value


def csv_text(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return text.getvalue()
