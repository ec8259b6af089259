"""The report of searches over programs: for each task the runs that solve it against the programs evaluated."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from dressage.experiments import report
from dressage.experiments.analysis import Analysis
from dressage.experiments.published import Published
from dressage.experiments.report import table
from dressage.experiments.statistics import Interval
from dressage.experiments.successes import Success
from dressage.sdk.durations import duration

_TERMS = (
    "**Reached**: a program has a mean return of the target on the search states, which is what papers count. **Solved**: the "
    "same program reaches the target on the report states as well; a search ends there. A program that reaches it on the "
    "report states only does not count. **Best return**: the highest mean "
    "return on search states so far, a mean over runs. **Score**: mean return of the final program on report states. In the "
    "profile `llmgs-v1` report states are the search states."
)
_INTERVALS = (
    "Intervals have 95 %: Wilson's of shares, Newcombe's of differences of shares, percentile bootstrap over runs of means. "
    "They describe the randomness of the search, not that of the initial states."
)


def markdown(
    analysis: Analysis,
    rows: Sequence[Success],
    *,
    published: Sequence[Published] = (),
    pictures: Mapping[str, str] | None = None,
    title: bool = True,
) -> str:
    """Return the report.

    :param published: numbers of papers to show next to ours.
    :param pictures: the picture of each environment that has one, as a link from the report.
    :param title: begin with a title.
    """
    experiments = dict.fromkeys(record.experiment for record in analysis.results.records)
    lines = [f"# {', '.join(experiments)}", ""] if title else []
    lines += [*_extent(analysis, rows), "", _TERMS, "", _INTERVALS, "", *_overview(rows, analysis.reference)]
    lines += report.score_table(analysis, "score", published)
    lines += [*_differences(analysis, rows), *report.aggregate_table(analysis)]
    for environment in analysis.results.environments:
        chosen = [row for row in rows if row.environment == environment]
        lines += _task(environment, chosen, (pictures or {}).get(environment, ""))
    lines += [*_effort(analysis, rows), *report.published_numbers(analysis, published)]
    return "\n".join(lines)


def _extent(analysis: Analysis, rows: Sequence[Success]) -> list[str]:
    runs = sorted({row.runs for row in rows})
    each = f"{runs[0]}" if len(runs) == 1 else f"{runs[0]} to {runs[-1]}"
    return [*report.facts(analysis), f"Runs of each method in each environment: {each}."]


def _overview(rows: Sequence[Success], reference: str) -> list[str]:
    head = ("environment", "method", "reached", "solved", "programs to a solution, median", "fastest run")
    lines = [
        (
            row.environment,
            row.method,
            f"{row.reached}/{row.runs}",
            f"{row.solved}/{row.runs}",
            _programs(row.median, row.budget),
            _programs(row.fewest, row.budget),
        )
        for row in rows
    ]
    about = "The median is over all runs; a run without a solution counts as more than the budget."
    return ["## Solved runs", "", *_findings(rows, reference), "", about, "", *table(head, lines), ""]


def _findings(rows: Sequence[Success], reference: str) -> list[str]:
    """Return what the counts show: what each method solves, and where it differs from the reference."""
    lines = []
    for method in dict.fromkeys(row.method for row in rows):
        own = [row for row in rows if row.method == method]
        solved = [row.environment for row in own if 2 * row.solved > row.runs]
        others = [f"{row.environment} ({row.solved}/{row.runs})" for row in own if row.environment not in solved]
        line = f"- `{method}` solves {', '.join(solved) or 'no task'} in more than half of its runs"
        lines.append(f"{line}, and in fewer {', '.join(others)}." if others else f"{line}.")
        if method != reference:
            lines += [f"  {_compared(own, reference)}"]
    return lines


def _compared(rows: Sequence[Success], reference: str) -> str:
    parts = []
    for name in ("more", "fewer"):
        environments = [
            f"{row.environment} ({row.reached}/{row.runs})"
            for row in rows
            if row.reached_difference is not None and verdict(row.reached_difference.difference) == name
        ]
        parts += [f"in {name} runs on {', '.join(environments)}"] if environments else []
    if not parts:
        return f"No difference from `{reference}` in the runs that reach the target is shown."
    return (
        f"Compared with `{reference}`, it reaches the target {' and '.join(parts)}; elsewhere no difference is shown."
    )


def _programs(value: float, budget: int) -> str:
    return f"more than {budget:,}" if math.isinf(value) else f"{value:,.0f}"


def _differences(analysis: Analysis, rows: Sequence[Success]) -> list[str]:
    head = ("environment", "method", "reached: difference", "", "solved: difference", "")
    lines = []
    for row in rows:
        if row.reached_difference is None or row.solved_difference is None:
            continue
        reached, solved = row.reached_difference.difference, row.solved_difference.difference
        if reached.value or solved.value:
            lines.append(
                (row.environment, row.method, _signed(reached), verdict(reached), _signed(solved), verdict(solved))
            )
    if not lines:
        return []
    about = (
        f"Share of runs of a method less that of {analysis.reference}, within the budget. Equal shares are left out. A verdict "
        "is given where the interval excludes 0; it is not corrected for the number of comparisons."
    )
    return ["## Differences", "", about, "", *table(head, lines), ""]


def verdict(difference: Interval) -> str:
    """Return `more` or `fewer` for an interval that excludes 0, else an empty text."""
    if difference.low > 0:
        return "more"
    return "fewer" if difference.high < 0 else ""


def _signed(value: Interval) -> str:
    return f"{value.value:+.2f} [{value.low:+.2f}, {value.high:+.2f}]"


def _task(environment: str, rows: Sequence[Success], picture: str) -> list[str]:
    """Return the section of an environment: its picture, and a table against programs evaluated."""
    lines = [f"## {environment}", ""]
    if picture:
        lines += [f"![{environment}: solved runs and best return against programs evaluated]({picture})", ""]
    marks = max((row.marks.programs for row in rows), key=len)
    head = ("method", "runs", "", *(f"{programs:,.0f} programs" for programs in marks))
    body = []
    for row in rows:
        quantities = (("reached", row.marks.reached), ("solved", row.marks.solved), ("best return", row.marks.best))
        for number, (name, values) in enumerate(quantities):
            begin = ("", "") if number else (row.method, row.runs)
            body.append((*begin, name, *(_interval(value) for value in values)))
    return [*lines, *table(head, body), ""]


def _interval(value: Interval) -> str:
    return f"{value.value:.2f} [{value.low:.2f}, {value.high:.2f}]"


def _effort(analysis: Analysis, rows: Sequence[Success]) -> list[str]:
    head = ("environment", "method", "programs of a run", "cache hits", "time of a run", "dollars")
    lines = []
    for row in rows:
        runs = analysis.results.of(row.environment, row.method)
        programs = sum(run.candidates for run in runs)
        seconds = [run.seconds for run in runs if run.seconds is not None]
        dollars = [run.dollars for run in runs]
        lines.append(
            (
                row.environment,
                row.method,
                f"{programs / len(runs):,.0f}",
                f"{sum(run.cache_hits for run in runs) / max(1, programs):.0%}",
                duration(float(np.mean(seconds))) if seconds else "–",
                "unknown" if None in dollars else f"{sum(cost for cost in dollars if cost is not None):.4f}",
            )
        )
    about = (
        "Programs and time are means over runs, dollars a sum. The time includes the start of the session's processes, and "
        "runs that share a machine wait for each other."
    )
    return ["## Effort", "", about, "", *table(head, lines), ""]


def successes_csv(rows: Sequence[Success]) -> str:
    """Return one line for each environment, method and number of programs evaluated."""
    names = ("reached", "solved", "best")
    head = ["environment", "method", "runs", "programs"]
    head += [column for name in names for column in (name, f"{name}_low", f"{name}_high")]
    return report.csv_text(head, (line for row in rows for line in _csv_rows(row)))


def _csv_rows(row: Success) -> list[list[object]]:
    lines = []
    for programs, *values in zip(row.curve.programs, row.curve.reached, row.curve.solved, row.curve.best, strict=True):
        numbers = [round(part, 6) for value in values for part in (value.value, value.low, value.high)]
        lines.append([row.environment, row.method, row.runs, round(float(programs)), *numbers])
    return lines
