"""Searches over programs: successes against programs evaluated, and the page of a report."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dressage import errors
from dressage.experiments.analysis import Results, analyse
from dressage.experiments.files import read_experiment, read_matrix
from dressage.experiments.records import Record, ResultFolder, limits_of
from dressage.statistics import Interval

from research import page
from research.programs import Success, are_programs, successes, verdict
from research.published import load_published

REPOSITORY = Path(__file__).parents[2]


def run(method: str, number: int, *, solved: int | None, reached: int | None = None, **more: Any) -> Record:
    """A run that solves its task, or reaches the target on search states, after so many programs; None: it does not."""
    best = 1.0 if solved or reached else 0.5
    evaluated = solved or 100_000
    curve = [(1, 0, -1.0, -1.0), (200, 0, 0.5, 0.5), (solved or reached or evaluated, 0, best, best)]
    values: dict[str, Any] = {
        "cell": f"climbs-{method}-{number}",
        "experiment": "climbs",
        "environment": "karel/DoorKey",
        "method": method,
        "run": number,
        "seed": number,
        "state": "succeeded" if solved else "exhausted",
        "reason": "",
        "score": 1.0 if solved else 0.4,
        "score_interval": None,
        "report_returns": [],
        "target": 1.0,
        "best": best,
        "mean_winner": None,
        "last_winner": None,
        "episodes": 9,
        "candidates": evaluated,
        "cache_hits": evaluated // 2,
        "env_steps": 0,
        "input_tokens": 0,
        "output_tokens": 0,
        "requests": 0,
        "dollars": 0.0,
        "seconds": 3.0,
        "curve": [*curve, (evaluated, 0, best, best)],
        "settings": {"method": "program", "budget": "100000"},
        "limits": {"programs": 100_000},
        "exhausted_limit": "",
        "score_range": (0.0, 1.0),
        "machine": {"processor": "P", "cores": 2},
        "end_time": "",
    }
    return Record(**{**values, **more})


def two_methods() -> list[Record]:
    """Of eight runs, `scheduled` solves two and reaches the target in a third; `seeded` solves seven."""
    ours = [
        run("scheduled", n, solved=[900, 60_000, None][min(n, 2)], reached=70_000 if n == 2 else None) for n in range(8)
    ]
    return ours + [run("seeded", n, solved=500 + n if n < 7 else None) for n in range(8)]


def rows_of(records: list[Record]) -> list[Success]:
    return successes(Results(records), "scheduled")


def test_runs_count_as_solved_from_the_program_that_solves_them() -> None:
    scheduled, seeded = rows_of(two_methods())
    assert (scheduled.runs, scheduled.solved, scheduled.reached) == (8, 2, 3)
    assert (seeded.solved, seeded.median, seeded.fewest) == (7, 503.5, 500)
    assert math.isinf(scheduled.median) and scheduled.fewest == 900
    assert scheduled.marks.programs.tolist() == [1_000, 10_000, 100_000]
    assert [share.value for share in scheduled.marks.solved] == [1 / 8, 1 / 8, 2 / 8]
    assert [share.value for share in scheduled.marks.reached] == [1 / 8, 1 / 8, 3 / 8]
    assert [value.value for value in scheduled.marks.best] == [(7 * 0.5 + 1) / 8] * 2 + [(5 * 0.5 + 3) / 8]
    assert scheduled.curve.programs[0] == 10 and scheduled.curve.best[0].value == -1.0
    assert scheduled.curve.solved[-1].value == 2 / 8, "the last point of the grid is the budget in spite of rounding"


def test_differences_are_those_from_the_reference() -> None:
    scheduled, seeded = rows_of(two_methods())
    assert scheduled.solved_difference is None and seeded.solved_difference is not None
    assert seeded.solved_difference.difference.value == pytest.approx(5 / 8)
    assert verdict(seeded.solved_difference.difference) == "more"
    assert seeded.reached_difference is not None and seeded.reached_difference.difference.value == pytest.approx(4 / 8)
    assert verdict(Interval(0.5, -0.1, 0.9)) == ""
    assert verdict(Interval(-0.5, -0.9, -0.1)) == "fewer"


def test_rounding_of_a_mean_return_is_no_failure_to_reach() -> None:
    almost = replace(run("scheduled", 0, solved=400), curve=[(400, 0, 1 - 2e-16, 1 - 2e-16)], score=1 - 2e-16)
    (row,) = rows_of([almost])
    assert (row.reached, row.solved) == (1, 1)


def test_a_program_that_is_right_on_report_states_only_is_no_solution() -> None:
    lucky = replace(run("scheduled", 0, solved=None), state="succeeded", score=1.0)
    (row,) = rows_of([lucky])
    assert (row.reached, row.solved) == (0, 0) and math.isinf(row.fewest)


def test_only_results_of_programs_get_their_report() -> None:
    records = two_methods()
    assert are_programs(records)
    assert not are_programs([*records, replace(records[0], settings={"method": "parameters"})])
    assert not are_programs([])


def test_a_report_is_written_between_the_markers_of_a_page(tmp_path: Path) -> None:
    analysis = analyse(two_methods(), metric="score", reference="scheduled")
    path = tmp_path / "docs" / "climbs.md"
    path.parent.mkdir()
    path.write_text(f"# Climbs\n\n{page.BEGIN}\nold\n{page.END}\n\nThe end.\n")
    for _ in range(2):  # the second time replaces the first report
        page.write(analysis, [], path.with_suffix(""), path)
    text = path.read_text()
    assert text.startswith("# Climbs\n") and text.endswith("\nThe end.\n") and "old" not in text
    assert text.count("## Solved runs") == 1
    assert "| karel/DoorKey | scheduled | 3/8 | 2/8 | more than 100,000 | 900 |" in text
    assert "- `scheduled` solves no task in more than half of its runs, and in fewer karel/DoorKey (2/8)." in text
    assert "Compared with `scheduled`, it reaches the target in more runs on karel/DoorKey (7/8)" in text
    assert "| karel/DoorKey | seeded | +0.50" in text and "| more |" in text
    assert "|  |  | solved | 0.12 [0.02, 0.47] | 0.12 [0.02, 0.47] | 0.25 [0.07, 0.59] |" in text
    assert "](climbs/karel-DoorKey.png)" in text
    assert [path.name for path in (tmp_path / "docs" / "climbs").iterdir()] == ["karel-DoorKey.png"]


def test_a_page_without_markers_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("# A page\n")
    with pytest.raises(errors.InvalidArgument, match="--page: no place for the report"):
        page.around_report(path)


def test_the_experiment_of_the_repository_begins_with_whole_runs() -> None:
    path = REPOSITORY / "experiments" / "programs.yaml"
    entries = read_matrix(path).request.cases
    assert len(entries) == 12 * 3 * 32 + 4 * 32
    assert [cell.run for cell in entries] == sorted(cell.run for cell in entries)
    assert {limits_of(cell.spec)["programs"] for cell in entries} == {10**6}
    names = {entry.id for entry in read_experiment(path).environments}
    published = load_published(REPOSITORY / "experiments" / "paper" / "llmgs.json")
    assert {name for method in published.methods("score") for name in published.metrics["score"][method]} <= names
    assert set(published.environment_caveats) <= names
    planned_cells = {cell.session_id for cell in entries}
    results = ResultFolder(REPOSITORY / "experiments" / "results" / "programs").records()
    assert {record.cell for record in results} <= planned_cells
    page.around_report(REPOSITORY / "docs" / "evidence" / "programs.md")
