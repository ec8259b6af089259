"""The report of experiments as Markdown and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from dressage.experiments.analysis import METRICS, Analysis, Comparison, Metric, Row
from dressage.experiments.published import Published, PublishedValue
from dressage.experiments.records import Record
from dressage.experiments.statistics import CONFIDENCE, Interval, Summary
from dressage.sdk.durations import duration
from dressage.sdk.texts import counted

_SIGNIFICANT = 0.05


def markdown(analysis: Analysis, *, published: Sequence[Published] = (), pictures: Sequence[str] = ()) -> str:
    """Return the report.

    :param published: numbers of papers to show next to ours.
    :param pictures: names of pictures in the folder of the report.
    """
    experiments = dict.fromkeys(record.experiment for record in analysis.results.records)
    lines = [f"# {', '.join(experiments)}", "", *facts(analysis), ""]
    for metric in METRICS:
        lines += score_table(analysis, metric, published)
    lines += [*_tests(analysis), *aggregate_table(analysis), *_effort(analysis)]
    if pictures:
        lines += [
            "## Learning curves",
            "",
            "Highest score so far on search seeds: mean over runs with its interval.",
            "",
        ]
        lines += [line for name in pictures for line in (f"![{name}]({name})", "")]
    lines += [*_salience(analysis), *published_numbers(analysis, published)]
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
    runs = f"{counted(len(records), 'session')}: {counted(len(analysis.results.methods), 'method')}"
    lines = [f"{runs} in {counted(len(analysis.results.environments), 'environment')}."]
    lines += [f"Machine: {machine}." for machine in machines if machine]
    if len(targets) > 1 and len(set(targets.values())) == 1:
        lines += [f"Target: a mean return of {next(iter(targets.values())):g}."]
    elif targets:
        lines += [f"Targets: {', '.join(f'{name} {value:g}' for name, value in targets.items())}."]
    return lines


def _machine(record: Record) -> str:
    machine = record.machine.get("client", record.machine)
    place = f"server {record.machine['server']}, client " if record.machine.get("server") else ""
    parts = [machine.get("processor", ""), counted(machine.get("cores", 0), "core"), machine.get("system", "")]
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


def score_table(analysis: Analysis, metric: Metric, published: Sequence[Published]) -> list[str]:
    """Return the table of a metric: environments × methods, and the columns of papers that have the metric."""
    cells = {(row.environment, row.method): row.metrics.get(metric) for row in analysis.rows}
    methods = [
        name for name in analysis.results.methods if any(cells.get((e, name)) for e in analysis.results.environments)
    ]
    columns = [(paper, name) for paper in published for name in paper.methods(metric)]
    if not methods and not columns:
        return []
    head = ["environment", *methods, *(f"{name} (published)" for _, name in columns)]
    rows = []
    for environment in analysis.results.environments:
        ours = [_summary(value) if (value := cells.get((environment, name))) else "–" for name in methods]
        theirs = [_published_value(paper.values(metric, environment).get(name)) for paper, name in columns]
        rows.append([environment, *ours, *theirs])
    title = {"score": "Score", "best": "Best score of the search", "mean_winner": "Mean over iterations"}[metric]
    lines = [f"## {title}", "", f"{METRICS[metric][0].upper()}{METRICS[metric][1:]}.", "", *table(head, rows), ""]
    if columns:
        lines += ["Published columns were not produced here; see [Published numbers](#published-numbers).", ""]
    return lines


def _published_value(value: PublishedValue | None) -> str:
    if value is None:
        return "–"
    deviation = f" ± {number(value.deviation)}" if value.deviation is not None else ""
    return f"{number(value.mean)}{deviation}{f' {value.method}' if value.method else ''}"


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


def _salience(analysis: Analysis) -> list[str]:
    if not analysis.salience:
        return []
    head = ("method", "regressions that mention the worst rollout", "others that mention it", "difference")
    rows = []
    for method, counts in analysis.salience.items():
        compared = counts.compared
        first = f"{counts.regressions_mentioning}/{counts.regressions}"
        second = f"{counts.others_mentioning}/{counts.others}"
        if compared is None:
            rows.append((method, first, second, "–"))
            continue
        gap = compared.difference
        shown = f"{gap.value:+.1%} [{gap.low:+.1%}, {gap.high:+.1%}]"
        rows.append((method, f"{compared.first.value:.1%} ({first})", f"{compared.second.value:.1%} ({second})", shown))
    about = (
        "Share of revisions whose explanation mentions the worst rollout, among revisions that made the candidate worse and "
        "among the others. Only a difference indicates a bias. Newcombe's interval."
    )
    return ["## Salience bias", "", about, "", *table(head, rows), ""]


def published_numbers(analysis: Analysis, published: Sequence[Published]) -> list[str]:
    """Return the section with the sources and caveats of published numbers."""
    if not published:
        return []
    lines = ["## Published numbers", ""]
    for paper in published:
        lines += [f"{paper.title}, {counted(paper.runs, 'run')}. Source: {paper.source}.", ""]
        lines += [f"- {caveat}" for caveat in paper.caveats]
        shown = [name for name in paper.environment_caveats if name in analysis.results.environments]
        lines += [*(f"- {name}: {paper.environment_caveats[name]}" for name in shown), ""]
    return lines


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
