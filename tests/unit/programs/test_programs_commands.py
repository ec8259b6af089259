"""`dressage programs …` in this process."""

from __future__ import annotations

import gzip
import json
import os
import sys
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from dressage.cli import program_inputs
from dressage.cli.main import invoke
from dressage.episodes import compiling
from dressage.episodes.versions import FOLDER_VARIABLE
from dressage.programs.syntax import KAREL, MINIGRID, parse

DATA = Path(__file__).parents[2] / "data" / "programs"
STAIRS = "DEF run m( WHILE c( noMarkersPresent c) w( turnLeft move turnRight move w) m)"
KEY = (
    "DEF run m( WHILE c( noMarkersPresent c) w( turnRight move move w) pickMarker "
    "WHILE c( noMarkersPresent c) w( move move turnLeft w) putMarker m)"
)


@pytest.fixture(autouse=True)
def shared_kernels(kernels: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(compiling._Place.folder))


def run(*words: object) -> int:
    return invoke(["programs", *map(str, words)])


def document(capsys: pytest.CaptureFixture[str], *words: object) -> Any:
    assert run(*words, "--json") == 0
    return json.loads(capsys.readouterr().out)


def failure(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert run(*words) in (1, 2)
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


def test_eval_prints_the_published_mean_and_the_return_of_each_state(capsys: pytest.CaptureFixture[str]) -> None:
    result = document(capsys, "eval", KEY, "--task", "DoorKey", "--profile", "llmgs-v1")
    assert result["task"] == "karel/DoorKey" and result["mean_return"] == 0.703125
    assert [row["state"] for row in result["states"]] == list(range(32))
    assert sum(row["return"] for row in result["states"]) == 0.703125 * 32
    assert run("eval", STAIRS, "--task", "karel/StairClimber", "--states", 4) == 0
    assert "mean return 1.0000 on 4 states" in capsys.readouterr().out


def test_a_program_is_read_from_a_text_a_file_a_bundle_and_python(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = "".join(f"        {name}()\n" for name in ("turnLeft", "move", "turnRight", "move"))
    python = f"def run():\n    while noMarkersPresent():\n{body}"
    (tmp_path / "stairs.txt").write_text(STAIRS)
    (tmp_path / "stairs.py").write_text(python)
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "program.txt").write_text(STAIRS)
    for source in (STAIRS, python, *(tmp_path / name for name in ("stairs.txt", "stairs.py", "bundle"))):
        result = document(capsys, "eval", source, "--task", "StairClimber", "--states", 2)
        assert (result["program"], result["mean_return"]) == (STAIRS, 1.0)


@pytest.mark.parametrize(
    ("program", "options", "message"),
    [
        ("move", ["--task", "DoorKey"], "PROGRAM: neither a program nor a file"),
        ("missing.txt", ["--task", "DoorKey"], "PROGRAM: cannot be read"),
        ("DEF run m( forward m)", ["--task", "DoorKey"], "token 4"),
        ("def run():\n    import os\n", ["--task", "DoorKey"], "line 2"),
        (STAIRS, ["--task", "Dorkey"], "expected karel/DoorKey"),
        (STAIRS, ["--task", "Hopper-v5"], "unknown task"),
        (STAIRS, ["--task", "DoorKey", "--profile", "new"], "profile: unknown profile"),
        ("DEF run m( " + "move " * 5000 + "m)", ["--task", "DoorKey"], "too long"),
        ("a\0b", ["--task", "DoorKey"], "neither a program"),
    ],
)
def test_bad_input_is_refused(
    program: str, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    error = failure(capsys, "eval", program, *options)
    assert message in error and "Traceback" not in error and len(error.splitlines()) == 1


def test_trace_prints_lines_and_totals(capsys: pytest.CaptureFixture[str]) -> None:
    result = document(capsys, "trace", STAIRS, "--task", "StairClimber", "--seed", 3)
    steps, lines = result["steps"], result["python"].split("\n")
    assert len(steps) == result["calls"] and sum(step["reward"] for step in steps) == result["return"] == 1.0
    assert all(step["operation"].rstrip("()") in lines[step["line"] - 1] for step in steps)
    assert run("trace", STAIRS, "--task", "StairClimber", "--seed", 3, "--steps", 2) == 0
    text = capsys.readouterr().out
    assert f"… {len(steps) - 2} more" in text and "the task ended the episode" in text


@pytest.mark.parametrize("language", [KAREL, MINIGRID])
def test_samples_are_programs_of_the_language(language: Any, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("sample", "-n", 5, "--seed", 2, "--language", language.name)
    assert run(*words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len([parse(line, language) for line in lines]) == 5
    assert [row["program"] for row in document(capsys, *words)["programs"]] == lines


def test_replay_counts_cases_and_lists_each_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("replay", DATA / "minigrid.jsonl.gz") == 0
    assert capsys.readouterr().out == "27 cases, 0 differences\n"
    with gzip.open(DATA / "minigrid.jsonl.gz", "rt") as file:
        records = [json.loads(line) for line in file]
    wrong = next(record for record in records if record["kind"] == "agg")
    wrong["calls"][2] += 1
    path = tmp_path / "cases.jsonl"
    path.write_text("\n".join(map(json.dumps, records)))
    assert run("replay", path) == 1
    *differences, last = capsys.readouterr().out.splitlines()
    expected = f"{wrong['task']}, seed 2: calls: expected {wrong['calls'][2]}, got {wrong['calls'][2] - 1}"
    assert differences == [f"{expected}: {wrong['program']}"] and last == "27 cases, 1 difference"


@pytest.mark.parametrize("compressed", [True, False])
def test_replay_reads_pipes_and_standard_input(
    compressed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = (DATA / "minigrid.jsonl.gz").read_bytes()
    data = data if compressed else gzip.decompress(data)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for content, expected in ((data, (0, "27 cases, 0 differences\n")), (b"{}\n", (1, ""))):
        writer = Thread(target=fifo.write_bytes, args=(content,), daemon=True)
        writer.start()
        assert (run("replay", fifo), capsys.readouterr().out) == expected
        writer.join(timeout=10)
    (tmp_path / "file").write_bytes(data)
    with (tmp_path / "file").open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert run("replay", "-") == 0
    assert capsys.readouterr().out == "27 cases, 0 differences\n"


def test_a_bad_record_of_a_pipe_is_named_by_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    content = b'\n{"kind": "meta"}\n\n[]\n'
    Thread(target=fifo.write_bytes, args=(content,), daemon=True).start()
    assert "line 4: not a record" in failure(capsys, "replay", fifo)


def test_files_that_hold_no_cases_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = (DATA / "minigrid.jsonl.gz").read_bytes()
    files = {
        "truncated.gz": (whole[: len(whole) // 2], "damaged or truncated"),
        "damaged.gz": (whole[:40] + b"x" * 40 + whole[80:], "damaged or truncated"),
        "binary.jsonl": (b"\xff\xfe\x00", "not UTF-8"),
        "half.jsonl": (gzip.decompress(whole)[:700], "line 3: not a record"),
        "empty.jsonl": (b"", "no cases"),
        "field.jsonl": (b'{"kind": "init", "task": "LavaGap"}\n', "line 1: no field 'seed'"),
        "task.jsonl": (b'{"kind": "init", "task": "Fly", "seed": 1}\n', "line 1: task: unknown task"),
        "shape.jsonl": (b'{"kind": "agg", "task": ["x"], "program": 3}\n', "line 1: a malformed"),
    }
    for name, (data, message) in files.items():
        (tmp_path / name).write_bytes(data)
        assert message in failure(capsys, "replay", tmp_path / name), name
    assert "cannot be read" in failure(capsys, "replay", tmp_path / "absent.jsonl")


def test_kernels_stay_out_of_folders_that_others_can_write_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FOLDER_VARIABLE)
    place = (compiling._Place.folder, compiling._Place.writable)
    used: list[Path] = []
    monkeypatch.setattr(compiling, "write_to", lambda folder, progress: used.append(folder))
    old = tmp_path / "kernels" / "command-line" / "old"
    old.mkdir(parents=True)
    program_inputs.use_kernels(tmp_path)
    assert len(used) == 1 and used[0].is_dir() and not old.exists()
    used[0].chmod(0o777)
    program_inputs.use_kernels(tmp_path)
    assert len(used) == 1 and place == (compiling._Place.folder, compiling._Place.writable)
