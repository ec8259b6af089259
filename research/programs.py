"""The report of searches over programs: how many runs solve each task, and the best return, against the programs evaluated.

A run reaches the target when a program does on search states, which is what papers count. It solves its task when such a
program reaches the target on report states as well. A search ends there, so that the programs evaluated by then are those it
needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from dressage.experiments import pictures, report
from dressage.experiments.analysis import Analysis, Results
from dressage.experiments.records import Record
from dressage.experiments.report import table
from dressage.sdk.texts import duration, quantity
from dressage.statistics import Array, Interval, ShareDifference, mean_curve, share_difference, wilson

from research.published import Published, published_numbers, score_table

PROGRAM = "program"
"""Name of the method of the API."""
_FIRST_MARK = 1_000
_POINTS = 121
_LOWEST = 10
_ROUNDING = 1e-9
"""What rounding may take from a mean return; see `dressage.programs.families`."""
_PANELS = 3
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


@dataclass(frozen=True)
class Line:
    """Runs of a method in an environment at numbers of programs evaluated: arrays of the same length."""

    programs: Array
    solved: Sequence[Interval]
    """Share of runs that solved the task, with Wilson's interval."""
    reached: Sequence[Interval]
    """Share of runs that reached the target on search states."""
    best: Sequence[Interval]
    """Mean over runs of the highest mean return on search states, with its bootstrap interval."""


@dataclass(frozen=True)
class Success:
    """A method in an environment."""

    environment: str
    method: str
    runs: int
    solved: int
    reached: int
    """Runs that reached the target on search states."""
    median: float
    """Median over runs of the programs to a solution; infinite if fewer than half of the runs solved the task."""
    fewest: float
    """Programs of the fastest run; infinite if none solved the task."""
    budget: int
    marks: Line
    """At powers of ten up to the budget."""
    curve: Line
    """At many numbers up to the budget, evenly spaced on a logarithmic scale."""
    solved_difference: ShareDifference | None
    """Share of runs of this method that solved the task less that of the reference; None for the reference."""
    reached_difference: ShareDifference | None
    """The same for runs that reached the target on search states."""


def are_programs(records: Sequence[Record]) -> bool:
    """Return whether all results are those of searches over programs."""
    return bool(records) and all(record.settings.get("method") == PROGRAM for record in records)


def successes(results: Results, reference: str) -> list[Success]:
    """Return each method in each environment, in the order of the results.

    :param results: of searches over programs.
    :param reference: method that the others are compared with.
    """
    rows = []
    for environment in results.environments:
        compared = results.of(environment, reference)
        for method in results.methods:
            if runs := results.of(environment, method):
                rows.append(_success(runs, compared if method != reference else []))
    return rows


def programs_to_solution(run: Record) -> float:
    """Return how many programs a run evaluated until it solved its task; infinite if it did not.

    A session can also succeed at the end of its budget with a program that reaches the target on report states only; that is
    luck, not a solution.
    """
    solved = run.state == "succeeded" and math.isfinite(programs_to_target(run))
    return float(run.candidates) if solved else float("inf")


def programs_to_target(run: Record) -> float:
    """Return how many programs a run evaluated until one reached the target on search states; infinite if none did."""
    if run.target is None:
        return float("inf")
    threshold = run.target - _ROUNDING
    return float(next((programs for programs, _, _, best in run.curve if best >= threshold), float("inf")))


def _success(runs: Sequence[Record], compared: Sequence[Record]) -> Success:
    solved, reached = _needed(runs, programs_to_solution), _needed(runs, programs_to_target)
    budget, ordered = max(_budget(run) for run in runs), np.sort(solved)

    def difference(needed: Array, of: Callable[[Record], float]) -> ShareDifference | None:
        return share_difference(_share(needed), _share(_needed(compared, of)))

    return Success(
        environment=runs[0].environment,
        method=runs[0].method,
        runs=len(runs),
        solved=_share(solved)[0],
        reached=_share(reached)[0],
        median=float((ordered[(len(runs) - 1) // 2] + ordered[len(runs) // 2]) / 2),
        fewest=float(ordered[0]),
        budget=budget,
        marks=_line(runs, solved, reached, _marks(budget)),
        curve=_line(runs, solved, reached, np.geomspace(min(_LOWEST, budget), budget, _POINTS)),
        solved_difference=difference(solved, programs_to_solution),
        reached_difference=difference(reached, programs_to_target),
    )


def _needed(runs: Sequence[Record], of: Callable[[Record], float]) -> Array:
    return np.array([of(run) for run in runs], float)


def _share(needed: Array) -> tuple[int, int]:
    return int(np.isfinite(needed).sum()), len(needed)


def _line(runs: Sequence[Record], solved: Array, reached: Array, grid: Array) -> Line:
    steps = [
        (np.array([point[0] for point in run.curve], float), np.array([point[3] for point in run.curve]))
        for run in runs
        if run.curve
    ]
    mean, low, high = mean_curve(steps, grid) if steps else (np.full(len(grid), np.nan),) * 3
    return Line(
        grid,
        _shares(solved, grid),
        _shares(reached, grid),
        [Interval(float(a), float(b), float(c)) for a, b, c in zip(mean, low, high, strict=True)],
    )


def _shares(needed: Array, grid: Array) -> list[Interval]:
    # A grid of powers may miss the budget by a rounding error.
    return [wilson(int((needed <= programs * (1 + 1e-9)).sum()), len(needed)) for programs in grid]


def _marks(budget: int) -> Array:
    """Return powers of ten below the budget, and the budget."""
    marks, mark = [], _FIRST_MARK
    while mark < budget:
        marks.append(mark)
        mark *= 10
    return np.array([*marks, budget], float)


def _budget(run: Record) -> int:
    return int(run.settings.get("budget") or run.candidates)


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
    lines += score_table(analysis, "score", published)
    lines += [*_differences(analysis, rows), *report.aggregate_table(analysis)]
    for environment in analysis.results.environments:
        chosen = [row for row in rows if row.environment == environment]
        lines += _task(environment, chosen, (pictures or {}).get(environment, ""))
    lines += [*_effort(analysis, rows), *published_numbers(analysis, published)]
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


def draw_successes(rows: Sequence[Success], folder: Path) -> dict[str, Path]:
    """Write a picture for each environment of searches over programs; none without matplotlib.

    :return: the file of each environment.
    :raises OSError: if a file cannot be written.
    """
    if not pictures.is_installed():
        return {}
    methods = list(dict.fromkeys(row.method for row in rows))
    written = {}
    for environment in dict.fromkeys(row.environment for row in rows):
        path = folder / f"{pictures.file_name(environment)}.png"
        pictures.save(_success_figure([row for row in rows if row.environment == environment], methods), path)
        written[environment] = path
    return written


def _success_figure(rows: Sequence[Success], methods: Sequence[str]) -> Any:
    """Return a figure of an environment: reached, solved and best return against programs evaluated.

    :param methods: of all environments, so that each has the same colour everywhere.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(pictures.PANEL[0] * _PANELS, pictures.PANEL[1] + 0.5), dpi=90, layout="constrained")
    panels: Any = figure.subplots(1, _PANELS)
    for row in rows:
        # Methods can have the same runs: dashes of different lengths show both.
        number = methods.index(row.method)
        style = {
            "color": f"C{number}",
            "drawstyle": "steps-post",
            "linestyle": "-" if number == 0 else (2 * number, (5, 2 + number)),
        }
        for panel, values in zip(panels, (row.curve.reached, row.curve.solved, row.curve.best), strict=True):
            _draw_line(panel, row, values, style)
    lowest = min(value.low for row in rows for value in row.curve.best)
    labels = ("runs that reach the target", "runs that solve the task", "best return on search states")
    for panel, label in zip(panels, labels, strict=True):
        panel.set_xscale("log")
        panel.set_xlabel("programs evaluated")
        panel.set_ylabel(label)
        panel.grid(alpha=0.3)
        panel.set_ylim(min(-0.03, lowest) if panel is panels[-1] else -0.03, 1.03)
    figure.suptitle(rows[0].environment)
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=4, fontsize="small", handlelength=4)
    return figure


def _draw_line(panel: Any, row: Success, values: Sequence[Interval], style: dict[str, Any]) -> None:
    programs = row.curve.programs
    panel.plot(
        programs, [value.value for value in values], label=f"{row.method} ({quantity(row.runs, 'run')})", **style
    )
    low, high = [value.low for value in values], [value.high for value in values]
    panel.fill_between(programs, low, high, color=style["color"], alpha=0.13, linewidth=0, step="post")
