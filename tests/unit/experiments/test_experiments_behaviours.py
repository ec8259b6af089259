"""Experiments of trained behaviours: several intents in an environment, their results, pictures and page."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import yaml
from dressage import errors
from dressage.api.v1 import session_pb2 as pb
from dressage.cli import experiment_report
from dressage.cli.main import invoke
from dressage.experiments import strips
from dressage.experiments.cells import Cell, cells
from dressage.experiments.records import Record, ResultFolder, record_of
from dressage.experiments.schema import load_experiment
from PIL import Image

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


def planned(tmp_path: Path, **changes: Any) -> list[Cell]:
    path = tmp_path / "walks.yaml"
    path.write_text(yaml.safe_dump(CONTENT | changes))
    return cells(load_experiment(path))


def result(cell: Cell, *, score: float, confirmed: bool = True, seconds: float = 60) -> Record:
    """The result of a session that passed and was confirmed, or did not pass."""
    session = pb.Session(
        spec=cell.spec,
        state=pb.SESSION_STATE_SUCCEEDED if confirmed else pb.SESSION_STATE_EXHAUSTED,
        state_reason="" if confirmed else "all 3 iterations are used",
        best_score=0.99,
        env_steps=1_000,
    )
    judgment = pb.Judgment(score=score, samples=[score], interval_low=score - 0.1, interval_high=score)
    if confirmed:
        session.confirmation.CopyFrom(judgment)
    else:
        session.best_judgment.CopyFrom(judgment)
        session.best_score = score
    session.start_time.FromSeconds(1_000)
    session.end_time.FromMilliseconds(round(1_000 * (1_000 + seconds)))
    return record_of(cell, session, [], {})


def video(frames: int) -> bytes:
    """A video whose frames are ever brighter."""
    data = io.BytesIO()
    with av.open(data, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=30)
        stream.width, stream.height, stream.pix_fmt = 160, 120, "yuv420p"
        for index in range(frames):
            picture = np.full((120, 160, 3), 255 * index // max(1, frames - 1), np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode(None))
    return data.getvalue()


def test_an_environment_has_several_intents_and_runs_of_its_own(tmp_path: Path) -> None:
    rows = planned(tmp_path)
    assert [(cell.environment, cell.run, cell.spec.intent) for cell in rows] == [
        ("walk", 0, "hop forward"),
        ("fast", 0, "hop forward fast"),
        ("walk", 1, "hop forward"),
        ("walk", 2, "hop forward"),
    ]
    assert len({cell.session for cell in rows}) == 4
    assert {cell.spec.environment for cell in rows} == {"environments/Hopper-v5"}
    with pytest.raises(errors.InvalidArgument, match="'Hopper-v5' is given more than once"):
        planned(tmp_path, environments=["Hopper-v5", {"id": "Hopper-v5", "intent": "hop"}])


def test_the_experiment_has_every_suggested_intent(capsys: pytest.CaptureFixture[str]) -> None:
    """As the list of environments prints them: the first two of each that needs no pack."""
    assert invoke(["envs", "list", "--json"]) == 0
    cards = json.loads(capsys.readouterr().out)["environments"]
    built_in = [card for card in cards if "reward" in card["methods"] and not card["pack"]]
    suggested = {(card["id"], intent) for card in built_in for intent in card["example_intents"][:2]}
    experiment = load_experiment(REPOSITORY / "experiments" / "intents.yaml")
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


def test_a_strip_has_frames_from_the_first_to_the_last() -> None:
    picture = Image.open(io.BytesIO(strips.strip(video(31), count=4, height=60)))
    assert picture.size == (4 * 80 + 3 * 2, 60)
    brightness = [picture.getpixel((index * 82 + 40, 30))[0] for index in range(4)]  # type: ignore[index]
    assert brightness == pytest.approx([0, 85, 170, 255], abs=8)
    assert Image.open(io.BytesIO(strips.strip(video(2), count=4, height=60))).width == 2 * 80 + 2
    for data in (b"", b"no video"):
        with pytest.raises(ValueError, match="cannot be read"):
            strips.strip(data)


def test_the_page_counts_sessions_and_shows_a_passing_one(tmp_path: Path) -> None:
    rows = planned(tmp_path)
    folder = ResultFolder(tmp_path / "results")
    outcomes = iter([(0.4, False, 900.0), (0.9, True, 70.0), (1.0, True, 90.0), (0.8, True, 110.0)])
    for cell in rows:
        score, confirmed, seconds = next(outcomes)
        folder.add(result(cell, score=score, confirmed=confirmed, seconds=seconds))
        folder.add_strip(cell.session, cell.session.encode())
    page = tmp_path / "walks.md"
    page.write_text(f"# Walks\n\n{experiment_report.BEGIN}\nold\n{experiment_report.END}\n")
    options = {"metric": "score", "reference": "", "beside": (), "out": None, "as_json": False}
    assert experiment_report.write([folder.path], page=page, **options) == 0  # type: ignore[arg-type]
    text = page.read_text()
    walk, fast = (line for line in text.splitlines() if line.startswith("| Hopper-v5"))
    assert "| hop forward | 2/3 | 0.73 [0.40, 1.00] | 1 min 50 s | 1 min 30 s, 1 min 50 s | 1,000 |" in walk
    assert "| hop forward fast | 1/1 |" in fast and "- seed 0: all 3 iterations are used" in text
    assert "](walks/walk-defaults.jpg)" in text and "old" not in text
    shown = next(cell for cell in rows if cell.environment == "walk" and cell.run == 1)
    assert (tmp_path / "walks" / "walk-defaults.jpg").read_text() == shown.session


def test_the_page_keeps_a_picture_that_the_results_do_not_have(tmp_path: Path) -> None:
    """Strips are not under version control: the page is written anew from results that have none, or some."""
    walk, fast = planned(tmp_path)[:2]
    folder = ResultFolder(tmp_path / "results")
    for cell in (walk, fast):
        folder.add(result(cell, score=0.9))
    folder.add_strip(fast.session, b"new")
    page = tmp_path / "walks.md"
    page.write_text(f"# Walks\n\n{experiment_report.BEGIN}\n{experiment_report.END}\n")
    (tmp_path / "walks").mkdir()
    for name in ("walk", "fast"):
        (tmp_path / "walks" / f"{name}-defaults.jpg").write_text("old")
    options = {"metric": "score", "reference": "", "beside": (), "out": None, "as_json": False}
    assert experiment_report.write([folder.path], page=page, **options) == 0  # type: ignore[arg-type]
    assert all(f"](walks/{name}-defaults.jpg)" in page.read_text() for name in ("walk", "fast"))
    pictures = {name: (tmp_path / "walks" / f"{name}-defaults.jpg").read_text() for name in ("walk", "fast")}
    assert pictures == {"walk": "old", "fast": "new"}
