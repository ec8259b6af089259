"""Cases and report of `dressage bench`: pure functions on files."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from dressage import errors
from dressage.api.v1 import benchmark_service_pb2 as pb
from dressage.api.v1 import session_pb2 as v1
from dressage.cli import benchmark_report, benchmarks, guidance, options
from dressage.experiments import files


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "cases.csv"
    path.write_text(text)
    return path


def cases_of(path: Path, **options: Any) -> list[pb.BenchmarkCase]:
    return list(files.read_cases(path, v1.SessionSpec(**options)).request.cases)


def test_the_id_of_a_case_depends_on_what_it_computes_and_on_no_limit(tmp_path: Path) -> None:
    path = write(tmp_path, "env_id,instruction,difficulty\nHopper-v5,hop,easy\nHopper-v5,hop,\nAnt-v5,run,\n")
    ids = [case.session_id for case in cases_of(path)]
    assert len(set(ids)) == 3 and [case.run for case in cases_of(path)] == [0, 1, 0]
    assert [case.session_id for case in cases_of(path, max_iterations=9, budget={"tokens": 5})] == ids
    assert not set(ids) & {case.session_id for case in cases_of(path, seed=1)}
    name = files.read_cases(path, v1.SessionSpec()).request.name
    write(tmp_path, "env_id,instruction,difficulty\nAnt-v5,run,hard\nHopper-v5,jump,\n")
    assert cases_of(path)[0].session_id == ids[2] and files.read_cases(path, v1.SessionSpec()).request.name != name


@pytest.mark.parametrize(
    ("text", "named"),
    [("{", "not JSON"), ("[]", "at least one"), ('[{"intent": "hop"}]', r"CASES\[1\]"), ('[{"x": 1}]', r"CASES\[1\]")],
)
def test_bad_cases_of_a_json_file_are_named(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "cases.json"
    path.write_text(text)
    with pytest.raises(errors.InvalidArgument, match=named):
        cases_of(path)


def test_cases_with_quotes_columns_in_any_order_and_none_of_the_optional(tmp_path: Path) -> None:
    text = 'difficulty,instruction,env_id\neasy,"run, fast ""now""",HalfCheetah-v5\n,hop,Hopper-v5\n'
    first, second = cases_of(write(tmp_path, text))
    assert (first.intent, first.environment, first.difficulty) == (
        'run, fast "now"',
        "environments/HalfCheetah-v5",
        "easy",
    )
    assert (second.intent, second.category, second.difficulty) == ("hop", "", "")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("env,instruction\nA,run\n", "env_id"),
        ("env_id,instruction\nHalfCheetah-v5,\n", "line 2, instruction"),
        ("env_id,instruction\n", "CASES: no cases"),
        ("", "a file that is not empty"),
    ],
)
def test_bad_cases_name_line_and_column(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(errors.InvalidArgument) as wrong:
        cases_of(write(tmp_path, text))
    assert named in wrong.value.message


def finished() -> pb.Benchmark:
    benchmark = pb.Benchmark(
        name="benchmarks/b-1", staged=True, stage_gate=0.7, stopped_reason="stage 1: below the gate"
    )
    case = benchmark.cases.add(intent="run | fast\nnow", environment="environments/A-v5", category="run", stage=1)
    case.state, case.score, case.iterations = v1.SESSION_STATE_SUCCEEDED, 0.9, 2
    case.interval_low, case.interval_high = 0.8, 0.95
    case.cost.CopyFrom(v1.Cost(requests=2, input_tokens=100, output_tokens=20))
    case.iteration_scores.extend([0.3, 0.9])
    benchmark.cases.add(intent="jump", environment="environments/A-v5")
    benchmark.groups.add(kind="all", value="all", total=2, completed=1, passed=1, success_rate=1.0, success_low=0.2)
    return benchmark


def case_options(**values: Any) -> options.CaseOptions:
    return options.CaseOptions.parse(values)


def test_the_sessions_share_the_options_of_the_command() -> None:
    spec = benchmarks.template(options.CaseOptions(model="m", seeds=2, steps=1000, iterations=3, budget_dollars=1.5))
    assert not spec.intent and not spec.environment
    assert (spec.model, spec.max_iterations, spec.budget.dollars) == ("m", 3, 1.5)
    assert (spec.reward.seeds, spec.reward.max_steps_per_member) == (2, 1000)


def test_cases_take_environment_options_video_configs_and_budgets() -> None:
    given = case_options(
        env_options=["terminate_when_unhealthy=false"],
        video="all",
        configs=["wide:hidden_sizes=128x128"],
        budget_steps=1000,
        budget_minutes=2.0,
        model=["openai/x", "video=gemini/y"],
        thinking=["high"],
    )
    spec = benchmarks.template(given)
    assert spec.environment_options.HasField("terminate_when_unhealthy")
    assert not spec.environment_options.terminate_when_unhealthy
    assert spec.video_judging == v1.VIDEO_JUDGING_ALL and list(spec.reward.configs[0].hyperparameters.hidden_sizes) == [
        128,
        128,
    ]
    assert spec.budget.env_steps == 1000 and spec.budget.wall_time.ToTimedelta().total_seconds() == 120
    assert (spec.model, spec.roles["video"].model, spec.thinking) == ("openai/x", "gemini/y", "high")


def test_any_method_can_be_benchmarked_with_its_settings() -> None:
    spec = benchmarks.template(case_options(method="parameters", settings=["target=475"]))
    assert spec.WhichOneof("method_spec") == "parameters" and spec.parameters.target == 475
    with pytest.raises(errors.InvalidArgument, match=r"^seeds: not an option of the method 'parameters'"):
        benchmarks.template(options.CaseOptions(method="parameters", seeds=2))


def test_the_report_says_what_is_known_and_unknown(tmp_path: Path) -> None:
    point = v1.CurvePoint(env_step=500, proposed_return=3.0, score=0.5)
    curves = {1: [(1, [point, v1.CurvePoint(env_step=1000, proposed_return=4.0)])]}
    files = benchmark_report.write_report(finished(), curves, tmp_path / "out")
    assert {file.name for file in files} >= {"report.md", "cases.csv", "groups.csv", "curves.csv"}
    text = (tmp_path / "out" / "report.md").read_text()
    assert "run \\| fast now" in text and "0.90 (0.80 to 0.95)" in text and "unknown" in text and "not started" in text
    assert "Stopped: stage 1" in text and "▃█"[1] in text
    rows = list(csv.DictReader(io.StringIO((tmp_path / "out" / "cases.csv").read_text())))
    assert rows[0]["dollars"] == "unknown" and rows[0]["tokens"] == "120" and rows[0]["passed"] == "1"
    assert rows[1]["score"] == "" and rows[1]["dollars"] == "0"
    points = list(csv.DictReader(io.StringIO((tmp_path / "out" / "curves.csv").read_text())))
    assert [row["score"] for row in points] == ["0.5", ""]


def test_dollars_are_never_zero_where_the_price_is_unknown() -> None:
    assert benchmark_report.dollars(v1.Cost()) == "0"
    assert benchmark_report.dollars(v1.Cost(requests=1)) == "unknown"
    assert benchmark_report.dollars(v1.Cost(requests=1, dollars=0.25)) == "0.2500"


def test_agreement_is_one_line() -> None:
    text = guidance.agreement(v1.Agreement(rollouts=4, spearman=0.8))
    assert "4 labelled" in text and "0.80" in text and "too few labels" in text
