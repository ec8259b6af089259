"""The report of a benchmark: Markdown, CSV, and a picture of the learning curves if matplotlib is installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from dressage.api.v1 import benchmark_service_pb2 as pb
from dressage.api.v1 import session_pb2
from dressage.experiments.report import csv_text, table
from dressage.sdk.results import state_name
from dressage.sdk.texts import quantity, short

Curves = Mapping[int, Sequence[tuple[int, Sequence[session_pb2.CurvePoint]]]]
"""Number and curve of each iteration, by the number of the case from 1."""

_BARS = "▁▂▃▄▅▆▇█"
_MAX_PLOTTED = 60


def write_report(benchmark: pb.Benchmark, curves: Curves, folder: Path) -> list[Path]:
    """Write the files of the report and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    pictures = [folder / "curves.png"] if _draw(benchmark, curves, folder / "curves.png") else []
    texts = {
        "report.md": markdown(benchmark, curves, picture=bool(pictures)),
        "cases.csv": cases_csv(benchmark),
        "groups.csv": groups_csv(benchmark),
        "curves.csv": curves_csv(curves),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in texts] + pictures


def dollars(cost: session_pb2.Cost) -> str:
    """Return a cost in dollars: 0 without model calls, `unknown` without a price."""
    if not cost.requests:
        return "0"
    return f"{cost.dollars:.4f}" if cost.HasField("dollars") else "unknown"


def cases_csv(benchmark: pb.Benchmark) -> str:
    """Return one line for each case."""
    head = "case env_id instruction category difficulty stage state score low high passed iterations iteration_scores dollars "
    head += "tokens env_steps session reason judged_by"
    return csv_text(head.split(), (_case_row(number, case) for number, case in enumerate(benchmark.cases, start=1)))


def _case_row(number: int, case: pb.BenchmarkCase) -> list[object]:
    scores = (case.score, case.interval_low, case.interval_high)
    passed = int(case.state == session_pb2.SESSION_STATE_SUCCEEDED) if case.state else ""
    return [
        *(number, short(case.environment), case.intent, case.category, case.difficulty, case.stage or ""),
        state_name(case.state) if case.state else "",
        *(round(score, 6) if case.HasField("score") else "" for score in scores),
        *(passed, case.iterations, " ".join(f"{score:.4f}" for score in case.iteration_scores), dollars(case.cost)),
        *(
            case.cost.input_tokens + case.cost.output_tokens,
            case.env_steps,
            case.session,
            case.reason,
            _judged_by(case),
        ),
    ]


def _judged_by(case: pb.BenchmarkCase) -> str:
    return case.judged_by + (f" (no video: {case.without_video})" if case.without_video else "")


def groups_csv(benchmark: pb.Benchmark) -> str:
    """Return one line for each group."""
    head = ["kind", "value", "total", "completed", "passed", "success_rate", "success_low", "success_high"]
    head += ["mean_score", "iterations_to_pass", "dollars", "env_steps"]
    rows = (
        [
            *(getattr(group, name) for name in head[:5]),
            *(round(getattr(group, name), 6) if group.HasField(name) else "" for name in head[5:10]),  # type: ignore[arg-type]
            *(dollars(group.cost), group.env_steps),
        ]
        for group in benchmark.groups
    )
    return csv_text(head, rows)


def curves_csv(curves: Curves) -> str:
    """Return one line for each point of each learning curve."""
    head = ["case", "iteration", "env_step", "score", "proposed_return", "return"]
    rows = (
        [
            *(case, iteration, point.env_step, round(point.score, 6) if point.HasField("score") else ""),
            *(getattr(point, name) for name in head[-2:]),
        ]
        for case, iterations in curves.items()
        for iteration, points in iterations
        for point in points
    )
    return csv_text(head, rows)


def markdown(benchmark: pb.Benchmark, curves: Curves, *, picture: bool) -> str:
    """Return the report as Markdown."""
    template = benchmark.template
    facts = [
        f"model {template.model or 'the default'}",
        f"at most {quantity(template.max_iterations or 5, 'iteration')}",
        f"threshold {template.pass_threshold or 0.7:g}",
        f"staged, gate {benchmark.stage_gate:g}" if benchmark.staged else "flat",
    ]
    lines = [f"# Benchmark {short(benchmark.name)}", "", f"{', '.join(facts)}.", ""]
    if benchmark.stopped_reason:
        lines += [f"Stopped: {benchmark.stopped_reason}.", ""]
    lines += ["## Groups", "", *_groups(benchmark), "", "## Cases", "", *_cases(benchmark), ""]
    lines += ["## Learning curves", ""]
    lines += ["![Scores over environment steps](curves.png)", ""] if picture else []
    lines += [*_sparklines(benchmark, curves), ""]
    lines += ["Intervals are 95 %: Wilson intervals of success rates, bootstrap intervals over seeds of scores.", ""]
    return "\n".join(lines)


def _groups(benchmark: pb.Benchmark) -> list[str]:
    head = [
        "group",
        "value",
        "done",
        "passed",
        "success rate",
        "mean score",
        "iterations to pass",
        "dollars",
        "env steps",
    ]
    rows = []
    for group in benchmark.groups:
        rate = "–"
        if group.HasField("success_rate"):
            rate = f"{group.success_rate:.0%} ({group.success_low:.0%} to {group.success_high:.0%})"
        score = f"{group.mean_score:.2f}" if group.HasField("mean_score") else "–"
        needed = f"{group.iterations_to_pass:.1f}" if group.HasField("iterations_to_pass") else "–"
        results = (f"{group.completed}/{group.total}", group.passed, rate, score, needed)
        rows.append((group.kind, group.value, *results, dollars(group.cost), f"{group.env_steps:,}"))
    return table(head, rows)


def _cases(benchmark: pb.Benchmark) -> list[str]:
    head = ["case", "environment", "intent", "category", "difficulty", "state", "score", "judged by", "iterations"]
    rows = []
    for number, case in enumerate(benchmark.cases, start=1):
        score = "–"
        if case.HasField("score"):
            score = f"{case.score:.2f} ({case.interval_low:.2f} to {case.interval_high:.2f})"
        state = state_name(case.state) if case.state else "not started"
        described = (number, short(case.environment), case.intent, case.category, case.difficulty)
        results = (state, score, _judged_by(case), case.iterations, dollars(case.cost), case.reason[:200])
        rows.append((*described, *results))
    return table([*head, "dollars", "reason"], rows)


def sparkline(values: Sequence[float]) -> str:
    """Return values between 0 and 1 as bars."""
    return "".join(_BARS[min(len(_BARS) - 1, max(0, int(value * len(_BARS))))] for value in values)


def _sparklines(benchmark: pb.Benchmark, curves: Curves) -> list[str]:
    rows = []
    for number, case in enumerate(benchmark.cases, start=1):
        scores = list(case.iteration_scores)
        iterations = curves.get(number, [])
        within = " ".join(sparkline([p.score for p in points if p.HasField("score")]) for _, points in iterations)
        numbers = ", ".join(f"{score:.2f}" for score in scores)
        rows.append((number, sparkline(scores), numbers, within))
    return table(("case", "by iteration", "scores", "within iterations, over training"), rows)


def _draw(benchmark: pb.Benchmark, curves: Curves, path: Path) -> bool:
    """Draw the curves of all iterations on one axis of steps; return False without matplotlib or curves."""
    try:
        import matplotlib
    except ImportError:
        return False
    lines = {number: _join_curves(iterations) for number, iterations in list(curves.items())[:_MAX_PLOTTED]}
    lines = {number: points for number, points in lines.items() if points}
    if not lines:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 5), layout="constrained")
    for number, points in lines.items():
        label = f"{number} {benchmark.cases[number - 1].intent[:30]}"
        axes.plot([step for step, _ in points], [score for _, score in points], marker=".", label=label)
    axes.set(xlabel="environment steps of a member, all iterations", ylabel="score", ylim=(0, 1.02))
    axes.axhline(benchmark.template.pass_threshold or 0.7, color="grey", linestyle=":")
    if len(lines) <= 20:
        axes.legend(fontsize="small")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return True


def _join_curves(iterations: Sequence[tuple[int, Sequence[session_pb2.CurvePoint]]]) -> list[tuple[int, float]]:
    points, before = [], 0
    for _, curve in iterations:
        points += [(before + point.env_step, point.score) for point in curve if point.HasField("score")]
        before += max((point.env_step for point in curve), default=0)
    return points
