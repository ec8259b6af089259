"""The file of an experiment, its cells, the folder of its results, and the report, on files."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from dressage import errors
from dressage.api.v1 import session_pb2 as pb
from dressage.api.v1.benchmark_service_pb2 import BenchmarkCase
from dressage.cli import experiment_report
from dressage.cli.main import invoke
from dressage.experiments import analysis, records, report
from dressage.experiments.files import read_experiment, read_matrix
from dressage.experiments.records import ORDER, RESULTS, Record, ResultFolder, environment_label, limits_of

EXPERIMENTS = Path(__file__).parents[3] / "experiments"
CONTENT: dict[str, Any] = {
    "name": "tiny",
    "environments": ["CartPole-v1", {"id": "Hopper-v5", "options": {"max_episode_steps": 10}}],
    "methods": [{"name": "random", "settings": {"search": "random", "bias": False}}],
    "runs": 2,
    "budget": {"iterations": 4, "episodes": 100},
}


def planned(tmp_path: Path, **changes: Any) -> list[BenchmarkCase]:
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(CONTENT | changes))
    return read_matrix(path).request.cases


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"runs": 0}, r"tiny.yaml: runs: invalid value \(got 0\); expected greater than or equal to 1"),
        ({"runs": "x"}, r"tiny.yaml: runs: invalid value \(got 'x'\); expected a valid integer"),
        ({"rums": 1}, r"tiny.yaml: rums: unknown field \(got 1\)"),
        ({"name": "A b"}, r"tiny.yaml: name: invalid value \(got 'A b'\); expected a text that should match"),
        ({"environments": []}, r"environments: .*expected a list that should have at least 1 item"),
        ({"environments": ["a b"]}, r"tiny.yaml: environments\[0\]\.id: .*got 'a b'"),
        ({"environments": [{"id": "A", "score_range": [2, 1]}]}, r"environments\[0\]\.score_range: expected a lower"),
        (
            {"environments": [{"id": "A", "options": {"steps": 1}}]},
            r"environments\[0\]\.options\.steps: unknown field",
        ),
        ({"environments": ["A", "A"]}, r"tiny.yaml: environments: 'A' is given more than once"),
        ({"methods": [{"settings": {}}]}, r"tiny.yaml: methods\[0\]\.name: missing"),
        ({"methods": [{"name": "x", "settings": {"serch": "a"}}]}, r"methods\[0\]\.settings\.serch: unknown field"),
        (
            {"methods": [{"name": "x", "settings": {"episodes": "a"}}]},
            r"settings\.episodes: .*a whole number of 32 bits",
        ),
        (
            {"methods": [{"name": "x", "settings": {"search": {}}}]},
            r"settings\.search: .*a text, a number, true or false",
        ),
        ({"methods": [{"name": "x", "settings": {"episode_budget": 3}}]}, r"a limit, not a setting.*budget\.episodes"),
        ({"methods": [{"name": "x", "method": "magic"}]}, r"methods\[0\]\.method: unknown method \(got 'magic'\)"),
        ({"methods": [{"name": "x", "environments": ["Z"]}]}, r"methods\[0\]\.environments: 'Z' is not in"),
        ({"methods": [{"name": "x", "method": "code"}]}, r"budget\.episodes: the method 'code' has no episode budget"),
        ({"budget": {"minutes": -1}}, r"tiny.yaml: budget\.minutes: .*expected greater than 0"),
    ],
)
def test_a_wrong_field_is_named_with_its_path(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=message):
        planned(tmp_path, **changes)


@pytest.mark.parametrize(("text", "message"), [("a: [", "not YAML"), ("- a", "got 'list'"), ("", "not empty")])
def test_a_file_that_is_no_experiment_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "tiny.yaml"
    path.write_text(text)
    with pytest.raises(errors.InvalidArgument, match=message):
        read_experiment(path)


def test_each_cell_is_a_session_of_its_own(tmp_path: Path) -> None:
    entries = planned(tmp_path)
    assert [(environment_label(cell), cell.run, cell.spec.seed) for cell in entries] == [
        ("CartPole-v1", 0, 0),
        ("Hopper-v5", 0, 0),
        ("CartPole-v1", 1, 1),
        ("Hopper-v5", 1, 1),
    ]
    assert len({cell.session_id for cell in entries}) == 4 and all(
        cell.session_id.startswith("tiny-") for cell in entries
    )
    spec = entries[1].spec
    assert (spec.parameters.search, spec.parameters.bias, spec.environment_options.max_episode_steps) == (
        "random",
        False,
        10,
    )
    assert limits_of(spec) == {"iterations": 4, "episodes": 100}


def test_the_id_of_a_cell_depends_on_no_limit_and_no_neighbour(tmp_path: Path) -> None:
    ids = {cell.session_id for cell in planned(tmp_path)}
    larger = {"iterations": 9, "episodes": 1000, "dollars": 2.0, "tokens": 5, "env_steps": 10, "minutes": 3}
    other = [*CONTENT["methods"], {"name": "cma_es", "settings": {"search": "cma_es"}}]
    for changes in ({"budget": larger}, {"runs": 5}, {"methods": other}, {"description": "text"}):
        assert ids <= {cell.session_id for cell in planned(tmp_path, **changes)}, changes


def test_runs_have_seeds_at_a_distance(tmp_path: Path) -> None:
    runs = planned(tmp_path, runs=4, first_seed=2, seed_step=3)
    assert {(cell.run, cell.spec.seed) for cell in runs} == {(0, 2), (1, 5), (2, 8), (3, 11)}
    assert {cell.session_id for cell in planned(tmp_path, runs=1, first_seed=8)} <= {cell.session_id for cell in runs}


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "other"},
        {"intent": "balance"},
        {"first_seed": 100},
        {"methods": [{"name": "random", "settings": {"search": "random"}}]},
        {"methods": [{"name": "random", "settings": {"search": "random", "bias": False}, "model": "m"}]},
        {"environments": [{"id": "CartPole-v1", "options": {"max_episode_steps": 9}}]},
    ],
)
def test_the_id_of_a_cell_depends_on_what_it_computes(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert not {cell.session_id for cell in planned(tmp_path)} & {
        cell.session_id for cell in planned(tmp_path, **changes)
    }


def test_the_experiments_of_the_repository_are_valid() -> None:
    assert len(read_matrix(EXPERIMENTS / "controls.yaml").request.cases) == 10 * 3 * 10
    assert len(read_matrix(EXPERIMENTS / "sb3.yaml").request.cases) == (4 + 6 + 6) * 5


def record(environment: str, method: str, run: int, score: float, **more: Any) -> Record:
    """A result of ten candidates."""
    values: dict[str, Any] = {
        "cell": f"tiny-{environment}-{method}-{run}".lower(),
        "experiment": "tiny",
        "environment": environment,
        "method": method,
        "run": run,
        "seed": run,
        "state": "succeeded" if score >= 475 else "exhausted",
        "reason": "",
        "score": score,
        "score_interval": (score - 1, score + 1),
        "report_returns": [score, score],
        "target": 475.0,
        "best": score + 1,
        "mean_winner": None,
        "last_winner": None,
        "episodes": 200,
        "candidates": 10,
        "cache_hits": 0,
        "env_steps": 1000,
        "input_tokens": 0,
        "output_tokens": 0,
        "requests": 0,
        "dollars": 0.0,
        "seconds": 2.5,
        "curve": [(20, 0, 1.0, 1.0), (200, 0, score, score + 1)],
        "settings": {"method": "parameters"},
        "limits": {},
        "exhausted_limit": "",
        "score_range": None,
        "machine": {"processor": "P", "cores": 2, "system": "Linux"},
        "end_time": "",
    }
    return Record(**{**values, **more})


def grid() -> list[Record]:
    """Two methods in two environments, three runs each; `good` is better."""
    return [
        record(environment, method, run, base + run)
        for environment in ("CartPole-v1", "Hopper-v5")
        for method, base in (("good", 480.0), ("bad", 100.0))
        for run in range(3)
    ]


def test_results_are_read_as_written_and_the_last_of_a_cell_counts(tmp_path: Path) -> None:
    folder = ResultFolder(tmp_path / "out")
    first = record("CartPole-v1", "random", 0, 400.0)
    folder.add(first)
    folder.add(record("CartPole-v1", "random", 1, 300.0))
    folder.add(replace(first, score=450.0))
    assert [entry.score for entry in folder.records()] == [450.0, 300.0]
    assert folder.records()[0] == replace(first, score=450.0)


def test_results_have_the_order_of_the_experiment(tmp_path: Path) -> None:
    folder = ResultFolder(tmp_path)
    for environment, method in (("B", "last"), ("A", "last"), ("A", "first"), ("A", "dropped"), ("B", "first")):
        folder.add(record(environment, method, 0, 1.0))
    unordered = [(entry.environment, entry.method) for entry in folder.records()]
    assert unordered[0] == ("B", "last")
    folder.set_order(["A", "B", "A"], ["first", "last"])
    ordered = [(entry.environment, entry.method) for entry in folder.records()]
    assert ordered == [("A", "first"), ("A", "last"), ("A", "dropped"), ("B", "first"), ("B", "last")]
    for damaged in ("{", "[]", '{"environments": 1, "methods": 2}'):
        (tmp_path / ORDER).write_text(damaged)
        assert len(folder.records()) == 5


def test_a_line_that_a_kill_cut_off_loses_no_other_result(tmp_path: Path) -> None:
    folder = ResultFolder(tmp_path)
    folder.add(record("A", "m", 0, 1.0))
    with (tmp_path / RESULTS).open("a") as file:
        file.write('{"cell": "tiny-a-m-1", "sco')
    assert len(folder.records()) == 1
    folder.add(record("A", "m", 2, 3.0))
    assert [entry.run for entry in folder.records()] == [0, 2]


def test_a_file_of_other_lines_is_refused(tmp_path: Path) -> None:
    (tmp_path / RESULTS).write_text('{"cell": "x"}\n')
    with pytest.raises(errors.InvalidArgument, match=r"results.jsonl, line 1: not a result"):
        ResultFolder(tmp_path).records()


def test_a_record_has_the_numbers_of_its_session(tmp_path: Path) -> None:
    cell = planned(tmp_path)[0]
    session = pb.Session(state=pb.SESSION_STATE_EXHAUSTED, spec=cell.spec, episodes=60, candidates=4, goal="475")
    session.report.mean, session.exhaustion_reason = 12.0, pb.EXHAUSTION_REASON_WALL_TIME
    session.report.returns.extend([11.0, 13.0])
    session.cost.requests, session.cost.input_tokens, session.cost.output_tokens = 2, 100, 10
    session.start_time.FromMilliseconds(1000)
    session.end_time.FromMilliseconds(3500)
    iterations = []
    for number, (first, revised) in enumerate([(1.0, 3.0), (9.0, 5.0)], start=1):
        entry = pb.Iteration(number=number)
        entry.parameters.candidates.add(origin="search", mean_return=first, returns=[first] * 10)
        entry.parameters.candidates.add(origin="critic", mean_return=revised, returns=[revised] * 10)
        entry.parameters.chosen = 2 if revised > first else 1
        iterations.append(entry)
    entries = records.record_of(cell, session, iterations, experiment="tiny", machine={"cores": 2})
    assert (entries.score, entries.best, entries.mean_winner, entries.last_winner) == (12.0, 9.0, 6.0, 9.0)
    assert entries.curve == [(20, 0, 3.0, 3.0), (40, 0, 9.0, 9.0)]
    assert (entries.dollars, entries.seconds, entries.exhausted_limit) == (None, 2.5, "minutes")
    assert entries.settings["search"] == "random" and entries.limits == {"iterations": 4, "episodes": 100}


def test_the_analysis_tests_the_reference_against_each_method() -> None:
    entries = analysis.analyse(grid(), metric="score", reference="good")
    assert {(row.environment, row.method, row.reached) for row in entries.rows} == {
        ("CartPole-v1", "good", 3),
        ("CartPole-v1", "bad", 0),
        ("Hopper-v5", "good", 3),
        ("Hopper-v5", "bad", 0),
    }
    first, second = entries.comparisons
    assert (first.baseline, first.difference, report.verdict(first)) == ("bad", 380.0, "better")
    assert first.holm == pytest.approx(2 * first.p) and second.holm == pytest.approx(2 * second.p)
    good, bad = entries.aggregates
    assert good.improvement is None and bad.improvement is not None and bad.improvement.value == 1.0
    assert good.iqm.value > 0.9 and bad.iqm.value < 0.1 and entries.bounds["CartPole-v1"] == (100.0, 482.0)
    (line,) = [each for each in entries.curves if (each.environment, each.method) == ("CartPole-v1", "good")]
    assert (line.positions[0], line.positions[-1], line.mean[-1]) == (20.0, 200.0, 482.0)


def test_runs_that_failed_are_no_results() -> None:
    failed = replace(grid()[0], state="failed", score=None)
    assert analysis.analyse([failed, *grid()[1:]], metric="score", reference="").rows[0].runs == 2
    with pytest.raises(errors.InvalidArgument, match="no results"):
        analysis.analyse([failed], metric="score", reference="")
    with pytest.raises(errors.InvalidArgument, match=r"--reference: unknown method .*expected one of good, bad"):
        analysis.analyse(grid(), metric="score", reference="best")


def test_report_writes_markdown_csv_and_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = ResultFolder(tmp_path / "tiny")
    for entry in grid():
        folder.add(replace(entry, input_tokens=50, curve=[(20, 10, 1.0, 1.0), (200, 60, 5.0, 5.0)]))
    out = tmp_path / "report"
    assert invoke(["report", str(folder.path), "--reference", "good", "--out", str(out)]) == 0
    text = (out / "report.md").read_text()
    assert text in capsys.readouterr().out
    assert "| CartPole-v1 | 481.00 ± 1.00 [480.00, 482.00] | 101.00 ± 1.00 [100.00, 102.00] |" in text
    assert "| bad | CartPole-v1 | 380.00 |" in text and "better" in text
    for name in ("curves-episodes.png", "curves-tokens.png"):
        assert (out / name).read_bytes().startswith(b"\x89PNG") and f"![{name}]({name})" in text
    rows = list(csv.DictReader(io.StringIO((out / "tests.csv").read_text())))
    assert {row["verdict"] for row in rows} == {"better"} and len(rows) == 2
    assert len(list(csv.DictReader(io.StringIO((out / "runs.csv").read_text())))) == 12
    assert {row["metric"] for row in csv.DictReader(io.StringIO((out / "summary.csv").read_text()))} == {
        "score",
        "best",
    }
    assert len((out / "curves.csv").read_text().splitlines()) == 1 + 2 * 4 * 100


def test_report_as_json_and_its_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = ResultFolder(tmp_path / "tiny")
    for entry in grid():
        folder.add(entry)
    assert invoke(["report", str(folder.path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["reference"] == "good" and len(document["tests"]) == 2 and len(document["summary"]) == 4
    for arguments, message in (
        ([str(tmp_path / "none")], "FOLDER: no results"),
        ([str(folder.path), "--metric", "speed"], "--metric: invalid value (got 'speed'); expected one of score, best"),
    ):
        assert invoke(["report", *arguments]) == 1
        assert message in capsys.readouterr().err


def test_methods_of_the_same_name_are_told_apart_by_experiment(tmp_path: Path) -> None:
    for name in ("one", "two"):
        ResultFolder(tmp_path / name).add(replace(record("A", "m", 0, 1.0), experiment=name, cell=name))
    entries = experiment_report.read([tmp_path / "one", tmp_path / "two"])
    assert [entry.method for entry in entries] == ["one:m", "two:m"]


def test_numbers_in_tables_have_no_negative_zero() -> None:
    assert [report.number(value) for value in (-4e-5, 0.0, -0.006, 12.345, -1234.56)] == [
        "0.00",
        "0.00",
        "-0.01",
        "12.35",
        "-1,234.6",
    ]
