"""Experiments of trained behaviours and of programs: several intents in an environment, limits, and their results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from dressage import errors
from dressage.api.v1 import session_pb2 as pb
from dressage.api.v1.benchmark_service_pb2 import BenchmarkCase
from dressage.cli.main import invoke
from dressage.experiments.files import read_experiment, read_matrix
from dressage.experiments.records import Record, ResultFolder, environment_label, limits_of, record_of

REPOSITORY = Path(__file__).parents[3]
CONTENT: dict[str, Any] = {
    "name": "walks",
    "environments": [
        {"name": "walk", "id": "Hopper-v5", "intent": "hop forward"},
        {"name": "fast", "id": "Hopper-v5", "intent": "hop forward fast", "runs": 1},
    ],
    "methods": [{"name": "defaults", "method": "reward"}],
    "runs": 3,
}
PROGRAMS: dict[str, Any] = {
    "name": "climbs",
    "environments": ["karel/DoorKey"],
    "methods": [{"name": "scheduled", "method": "program", "settings": {"seed_programs": 0}}],
    "runs": 2,
    "budget": {"programs": 5000},
}


def planned(tmp_path: Path, content: dict[str, Any] = CONTENT, **changes: Any) -> list[BenchmarkCase]:
    path = tmp_path / "experiment.yaml"
    path.write_text(yaml.safe_dump(content | changes))
    return read_matrix(path).request.cases


def result(cell: BenchmarkCase, *, score: float, confirmed: bool = True, seconds: float = 60) -> Record:
    """The result of a session that passed and was confirmed, or did not pass."""
    session = pb.Session(
        spec=cell.spec,
        state=pb.SESSION_STATE_SUCCEEDED if confirmed else pb.SESSION_STATE_EXHAUSTED,
        state_reason="" if confirmed else "all 3 iterations are used",
        best_score=0.99,
        env_steps=1_000,
    )
    session.spec.intent, session.spec.environment = cell.intent, cell.environment
    judgment = pb.Judgment(score=score, samples=[score], interval_low=score - 0.1, interval_high=score)
    if confirmed:
        session.confirmation.CopyFrom(judgment)
    else:
        session.best_judgment.CopyFrom(judgment)
        session.best_score = score
    session.start_time.FromSeconds(1_000)
    session.end_time.FromMilliseconds(round(1_000 * (1_000 + seconds)))
    return record_of(cell, session, [], experiment="walks", machine={})


def test_an_environment_has_several_intents_and_runs_of_its_own(tmp_path: Path) -> None:
    rows = planned(tmp_path)
    assert [(environment_label(cell), cell.run, cell.intent) for cell in rows] == [
        ("walk", 0, "hop forward"),
        ("fast", 0, "hop forward fast"),
        ("walk", 1, "hop forward"),
        ("walk", 2, "hop forward"),
    ]
    assert len({cell.session_id for cell in rows}) == 4
    assert {cell.environment for cell in rows} == {"environments/Hopper-v5"}
    with pytest.raises(errors.InvalidArgument, match="'Hopper-v5' is given more than once"):
        planned(tmp_path, environments=["Hopper-v5", {"id": "Hopper-v5", "intent": "hop"}])


def test_the_experiment_has_every_suggested_intent(capsys: pytest.CaptureFixture[str]) -> None:
    """As the list of environments prints them: the first two of each that needs no pack."""
    assert invoke(["envs", "list", "--json"]) == 0
    cards = json.loads(capsys.readouterr().out)["environments"]
    built_in = [card for card in cards if "reward" in card["methods"] and not card["pack"]]
    suggested = {(card["id"], intent) for card in built_in for intent in card["example_intents"][:2]}
    experiment = read_experiment(REPOSITORY / "experiments" / "intents.yaml")
    assert {(entry.id, entry.intent) for entry in experiment.environments} == suggested
    assert {entry.label for entry in experiment.environments if entry.runs == 3} == {"Humanoid/walk", "Humanoid/run"}
    assert experiment.runs == 5 and len(experiment.environments) == len(suggested) == 24


def test_a_result_has_the_confirmed_score_and_old_results_are_read(tmp_path: Path) -> None:
    (cell, *_) = planned(tmp_path)
    record = result(cell, score=0.9)
    assert (record.score, record.confirmed, record.score_interval) == (0.9, 0.9, (0.8, 0.9))
    assert (record.intent, record.environment_id, record.environment) == ("hop forward", "Hopper-v5", "walk")
    failed = result(cell, score=0.3, confirmed=False)
    assert (failed.score, failed.confirmed, failed.score_interval) == (0.3, None, (pytest.approx(0.2), 0.3))
    folder = ResultFolder(tmp_path / "results")
    folder.add(record)
    line = json.loads((folder.path / "results.jsonl").read_text())
    old = {name: value for name, value in line.items() if name not in ("intent", "environment_id", "confirmed")}
    (folder.path / "results.jsonl").write_text(json.dumps(old) + "\n")
    (read,) = folder.records()
    assert read.confirmed is None and read.score == 0.9


def test_programs_are_a_limit_and_no_part_of_the_id(tmp_path: Path) -> None:
    first, _ = planned(tmp_path, PROGRAMS)
    assert limits_of(first.spec) == {"programs": 5000} and first.spec.program.budget == 5000
    larger = planned(tmp_path, PROGRAMS, budget={"programs": 10**6})
    assert [cell.session_id for cell in larger] == [cell.session_id for cell in planned(tmp_path, PROGRAMS)]
    setting = [{**PROGRAMS["methods"][0], "settings": {"budget": 3}}]
    with pytest.raises(errors.InvalidArgument, match=r"settings\.budget: a limit, not a setting.*budget\.programs"):
        planned(tmp_path, PROGRAMS, methods=setting)
    with pytest.raises(errors.InvalidArgument, match=r"budget\.programs: the method 'code' has no program budget"):
        planned(tmp_path, PROGRAMS, methods=[{"name": "x", "method": "code"}])
